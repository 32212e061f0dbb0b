"""The files of the repository, for the checks of this folder."""

import os
import subprocess
import sys

SKIPPED_FOLDERS = {".git", "build", ".cache", "__pycache__"}


def repo_files(root):
    """Paths relative to root, sorted: what git tracks or would add; without git, every file outside build folders."""
    try:
        listing = subprocess.run(
            ["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
            check=True, capture_output=True).stdout
        # A fixture folder inside another repository is not a repository of its own: walk it.
        top = subprocess.run(["git", "-C", root, "rev-parse", "--show-toplevel"],
                             check=True, capture_output=True, text=True).stdout.strip()
        if os.path.realpath(top) == os.path.realpath(root):
            paths = sorted({os.fsdecode(p) for p in listing.split(b"\0") if p})
            return [p for p in paths if os.path.isfile(os.path.join(root, p))]
    except (OSError, subprocess.CalledProcessError):
        pass
    paths = []
    for folder, subfolders, files in os.walk(root):
        subfolders[:] = [d for d in subfolders if d not in SKIPPED_FOLDERS]
        paths += [os.path.relpath(os.path.join(folder, f), root) for f in files]
    return sorted(paths)


def read_text(root, path):
    """The file's text, or None when it is binary."""
    with open(os.path.join(root, path), "rb") as f:
        data = f.read()
    if b"\0" in data:
        return None
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def report(problems, checked, what):
    """Prints the problems and returns the exit status."""
    for problem in problems:
        print(problem)
    if checked == 0:
        print(f"{what}: found nothing to check")
        return 1
    print(f"{what}: {checked} files, {len(problems)} problems", file=sys.stderr)
    return 1 if problems else 0
