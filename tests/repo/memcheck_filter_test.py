#!/usr/bin/env python3
"""bench/device/memcheck.py forgives what its head says, and nothing beside it. usage: memcheck_filter_test.py ROOT"""

import sys

ROOT = sys.argv[1]
sys.path.insert(0, ROOT + "/bench/device")
import memcheck  # noqa: E402

COPY = """========= COMPUTE-SANITIZER
========= Invalid __shared__ write of size 512 bytes
=========     at void megartp::device::indexer_q<megartp::device::GemmShape<(int)128, (int)8>, (int)4, (int)2>(P)+0x4220
=========     by thread (2,0,0) in block (6,0,0)
=========     Access to 0x201a200 is not located in remote CTA
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: cuGraphLaunch [0x3a269f] in libcuda.so.1
========= 
"""
TRAP = """========= Trace/breakpoint trap
=========     at void megartp::device::indexer_q<megartp::device::GemmShape<(int)128, (int)8>, (int)4, (int)2>(P)+0x6000
=========     by thread (32,0,0) in block (0,0,0)
========= 
"""
FAILURE = """========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call to cuMemFree_v2.
=========     Saved host backtrace up to driver entry point at error
========= 
"""
SUMMARY = "========= ERROR SUMMARY: 3 errors\n"


def check(text, copies, follow, unexplained):
    got = memcheck.classify(text)
    got = (got[0], got[1], sum(got[2].values()))
    if got != (copies, follow, unexplained):
        sys.exit(f"classified as {got}, not {(copies, follow, unexplained)}:\n{text}")


check(COPY + TRAP + FAILURE + FAILURE + SUMMARY, 1, 3, 0)
check("========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n", 0, 0, 0)
# Another CTA's window, another size, kernel, space or sentence; a cluster of one.
check(COPY.replace("0x201a200", "0x101a200") + SUMMARY, 0, 0, 1)
check(COPY.replace("block (6,", "block (7,") + SUMMARY, 0, 0, 1)
check(COPY.replace("512 bytes", "16 bytes") + SUMMARY, 0, 0, 1)
check(COPY.replace("indexer_q", "main_q") + SUMMARY, 0, 0, 1)
check(COPY.replace("__shared__", "__global__") + SUMMARY, 0, 0, 1)
check(COPY.replace("not located in remote CTA", "out of bounds") + SUMMARY, 0, 0, 1)
check(COPY.replace("(int)4, ", "(int)1, ").replace("0x201a200", "0x1a200") + SUMMARY, 0, 0, 1)
# What follows from a copy is forgiven behind one only.
check(TRAP + SUMMARY, 0, 0, 1)
check(FAILURE + SUMMARY, 0, 0, 1)
check(COPY + TRAP.replace("indexer_q", "main_q") + SUMMARY, 1, 0, 1)
check(COPY + "========= Leaked 16 bytes at 0x7f\n========= \n" + SUMMARY, 1, 0, 1)
