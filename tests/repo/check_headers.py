#!/usr/bin/env python3
"""Each header compiles alone.

Reading the standard library anew for every header takes minutes. So the system headers that many of our headers include are
precompiled, and one compilation checks several headers; both only where that sees the same as one compilation for each:
- a header stands behind precompiled system headers only when all files that these consist of are included by the header anyway;
- a header stands behind others only when everything that these bring along is included by the header itself anyway, or declares no
  name that the header mentions.
usage: check_headers.py [--compiler PROGRAM] [--include DIR]... [--jobs N] ROOT
"""

import argparse
import concurrent.futures
import os
import re
import shutil
import subprocess
import sys
import tempfile

from repo_files import read_text, repo_files, report

HEADER = re.compile(r"^(src|include|tests)/.*\.h$")
QUOTED = re.compile(r'^[ \t]*#[ \t]*include[ \t]*"([^"]+)"', re.M)
ANGLED = re.compile(r"^[ \t]*#[ \t]*include[ \t]*<([^>]+)>", re.M)
WORD = re.compile(r"[A-Za-z_]\w*")
NOISE = re.compile(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"', re.S)
# The members of namespaces of the libraries: what declares them there is not ours.
FOREIGN = re.compile(r"(?<!using )\b(?:std|fmt|tl|nlohmann|CLI|testing|rc)(?:::\w+)+")
# What no header of ours declares.
COMMON_WORDS = set("""
    pragma once include define ifdef ifndef if else elif endif defined namespace megartp std
    alignas alignof auto bool break case catch char class const const_cast constexpr consteval constinit continue decltype default delete
    do double dynamic_cast enum explicit extern false final float for friend goto inline int long mutable new noexcept nullptr operator
    override private protected public reinterpret_cast requires return short signed sizeof static static_assert static_cast struct
    switch template this thread_local throw true try typedef typename union unsigned using virtual void volatile while
    size_t ptrdiff_t int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t uintptr_t""".split())
# Of so many headers that include the same system headers, these are precompiled.
MIN_USERS = 6


class Header:
    def __init__(self, path, text, known):
        self.path = path
        places = ("src/", "include/", "tests/", os.path.dirname(path) + "/")
        self.direct = [place + name for name in QUOTED.findall(text) for place in places if place + name in known]
        self.system = set(ANGLED.findall(text))
        code = ANGLED.sub("", NOISE.sub("", text))
        self.words = set(WORD.findall(code))
        self.declared = set(WORD.findall(FOREIGN.sub("", code))) - COMMON_WORDS  # and more: all that it may declare
        self.is_conditional = has_conditional_include(text)  # then nobody knows, without a compiler, what it includes
        self.closure = None  # paths of itself and all that it includes
        self.files = frozenset()  # the files of all system headers that it includes, itself or by others of ours


def has_conditional_include(text):
    depth = 0
    for keyword in re.findall(r"^[ \t]*#[ \t]*(if|endif|include)", text, re.M):
        depth += {"if": 1, "endif": -1, "include": 0}[keyword]
        if keyword == "include" and depth > 0:
            return True
    return False


def close(headers, path):
    header = headers[path]
    if header.closure is None:
        header.closure = {path}  # also ends the recursion where includes form a circle
        for other in header.direct:
            header.closure = header.closure | close(headers, other)
    return header.closure


class Compiler:
    """Runs one, and knows the precompiled headers."""

    def __init__(self, program, folders, work):
        self.command = [program, "-std=c++20", *(f"-I{f}" for f in folders)]
        version = subprocess.run([program, "--version"], capture_output=True, text=True, check=True).stdout
        # Not anew behind each use: CLI11 and the JSON library take seconds there, whatever the source says.
        self.pch_options = ["-fpch-instantiate-templates"] if "clang" in version else []
        self.work = work
        self.precompiled = {}  # set of files -> what gives the path to the header that includes them

    def files_of(self, system_header):
        """The files that including it reads."""
        done = subprocess.run([*self.command, "-M", "-x", "c++", "-"], input=f"#include <{system_header}>\n", capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            return frozenset([f"<{system_header}>"])  # there is none such: the compiler will say so
        return frozenset(done.stdout.replace("\\\n", " ").split()[1:])

    def largest_within(self, files):
        return max((s for s in self.precompiled if s <= files), key=len, default=None)

    def precompile(self, files, system_headers):
        source = os.path.join(self.work, f"system{len(files)}_{abs(hash(files))}.h")
        with open(source, "w", encoding="utf-8") as f:
            f.writelines(f"#include <{name}>\n" for name in sorted(system_headers))
        subprocess.run([*self.command, *self.pch_options, "-x", "c++-header", source, "-o", source + ".gch"], check=True)
        return source

    def check(self, files, root, paths):
        """What it says of the headers, included in this order; empty when all is well."""
        unit = os.path.join(self.work, re.sub(r"\W", "_", f"{len(paths)}_{paths[0]}") + ".cc")
        with open(unit, "w", encoding="utf-8") as f:
            f.writelines(f'#include "{os.path.join(root, path)}"\n' for path in paths)
        behind = ["-include", self.precompiled[files].result()] if files else []
        done = subprocess.run([*self.command, *behind, "-fsyntax-only", unit], capture_output=True, text=True, check=False)
        return "" if done.returncode == 0 else done.stderr


def find_files(headers, compiler, pool):
    """Fills in Header.files."""
    names = sorted(set().union(*(h.system for h in headers.values())))
    files = dict(zip(names, pool.map(compiler.files_of, names)))
    for header in headers.values():
        names = set().union(*(headers[p].system for p in header.closure))
        header.files = frozenset().union(*(files[n] for n in names))


def precompile(headers, compiler, pool):
    users = {}
    for header in headers.values():
        if not any(headers[p].is_conditional for p in header.closure):
            users.setdefault(header.files, []).append(header)
    shared = [files for files, found in users.items() if files and len(found) >= MIN_USERS]
    for files in sorted(shared, key=len, reverse=True):
        names = set().union(*(headers[p].system for p in users[files][0].closure))
        compiler.precompiled[files] = pool.submit(compiler.precompile, files, names)


def may_follow(headers, header, group):
    """Whether the header, behind the group's headers, sees nothing of use that it would not see alone."""
    if group["precompiled"] != header.precompiled or group["files"] - header.files:
        return False
    own_words = set().union(*(headers[p].words for p in header.closure if p != header.path))
    strangers = group["closure"] - header.closure
    return all(not (headers[p].declared & header.words) - own_words for p in strangers)


def make_groups(headers, compiler):
    groups = []
    for header in sorted(headers.values(), key=lambda h: (len(h.closure), len(h.files), h.path)):
        is_plain = not any(headers[p].is_conditional for p in header.closure)
        header.precompiled = compiler.largest_within(header.files) if is_plain else None
        fitting = [g for g in groups if may_follow(headers, header, g)] if is_plain else []
        if fitting:
            best = max(fitting, key=lambda g: len(g["closure"] & header.closure))
        else:
            best = {"closure": set(), "files": frozenset(), "paths": [], "precompiled": header.precompiled}
            groups.append(best)
        best["closure"] |= header.closure
        best["files"] |= header.files
        best["paths"].append(header.path)
    return groups


def check_group(compiler, root, group):
    paths = group["paths"]
    output = compiler.check(group["precompiled"], root, paths)
    if not output:
        return []
    alone = [(path, compiler.check(None, root, [path])) for path in paths]
    bad = [f"{path}: does not compile alone\n{text}" for path, text in alone if text]
    return bad or [f"{', '.join(paths)}: do not compile together\n{output}"]


def main():
    parser = argparse.ArgumentParser(description="Each header compiles alone.")
    parser.add_argument("--compiler", default=shutil.which("clang++-19") or "c++")
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
    with tempfile.TemporaryDirectory(prefix="megartp-headers-") as work, concurrent.futures.ThreadPoolExecutor(max(args.jobs, 1)) as pool:
        compiler = Compiler(args.compiler, folders, work)
        find_files(headers, compiler, pool)
        precompile(headers, compiler, pool)
        groups = make_groups(headers, compiler)
        # The longest first: they take the most time.
        groups.sort(key=lambda g: -len(g["files"]))
        found = pool.map(lambda g: check_group(compiler, root, g), groups)
        problems = [problem for group in found for problem in group]
    print(f"headers: {len(paths)} in {len(groups)} compilations behind {len(compiler.precompiled)} sets of system headers", file=sys.stderr)
    return report(problems, len(paths), "headers")


if __name__ == "__main__":
    sys.exit(main())
