#!/usr/bin/env python3
"""clang-tidy over the sources that a build folder compiles, several at once; prints findings only.

usage: run_tidy.py --build FOLDER [--jobs N] [--since COMMIT] [--filter REGEX] ROOT

Clang's own warnings count as findings, so this also holds the code to clang's -Wall -Wextra -Wconversion. Result: exit status 1
and the findings (each once, however many sources include the header), or 0.
"""

import argparse
import concurrent.futures
import json
import os
import re
import subprocess
import sys
import time

TIDY = "clang-tidy-19"
FINDING = re.compile(r"^(\S.*?:\d+:\d+): (?:warning|error): .* \[[\w.,\-*]+\]$")
# Sources compiled a second time for another instruction set say nothing new.
SKIPPED = re.compile(r"(^|/)(build|generated)/|_v3\.cc$")


def sources(build, root, only):
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as f:
        files = {os.path.normpath(os.path.join(entry["directory"], entry["file"])) for entry in json.load(f)}
    inside = [f for f in files if f.startswith(root + os.sep) and not SKIPPED.search(os.path.relpath(f, root))]
    return sorted(f for f in inside if only is None or only(os.path.relpath(f, root)))


def changed_since(root, commit):
    names = subprocess.run(["git", "-C", root, "diff", "--name-only", commit], check=True, capture_output=True, text=True)
    changed = set(names.stdout.split())
    return lambda path: path in changed


def tidy(build, file):
    begin = time.monotonic()
    done = subprocess.run([TIDY, "-p", build, "--quiet", "--extra-arg=-Wno-unknown-warning-option",
                           # libstdc++ 12 marks what its own stable_sort calls.
                           "--extra-arg=-Wno-deprecated-declarations",
                           # Precompiled headers of g++ are read as the text that they stand for.
                           "--extra-arg=-Wno-ignored-gch",
                           # Options of g++ alone (CMakeLists.txt).
                           "--extra-arg=-Wno-unused-command-line-argument", file],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return file, done.returncode, done.stdout, done.stderr, time.monotonic() - begin


def main(arguments):
    root, build = os.path.abspath(arguments.root), os.path.abspath(arguments.build)
    only = changed_since(root, arguments.since) if arguments.since else None
    if arguments.filter:
        only = re.compile(arguments.filter).search
    files = sources(build, root, only)
    if not files and not arguments.since:
        print(f"{build}: compile_commands.json names no source to check")
        return 1
    seen, failed, times = set(), 0, []
    # Large sources first, so that none is left over at the end.
    files.sort(key=os.path.getsize, reverse=True)
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for file, status, out, err, seconds in pool.map(lambda f: tidy(build, f), files):
            times.append((seconds, os.path.relpath(file, root)))
            if status == 0:
                continue
            failed += 1
            shown = 0
            for block in re.split(r"\n(?=\S[^\n]*:\d+:\d+: (?:warning|error))", out.strip("\n")):
                place = FINDING.match(block.split("\n", 1)[0])
                shown += 1
                if place is None or block not in seen:
                    seen.add(block)
                    print(block.replace(root + os.sep, ""), flush=True)
            if not shown:
                print(f"{os.path.relpath(file, root)}: {TIDY} ended with status {status}\n{err}", flush=True)
    times.sort(reverse=True)
    slowest = ", ".join(f"{name} {seconds:.0f} s" for seconds, name in times[:3])
    print(f"tidy: {len(files)} files, {len(seen)} findings in {failed} files; slowest: {slowest}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", required=True)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 2)
    parser.add_argument("--since", help="only sources that differ from this commit")
    parser.add_argument("--filter", help="only sources whose path matches")
    parser.add_argument("root")
    sys.exit(main(parser.parse_args()))
