#!/usr/bin/env python3
"""The full-size layer through the command-line tool: 68 MB of weights, M = 16, KV = 8192.

usage: full_size.py MEGARTP CACHE_FOLDER

The default batch must agree with the reference to 1e-6 on every output, whole run against whole run. Another seed and a shorter
batch, where FP8 codes flip upstream, must pass the tool's own verdict. Exit status 1 and the reason when something is off.
"""

import json
import os
import subprocess
import sys


def run(tool, cache, *arguments):
    done = subprocess.run([tool, "run", "glm52-attention-pre", "--check", "--json", *arguments], capture_output=True, text=True,
                          env={**os.environ, "MEGARTP_CACHE_DIR": cache}, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(arguments)}: exit status {done.returncode}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout)["result"]


def main():
    tool, cache = sys.argv[1:]
    default = run(tool, cache)
    plan = default["plan"]
    if (plan["tasks"], plan["events"]) != (732, 70):
        sys.exit(f"{plan['tasks']} tasks and {plan['events']} events, expected 732 and 70")
    outputs = {t["tensor"]: t["calc_diff"] for t in default["check"]["tensors"] if t["is_output"]}
    if set(outputs) != {"residual_out", "q_out", "logits", "index_k_cache", "mla_kv_cache"}:
        sys.exit(f"outputs are {sorted(outputs)}")
    for name, diff in outputs.items():
        if diff is None or diff > 1e-6:
            sys.exit(f"{name}: calc_diff {diff}")
    run(tool, cache, "--m", "16", "--kv", "64", "--seed", "9", "--finalizer", "tasks")
    print("full size: outputs", outputs)


if __name__ == "__main__":
    main()
