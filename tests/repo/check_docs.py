#!/usr/bin/env python3
"""The documentation tells the truth: links lead somewhere, named paths exist, commands run.

- Relative links in every Markdown file must exist, and so must the heading that a #fragment names.
- Inline code that looks like a path of this repository (`src/plan/target.h`) must exist; * matches, and a part in capitals
  (`src/ops/NAME/NAME.cc`) stands for a name of the reader's choice.
- Every ```sh block of README.md and docs/ runs from the root of a scratch copy of the repository with `bash -euo pipefail`; the
  blocks of one file run in order in the same copy. build/release/megartp is there. Blocks of other kinds (console, text) do not
  run, nor does one right after a line `<!-- not-run: reason -->`.

usage: check_docs.py [--links-only | --run --megartp PROGRAM [--cache FOLDER]] ROOT
"""

import argparse
import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

from repo_files import read_text, repo_files, report

FENCE = re.compile(r"^(\s*)(```+|~~~+)\s*([\w-]*)")
NOT_RUN = re.compile(r"^\s*<!--\s*not-run:\s*(.*?)\s*-->\s*$")
LINK = re.compile(r"!?\[(?:[^\]\[]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)|<(?:img|a|source)\b[^>]*?(?:src|href|srcset)=\"([^\"]+)\"")
HEADING = re.compile(r"^#{1,6}\s+(.*?)\s*#*\s*$")
CODE_SPAN = re.compile(r"`([^`\n]+)`")
PATH = re.compile(r"^(?:src|include|tests|docs|examples|bench|cmake|tools|\.ci)/[\w.*/{},-]*$")
BLOCK_TIMEOUT_S = 300


def split_blocks(text):
    """The lines outside code blocks as (number, line), and the blocks as (number, kind, text, reason not to run)."""
    prose, blocks = [], []
    fence = None
    previous = ""
    for number, line in enumerate(text.splitlines(), 1):
        found = FENCE.match(line)
        if fence is None:
            if found:
                marker = NOT_RUN.match(previous)
                fence = (number, found[2], found[3], len(found[1]), marker[1] if marker else None, [])
            else:
                prose.append((number, line))
                if line.strip():
                    previous = line
        elif found and found[2].startswith(fence[1]) and not found[3]:
            blocks.append((fence[0], fence[2], "\n".join(fence[5]) + "\n", fence[4]))
            fence, previous = None, ""
        else:
            fence[5].append(line[fence[3]:] if line[:fence[3]].isspace() else line)
    return prose, blocks


def anchors(text):
    """GitHub's names for the headings."""
    names, seen = set(), {}
    for _, line in split_blocks(text)[0]:
        found = HEADING.match(line)
        if not found:
            continue
        title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found[1]).lower()
        name = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
        count = seen.get(name, 0)
        seen[name] = count + 1
        names.add(f"{name}-{count}" if count else name)
    return names


def check_links(root, path, text):
    problems = []
    folder = os.path.dirname(path)
    for number, line in split_blocks(text)[0]:
        bare = CODE_SPAN.sub("", line)
        for found in LINK.finditer(bare):
            target = found[1] or found[2]
            if re.match(r"[a-z][a-z0-9+.-]*:", target, re.IGNORECASE):
                continue
            file, _, fragment = target.partition("#")
            if file.startswith("/"):
                problems.append(f"{path}:{number}: link '{target}' is absolute; write it relative to the file")
                continue
            where = os.path.normpath(os.path.join(folder, file)) if file else path
            if where.startswith("..") or not os.path.exists(os.path.join(root, where)):
                problems.append(f"{path}:{number}: link '{target}' leads nowhere")
            elif fragment and where.endswith(".md") and fragment not in anchors(read_text(root, where) or ""):
                problems.append(f"{path}:{number}: link '{target}': no such heading")
        for span in CODE_SPAN.findall(line):
            if not PATH.match(span) or re.search(r"(^|/)[A-Z]{2,}[\w]*", span):
                continue
            options = [span]
            braces = re.match(r"^(.*)\{([^{}]*)\}(.*)$", span)
            if braces:
                options = [braces[1] + part + braces[3] for part in braces[2].split(",")]
            for option in options:
                if not glob.glob(os.path.join(glob.escape(root), option)):
                    problems.append(f"{path}:{number}: `{option}` does not exist")
    return problems


def scratch_copy(root, files, megartp, folder):
    for path in files:
        target = os.path.join(folder, path)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        shutil.copy2(os.path.join(root, path), target)
    os.makedirs(os.path.join(folder, "build", "release"))
    os.symlink(os.path.abspath(megartp), os.path.join(folder, "build", "release", "megartp"))


def run_blocks(root, path, blocks, files, megartp, cache):
    problems = []
    runnable = [b for b in blocks if b[1] in ("sh", "bash", "shell") and b[3] is None]
    if not runnable:
        return problems, 0
    with tempfile.TemporaryDirectory(prefix="megartp-docs-") as folder:
        scratch_copy(root, files, megartp, folder)
        environment = dict(os.environ, MEGARTP_CACHE_DIR=os.path.abspath(cache), HOME=folder)
        for number, _, script, _ in runnable:
            begin = time.monotonic()
            try:
                done = subprocess.run(["bash", "-euo", "pipefail", "-c", script], cwd=folder, env=environment, text=True,
                                      stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                      errors="replace", timeout=BLOCK_TIMEOUT_S, check=False)
                status, output = f"exit status {done.returncode}" if done.returncode else None, done.stdout
            except subprocess.TimeoutExpired as expired:
                status, output = f"no end after {BLOCK_TIMEOUT_S} s", (expired.stdout or b"").decode(errors="replace")
            print(f"{path}:{number}: ran {len(script.splitlines())} lines in {time.monotonic() - begin:.1f} s", file=sys.stderr)
            if status:
                tail = "\n".join("    " + line for line in output.splitlines()[-20:])
                problems.append(f"{path}:{number}: {status} from\n{script}{tail}")
    return problems, len(runnable)


def main(arguments):
    root, problems, checked, ran = arguments.root, [], 0, 0
    files = repo_files(root)
    with tempfile.TemporaryDirectory(prefix="megartp-docs-cache-") as fallback:
        for path in files:
            if not path.endswith(".md"):
                continue
            text = read_text(root, path)
            if text is None:
                problems.append(f"{path}:1: not UTF-8 text")
                continue
            checked += 1
            if not arguments.run:
                problems += check_links(root, path, text)
            blocks = split_blocks(text)[1]
            problems += [f"{path}:{number}: a not-run mark needs a reason" for number, _, _, reason in blocks if reason == ""]
            if arguments.run and (path == "README.md" or path.startswith("docs/")):
                found, count = run_blocks(root, path, blocks, files, arguments.megartp, arguments.cache or fallback)
                problems += found
                ran += count
    if arguments.run and ran == 0:
        problems.append("no command was run")
    return report(problems, checked, f"docs ({ran} blocks run)" if arguments.run else "docs")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    mode = parser.add_mutually_exclusive_group(required=True)
    mode.add_argument("--links-only", action="store_true", help="check links and paths, run nothing")
    mode.add_argument("--run", action="store_true", help="run the commands")
    parser.add_argument("--megartp", help="the program to put at build/release/megartp")
    parser.add_argument("--cache", help="MEGARTP_CACHE_DIR of the commands")
    parser.add_argument("root")
    parsed = parser.parse_args()
    if parsed.run and not parsed.megartp:
        parser.error("--run needs --megartp")
    sys.exit(main(parsed))
