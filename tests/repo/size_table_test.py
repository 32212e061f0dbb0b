#!/usr/bin/env python3
"""bench/device/size_table.py adds up what `megartp trace show --json` says, and refuses what it cannot use.
usage: size_table_test.py ROOT MEGARTP"""

import json
import os
import subprocess
import sys
import tempfile

ROOT, MEGARTP = sys.argv[1:]
TABLE = ROOT + "/bench/device/size_table.py"


def run(text):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "sizes.json")
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        done = subprocess.run([sys.executable, TABLE, path], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout.splitlines(), done.stderr


def trace(backend, m, ops, **path):
    times = {"compute_ns": 0, "weights_ns": 0, "wait_ns": 0, "queue_ns": 0, "launch_ns": 0, **path}
    return {"backend": backend, "shapes": {"M": m, "KV": 64}, "span_ns": sum(times.values()), "critical_path": times,
            "ops": [{"name": name, "critical_ns": ns} for name, ns in ops.items()]}


def summaries(*traces):
    return json.dumps({"result": {"traces": traces}})


def expect(what, got, wanted):
    if got != wanted:
        sys.exit(f"{what}: {got!r}, not {wanted!r}")


CMP = trace("cmp", 4, {"A0": 1000, "B0.gemm": 2000, "B0.finalize": 500}, compute_ns=3000, weights_ns=500, wait_ns=700)
MEGA = trace("mega", 4, {"A0": 1100, "B0.gemm": 4000, "D0": 900}, compute_ns=5000, weights_ns=1000, queue_ns=300, launch_ns=200)
status, lines, _ = run(summaries(MEGA, CMP))
expect("status", status, 0)
expect("row", lines[2:], ["| 4 | 64 | 4.2, 6.5 | 3.5, 6.0 | 0.7, 0.5 | B0 +1.5, D0 +0.9, A0 +0.1 |"])

# A size that lacks a trace is named; the others are still there.
status, lines, errors = run(summaries(CMP, MEGA, trace("cmp", 9, {}, wait_ns=1)))
expect("status of a missing trace", (status, len(lines)), (1, 3))
expect("what is missing", "M = 9, KV = 64: no trace of mega" in errors, True)

for text in ("x", "[]", "{}", summaries(), summaries({}), summaries(CMP), summaries(CMP, CMP, MEGA), '{"result": {"traces": [1]}}'):
    status, lines, errors = run(text)
    expect(f"status of {text[:60]}", (status, lines), (3, []))
    expect(f"lines of errors of {text[:60]}", "Traceback" not in errors and errors.strip() != "", True)

# What the tool itself says of the traces in docs.
shown = subprocess.run([MEGARTP, "trace", "show", ROOT + "/docs/traces/cmp.trace", ROOT + "/docs/traces/mega.trace", "--json"],
                       capture_output=True, text=True, check=True).stdout
status, lines, _ = run(shown)
expect("status of docs/traces", (status, len(lines)), (0, 3))
