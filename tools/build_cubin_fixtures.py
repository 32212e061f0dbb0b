#!/usr/bin/env python3
"""Compiles the kernels of tests/faults/cubin for sm_90a.

Without --check, replaces the committed cubins (after that, correct the offsets in cases.json). With --check, compiles into a scratch
folder and holds the verdicts on the fresh cubins to cases.json: same kernels, same rules in the same number, whatever the offsets.
Exit status 0, 1 when a verdict differs, 77 without nvcc.

usage: build_cubin_fixtures.py [--check --megartp PROGRAM]
"""

import argparse
import collections
import glob
import json
import os
import subprocess
import sys
import tempfile

from cuda_tools import need_tool

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "tests", "faults", "cubin")


def compile_all(nvcc, target):
    for source in sorted(glob.glob(os.path.join(FOLDER, "*.cu"))):
        name = os.path.basename(source)[:-3]
        # From inside the folder, so that no path gets into the file.
        done = subprocess.run([nvcc, "-cubin", "-arch=sm_90a", "-std=c++17", "-o", os.path.join(target, name + ".cubin"), name + ".cu"],
                              cwd=FOLDER, capture_output=True, text=True, check=False)
        if done.returncode != 0:
            sys.exit(f"{name}.cu does not compile:\n{done.stdout}{done.stderr}")


def check(nvcc, megartp):
    problems = 0
    with open(os.path.join(FOLDER, "cases.json"), encoding="utf-8") as f:
        cases = json.load(f)["cases"]
    with tempfile.TemporaryDirectory(prefix="megartp-cubins-") as fresh:
        compile_all(nvcc, fresh)
        for case in cases:
            done = subprocess.run([megartp, "verify", "cubin", os.path.join(fresh, case["cubin"] + ".cubin"), "--contract",
                                   os.path.join(FOLDER, case["contract"] + ".json"), "--json"], capture_output=True, text=True, check=False)
            if done.returncode not in (0, 1):
                print(f"{case['cubin']}: exit status {done.returncode}: {done.stderr.strip()}")
                problems += 1
                continue
            found = collections.Counter(f["rule"] for f in json.loads(done.stdout)["result"]["findings"])
            expected = collections.Counter(f["rule"] for f in case["findings"])
            if found != expected or (done.returncode == 1) != bool(expected):
                print(f"{case['cubin']}: findings {dict(found)}, expected {dict(expected)}")
                problems += 1
    print(f"{len(cases)} fresh cubins, {problems} with another verdict")
    return 1 if problems or not cases else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compile elsewhere and compare the verdicts")
    parser.add_argument("--megartp", help="the command-line tool, for --check")
    options = parser.parse_args()
    if options.check and not options.megartp:
        parser.error("--check needs --megartp")
    compiler = need_tool("nvcc")
    if options.check:
        sys.exit(check(compiler, options.megartp))
    compile_all(compiler, FOLDER)
