#!/usr/bin/env python3
"""Checks the protocol models under models/ with SPIN: each holds, and each of its twins fails in the way that it must.

A model is compiled to an exhaustive search of its states (safety: assertions and deadlocks) with bounded memory, depth and
time; a search that meets a bound is a failure, for then it proves nothing. A twin is the model with one -D; what it violates
is named below.

usage: check_models.py [--model NAME] MODELS_FOLDER
"""

import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time

DEADLOCK = "invalid end state"
# Model -> twin (macro) -> the property that it must violate.
TWINS = {
    "frame": {
        "EARLY_RELEASE": "no_page_overwritten_while_in_use",
        "SLOT_REUSE": "no_slot_overwritten_while_in_use",
        "NO_PAGE_WAIT": "no_page_overwritten_while_in_use",
        "PAGE_CYCLE": DEADLOCK,
        "LOST_EVENT": DEADLOCK,
    },
    "scheduler": {
        "NO_BACK_PRESSURE": "no_entry_overwritten",
        "EARLY_PUBLISH": "an_entry_is_written_before_it_is_read",
        "ONE_CURSOR": "a_broadcast_is_kept_until_all_have_read_it",
        "BLOCKING_HEAD": DEADLOCK,
        "DOUBLE_RELEASE": "no_task_runs_twice",
    },
}
MEMORY_MIB = 1024
DEPTH = 100_000
SEARCH_CPU_S = 50  # a machine that does other things as well gets more time by the clock
WALL_S = 500


def limit_cpu():
    resource.setrlimit(resource.RLIMIT_CPU, (SEARCH_CPU_S, SEARCH_CPU_S))


def run(command, folder):
    return subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=WALL_S,
                          stdin=subprocess.DEVNULL, check=False, preexec_fn=limit_cpu)


def search(model, macro, compiler):
    """What the search found (None: nothing wrong), how many states it saw, and its output."""
    with tempfile.TemporaryDirectory(prefix="megartp_models_") as folder:
        made = run(["spin"] + ([f"-D{macro}"] if macro else []) + ["-a", model], folder)
        if made.returncode != 0 or not os.path.exists(os.path.join(folder, "pan.c")):
            raise RuntimeError(f"spin refused {model}:\n{made.stdout}")
        # SAFETY: no search for cycles. COLLAPSE: states take less memory. A twin's first fault is enough, and is found in less time
        # than an optimised search takes to compile.
        built = run([compiler, "-O0" if macro else "-O1", "-w", "-DSAFETY", "-DCOLLAPSE", f"-DMEMLIM={MEMORY_MIB}", "-o", "pan", "pan.c"], folder)
        if built.returncode != 0:
            raise RuntimeError(f"the search of {model} does not compile:\n{built.stdout}")
        output = run([os.path.join(folder, "pan"), f"-m{DEPTH}", "-w22", "-c1"], folder).stdout
    states = re.search(r"(\d[\d.e+]*) states, stored", output)
    errors = re.search(r"errors: (\d+)", output)
    if not errors or not states:
        raise RuntimeError(f"the search of {model} did not end:\n{output}")
    found = None
    if int(errors[1]) != 0:
        violated = re.search(r"pan:\d+: (?:assertion violated ([\w]+)|(.*?) \(at depth)", output)
        found = (violated[1] or violated[2]) if violated else "?"
    elif re.search(r"max search depth too small|out of memory|memory exceeded|reached -DMEMLIM", output):
        raise RuntimeError(f"the search of {model} met a bound, so it proves nothing:\n{output}")
    return found, int(float(states[1])), output


def check(path, name, compiler):
    problems = []
    for macro, wanted in [(None, None), *TWINS[name].items()]:
        title = f"{name} -D{macro}" if macro else name
        begin = time.monotonic()
        found, states, output = search(path, macro, compiler)
        verdict = "ok" if found == wanted else "WRONG"
        print(f"{verdict:5} {title:32} {states:>9} states  {time.monotonic() - begin:5.1f} s  {found or 'no violation'}",
              flush=True)
        if found != wanted:
            problems.append(f"{title}: expected {wanted or 'no violation'}, found {found or 'no violation'}\n{output}")
    return problems


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", choices=sorted(TWINS))
    parser.add_argument("folder")
    arguments = parser.parse_args()
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if shutil.which("spin") is None or compiler is None:
        print("spin or a C compiler is missing")
        return 1
    folder = os.path.abspath(arguments.folder)
    present = sorted(f[:-4] for f in os.listdir(folder) if f.endswith(".pml"))
    if present != sorted(TWINS):
        print(f"models {present} are there, {sorted(TWINS)} are checked")
        return 1
    problems = []
    for name in [arguments.model] if arguments.model else present:
        # A twin that the file does not mention would be the model itself.
        with open(os.path.join(folder, name + ".pml"), encoding="utf-8") as file:
            text = file.read()
        problems += [f"{name}: no {macro} in the model" for macro in TWINS[name] if not re.search(rf"#if\w* {macro}\b", text)]
        problems += check(os.path.join(folder, name + ".pml"), name, compiler)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
