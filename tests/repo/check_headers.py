#!/usr/bin/env python3
"""Each header compiles alone.

Reading the standard library anew for every header takes minutes, so one compilation checks several headers wherever that sees the
same as one for each: a header may stand behind others only when everything that these bring along is included by the header itself
anyway, or declares no name that the header mentions.

usage: check_headers.py [--compiler PROGRAM] [--include DIR]... [--jobs N] ROOT
"""

import argparse
import concurrent.futures
import os
import re
import subprocess
import sys
import tempfile

from repo_files import read_text, repo_files, report

HEADER = re.compile(r"^(src|include|tests)/.*\.h$")
QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
ANGLED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.M)
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.S)
# In every header, and no declarations.
COMMON_WORDS = {"pragma", "once", "include", "namespace", "megartp"}


class Header:
    def __init__(self, path, text, known):
        self.path = path
        places = ("src/", "include/", "tests/", os.path.dirname(path) + "/")
        self.direct = [place + name for name in QUOTED.findall(text) for place in places if place + name in known]
        self.system = set(ANGLED.findall(text))
        self.words = set(re.findall(r"[A-Za-z_]\w*", NOISE.sub("", text)))
        self.closure = None  # paths of itself and all that it includes


def close(headers, path):
    header = headers[path]
    if header.closure is None:
        header.closure = {path}  # also ends the recursion where includes form a circle
        for other in header.direct:
            header.closure = header.closure | close(headers, other)
    return header.closure


def may_follow(headers, header, group):
    """Whether the header, behind the group's headers, sees nothing of use that it would not see alone."""
    system = set().union(*(headers[p].system for p in header.closure))
    if set().union(*(headers[p].system for p in group["closure"])) - system:
        return False
    own_words = set().union(COMMON_WORDS, *(headers[p].words for p in header.closure if p != header.path))
    strangers = group["closure"] - header.closure
    return all(not (headers[p].words & header.words) - own_words for p in strangers)


def make_groups(headers):
    groups = []
    for header in sorted(headers.values(), key=lambda h: (len(h.closure), len(h.system), h.path)):
        fitting = [g for g in groups if may_follow(headers, header, g)]
        if fitting:
            best = max(fitting, key=lambda g: len(g["closure"] & header.closure))
        else:
            best = {"closure": set(), "paths": []}
            groups.append(best)
        best["closure"] |= header.closure
        best["paths"].append(header.path)
    return groups


def compile_headers(command, root, paths):
    """What the compiler says of the headers, included in this order; empty when all is well."""
    with tempfile.TemporaryDirectory(prefix="megartp-headers-") as folder:
        unit = os.path.join(folder, "unit.cc")
        with open(unit, "w", encoding="utf-8") as f:
            f.writelines(f'#include "{os.path.join(root, path)}"\n' for path in paths)
        done = subprocess.run([*command, unit], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr


def check_group(command, root, paths):
    output = compile_headers(command, root, paths)
    if not output:
        return []
    alone = [(path, compile_headers(command, root, [path])) for path in paths]
    bad = [f"{path}: does not compile alone\n{text}" for path, text in alone if text]
    return bad or [f"{', '.join(paths)}: do not compile together\n{output}"]


def main():
    parser = argparse.ArgumentParser(description="Each header compiles alone.")
    parser.add_argument("--compiler", default="c++")
    parser.add_argument("--include", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("root")
    args = parser.parse_args()
    root = os.path.abspath(args.root)
    paths = [p for p in repo_files(root) if HEADER.match(p)]
    headers = {p: Header(p, read_text(root, p) or "", set(paths)) for p in paths}
    for path in paths:
        close(headers, path)
    folders = [os.path.join(root, f) for f in ("src", "include", "tests")] + [os.path.abspath(f) for f in args.include]
    command = [args.compiler, "-std=c++20", "-fsyntax-only", *(f"-I{f}" for f in folders)]
    groups = make_groups(headers)
    # The longest first: they take the most time.
    groups.sort(key=lambda g: -len(g["closure"]))
    with concurrent.futures.ThreadPoolExecutor(max(args.jobs, 1)) as pool:
        found = pool.map(lambda g: check_group(command, root, g["paths"]), groups)
        problems = [problem for group in found for problem in group]
    print(f"headers: {len(paths)} in {len(groups)} compilations", file=sys.stderr)
    return report(problems, len(paths), "headers")


if __name__ == "__main__":
    sys.exit(main())
