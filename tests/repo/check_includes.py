#!/usr/bin/env python3
"""Includes point one way.

    base <- abi <- graph <- ops <- lowering <- plan <- verify <- launch <- codegen <- backends <- trace, bench <- cli
    partition stands on lowering, beside plan; only cli includes it.
    io stands on base; models may use graph, ops, lowering, plan, backends and io.

Within a layer, no backend includes another backend (folders named *_common or common serve several), and no op family another
family. What is below cli and models names no op family at all: it goes through ops/op_family.h. Tests, fuzzers and benchmarks
beside the code may include anything.

usage: check_includes.py ROOT
"""

import re
import sys

from repo_files import read_text, repo_files, report

CHAIN = ["base", "abi", "graph", "ops", "lowering"]
BELOW_VERIFY = CHAIN + ["plan"]
BELOW_BACKENDS = BELOW_VERIFY + ["verify", "launch"]
BELOW_TOOLS = BELOW_BACKENDS + ["codegen", "backends"]
ALLOWED = {
    "base": [],
    "abi": ["base"],
    "graph": ["base", "abi"],
    "ops": ["base", "abi", "graph", "device"],
    "lowering": ["base", "abi", "graph", "ops"],
    "plan": CHAIN,
    # The prover decides which edges a launch plan may have.
    "launch": BELOW_VERIFY + ["verify"],
    "partition": CHAIN,
    # No backend runs a plan that is not proved: verify stands below them.
    "verify": BELOW_VERIFY,
    "backends": BELOW_BACKENDS + ["codegen"],
    "trace": BELOW_TOOLS,
    "io": ["base"],
    "models": BELOW_TOOLS + ["io"],
    "bench": BELOW_TOOLS + ["io", "models"],
    "cli": BELOW_TOOLS + ["io", "models", "partition", "trace", "bench"],
    # Device code knows plain data only.
    "device": ["base", "abi"],
    "codegen": BELOW_BACKENDS,
}
# A public header belongs to the layer that implements it.
PUBLIC = {"error": "base", "dtype": "base", "dim": "base", "op_graph": "graph"}
NAMES_FAMILIES = {"ops", "models", "bench", "cli"}

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]')
SOURCE = re.compile(r"\.(h|cc|cuh|cu)$")
EXEMPT = re.compile(r"_(test|bench|fuzz)\.cc$")


def layer_of_file(path):
    parts = path.split("/")
    if parts[0] == "src" and len(parts) >= 3:
        return parts[1]
    if parts[:2] == ["include", "megartp"]:
        return PUBLIC.get(re.sub(r"\.h$", "", parts[-1]))
    return None


def is_common(folder):
    return folder == "common" or folder.endswith("_common")


def subfolder(parts):
    """'ops/add/add.cc' -> 'add', 'ops/op_family.h' -> None."""
    return parts[1] if len(parts) > 2 else None


def check_one(path, include):
    """The sentence that says what is wrong with the include, or None."""
    layer = layer_of_file(path)
    if layer is None:
        return "belongs to no layer; give it one in tests/repo/check_includes.py"
    if layer not in ALLOWED:
        return f"layer '{layer}' is unknown; give it a place in tests/repo/check_includes.py"
    parts = include.split("/")
    if parts[0] == "megartp":
        target = PUBLIC.get(re.sub(r"\.h$", "", parts[-1]))
        if target is None:
            return f"public header '{include}' belongs to no layer; give it one in tests/repo/check_includes.py"
        if target == layer or target in ALLOWED[layer]:
            return None
        return f"{layer} must not include {target} ('{include}')"
    if len(parts) == 1:
        return f"'{include}': write the path from src/"
    target = parts[0]
    if target not in ALLOWED:
        return f"'{include}': neither a layer of src/ nor a public header"
    own = path.split("/")[1:]
    if path.startswith("include/"):
        return f"a public header must not include the private '{include}'"
    if target != layer:
        if target not in ALLOWED[layer]:
            return f"{layer} must not include {target} ('{include}')"
        folder = subfolder(parts)
        if target == "ops" and folder and not is_common(folder) and layer not in NAMES_FAMILIES:
            return f"{layer} must not know the op family '{folder}' ('{include}')"
        return None
    if layer in ("ops", "backends"):
        mine, other = subfolder(own), subfolder(parts)
        what = "op family" if layer == "ops" else "backend"
        if other and not is_common(other) and mine != other:
            who = f"{what} '{mine}'" if mine else f"{layer}/"
            return f"{who} must not include {what} '{other}' ('{include}')"
    return None


def main(root):
    problems, checked = [], 0
    for path in repo_files(root):
        if not SOURCE.search(path) or not path.startswith(("src/", "include/")):
            continue
        if EXEMPT.search(path):
            continue
        checked += 1
        for number, line in enumerate((read_text(root, path) or "").splitlines(), 1):
            found = INCLUDE.match(line)
            if not found or (found[1] == "<" and not found[2].startswith("megartp/")):
                continue
            problem = check_one(path, found[2])
            if problem:
                problems.append(f"{path}:{number}: {problem}")
    return report(problems, checked, "includes")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    sys.exit(main(sys.argv[1]))
