#!/usr/bin/env python3
"""compute-sanitizer memcheck over every op of attention-pre, one op a process, on this machine's GPU.

    memcheck.py MEGARTP [--out FOLDER] [--ops A0,B0,...] [bench options, default: --m 3 --kv 200 --requests 1]
    memcheck.py --classify FILE

memcheck (compute-sanitizer 2025.3) takes a cp.async.bulk from shared memory to shared memory for a fault when its destination is the CTA
that copies, says "not located in remote CTA", and leaves the copy out; whoever waits for it then runs into its deadline and the kernel ends
in a trap (docs/decisions/0006-memcheck-and-copies-to-oneself.md). So indexer_k and indexer_q (B1, D1) are checked up to these copies only,
each in a process of its own, so that it does not keep the others from being checked. Of such a report this script forgives exactly: a write
of 512 bytes by indexer_k or indexer_q at an address of the window of the very CTA that made it, by the CTA's rank; and behind at least one
of them, traps of that kernel and launch failures on API calls. Everything else fails the check.

Exit status: 0 nothing unexplained, 1 something was, 2 wrong usage, 4 no compute-sanitizer.
"""

import argparse
import collections
import concurrent.futures
import pathlib
import re
import shutil
import subprocess
import sys

OPS = ["A0", "B0", "C0", "B1", "D1", "D0", "D2", "E1"]
KERNEL = re.compile(r"\bat (?:void )?megartp::device::(\w+)<(.*)>\(")
CLUSTER = re.compile(r">, \(int\)(\d+), ")  # what follows the shape in the template arguments
BLOCK = re.compile(r"by thread \(\d+,\d+,\d+\) in block \((\d+),\d+,\d+\)")
REMOTE = re.compile(r"Access to (0x[0-9a-f]+) is not located in remote CTA")
WINDOW_BITS = 24  # of an address in a cluster's shared memory: above them stands the CTA's rank


def reports(text):
    """The reports of a run, each a list of lines without the tool's margin."""
    found = []
    lines = []
    for line in text.splitlines() + ["========="]:
        if line.strip() == "=========":
            if lines:
                found.append(lines)
            lines = []
        elif line.startswith("========= "):
            line = line[10:]
            if not line.startswith((" ", "Host Frame")) and lines:
                found.append(lines)
                lines = []
            lines.append(line.strip())
    return found


def kernel_of(report):
    for line in report:
        match = KERNEL.search(line)
        if match:
            return match[1], match[2]
    return None, ""


def is_copy_to_oneself(report):
    name, arguments = kernel_of(report)
    if report[0] != "Invalid __shared__ write of size 512 bytes" or name not in ("indexer_k", "indexer_q"):
        return False
    cluster = CLUSTER.search(arguments)
    text = "\n".join(report)
    block, remote = BLOCK.search(text), REMOTE.search(text)
    if not (cluster and block and remote) or int(cluster[1]) < 2:
        return False
    return int(remote[1], 16) >> WINDOW_BITS == int(block[1]) % int(cluster[1])


def classify(text):
    """(number of copies to oneself, number of what follows from them, unexplained reports as a counter of texts)"""
    found = [r for r in reports(text) if not r[0].startswith(("COMPUTE-SANITIZER", "ERROR SUMMARY", "Target application returned"))]
    known = {kernel_of(r) for r in found if is_copy_to_oneself(r)}
    copies = follow = 0
    unexplained = collections.Counter()
    for r in found:
        if is_copy_to_oneself(r):
            copies += 1
        elif r[0] == "Trace/breakpoint trap" and kernel_of(r) in known:
            follow += 1
        elif known and r[0].startswith("Program hit CUDA_ERROR_LAUNCH_FAILED (error 719)"):
            follow += 1
        else:
            unexplained[" | ".join(r[:4])] += 1
    return copies, follow, unexplained


def run_op(args, op, options):
    command = ["compute-sanitizer", "--tool", "memcheck", "--print-limit", "100000", args.megartp, "bench", "glm52-attention-pre"]
    command += ["--only", op, "--backends", "serial", "--repeat", "1", "--copies", "1", "--no-same", "--no-read", "--no-progress"]
    command += ["--span", "none", *options]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if args.out:
        pathlib.Path(args.out).mkdir(parents=True, exist_ok=True)
        pathlib.Path(args.out, f"memcheck_{op}.txt").write_text(done.stdout)
    return done.returncode, done.stdout


def verdict(name, status, text):
    """Prints what came of one run; False when something is unexplained."""
    copies, follow, unexplained = classify(text)
    if "ERROR SUMMARY" not in text:
        unexplained["no summary: the tool did not end"] += 1
    if status != 0 and copies == 0 and not unexplained:
        unexplained[f"exit status {status}: " + (text.strip().splitlines() or ["no output"])[-1]] += 1
    if copies:
        print(f"{name:<4}checked up to the copies of CTAs to themselves: {copies} reports of these, {follow} that follow from them")
    elif not unexplained:
        print(f"{name:<4}clean")
    for sentence, count in unexplained.items():
        print(f"{name:<4}UNEXPLAINED, {count} times: {sentence}")
    return not unexplained


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("megartp", nargs="?")
    parser.add_argument("--classify", metavar="FILE")
    parser.add_argument("--out")
    parser.add_argument("--ops", default=",".join(OPS))
    args, options = parser.parse_known_args()
    if args.classify:
        sys.exit(0 if verdict("", 0, pathlib.Path(args.classify).read_text()) else 1)
    if not args.megartp:
        parser.error("which megartp?")
    if shutil.which("compute-sanitizer") is None:
        print("memcheck.py: no compute-sanitizer on PATH", file=sys.stderr)
        sys.exit(4)
    options = options or ["--m", "3", "--kv", "200", "--requests", "1"]
    ops = args.ops.split(",")
    with concurrent.futures.ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda op: run_op(args, op, options), ops))
    good = [verdict(op, *result) for op, result in zip(ops, results)]
    sys.exit(0 if all(good) else 1)


if __name__ == "__main__":
    main()
