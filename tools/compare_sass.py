#!/usr/bin/env python3
"""Holds the decoder of src/verify/sass to NVIDIA's disassembler, instruction by instruction.

Compiles the sources (by default tests/sass/corpus and tests/faults/cubin, each at two optimisation levels), disassembles the cubins with
nvdisasm and with `megartp verify cubin --listing`, and compares offset, guard, mnemonic, branch target, constant operand, address
registers, .CONSTANT, and whether the instruction touches global memory. With --wide also kernels of the algorithms library that comes
with the toolkit (minutes). Result: exit status 0 and the number of instructions, 1 on a difference, 77 without nvcc or nvdisasm.

usage: compare_sass.py --megartp PROGRAM [--wide] [FILE.cu | FILE.cubin | FOLDER ...]
"""

import argparse
import glob
import os
import re
import subprocess
import sys
import tempfile

from cuda_tools import need_tool

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
LEVELS = ["-O3", "-O1"]  # of ptxas
# Another release of the disassembler has another name for the same opcode.
ALIASES = {"RED": "REDG"}
INSTRUCTION = re.compile(r"^\s*/\*([0-9a-f]{4,})\*/\s+(.*?)\s*;?\s*(?:/\*.*)?$")
LABEL = re.compile(r"^\s*([.$\w@]+):\s*$")
GLOBAL = re.compile(r"^(LDG|LDGMC|LD|STG|ST|ATOMG|ATOM|REDG|LDGSTS|UBLKCP|UBLKRED|UBLKPF|UTMALDG|UTMASTG|UTMAREDG|UTMAPF|TEX|TLD|TLD4|TXD"
                    r"|SULD|SUST|SURED|SUATOM|FOOTPRINT)$")
HAS_TARGET = {"BRA", "BSSY", "CALL", "WARPSYNC"}


def run(command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


def disassemble(nvdisasm, cubin):
    """section -> {offset: text with labels replaced by offsets}."""
    sections, labels, waiting = {}, {}, []
    section = None
    for line in run([nvdisasm, "-c", cubin]).splitlines():
        found = re.match(r"^\s*\.section\s+([^,\s]+)", line)
        if found:
            section = found[1] if found[1].startswith(".text.") else None
            if section:
                sections[section], labels[section], waiting = {}, {}, []
            continue
        if section is None:
            continue
        found = LABEL.match(line)
        if found:
            waiting.append(found[1])
            continue
        found = INSTRUCTION.match(line)
        if found:
            offset = int(found[1], 16)
            for label in waiting:
                labels[section][label] = offset
            waiting = []
            sections[section][offset] = found[2].strip().lstrip("{").strip().rstrip(";} ").strip()
    return sections, labels


def expected_of(text, labels):
    """What nvdisasm says of one instruction, in the fields that we compare."""
    guard = "-"
    found = re.match(r"^(@!?U?P[T\d])\s+(.*)$", text)
    if found:
        guard, text = found[1].replace("UP", "P"), found[2]
    word, _, rest = text.partition(" ")
    name, *modifiers = word.split(".")
    name = ALIASES.get(name, name)
    target = None
    found = re.search(r"`\(([^)]+)\)", rest)
    if found and found[1] in labels:
        target = labels[found[1]]
    if name not in HAS_TARGET or name == "WARPSYNC" and "COLLECTIVE" not in modifiers or name == "CALL" and ("ABS" in modifiers or re.match(r"\s*U?R\d", rest)):
        target = None
    constant = "-"
    if name in ("LDC", "ULDC"):
        found = re.search(r"c\[(0x[0-9a-f]+)\]\[(?:U?R\w+\+?)?(-?0x[0-9a-f]+)?\]", rest)
        if found:
            constant = f"c[{found[1]}][{found[2] or '0x0'}]"
    address = None
    if name in ("LDG", "LD", "STG", "ST", "ATOMG", "ATOM", "REDG"):
        found = re.search(r"(?:desc\[(UR\d+)\])?\[(R\d+|RZ)?(?:\.64|\.U32)?\+?(UR\d+)?(?:\+?-?0x[0-9a-f]+)?\]", rest)
        if found:
            address = (found[1], found[2], found[3])
    global_access = bool(GLOBAL.match(name))
    if name in ("UBLKCP", "UBLKRED") and modifiers[:2] == ["S", "S"]:
        global_access = False
    if name == "CCTL":
        global_access = bool({"PF1", "PF2", "PML2", "DML2", "RML2"} & set(modifiers))
    if name == "UTMACCTL":
        global_access = "PF" in modifiers
    return {"guard": guard, "name": name, "target": target, "constant": constant, "address": address,
            "global": global_access, "nc": name in ("LDG", "LD") and "CONSTANT" in modifiers}


def address_of(text):
    found = re.search(r"(?:desc\[(UR\d+)\])?\[(R\d+|RZ)?(?:\.64)?\+?(UR\d+)?\]", text)
    return (found[1], found[2], found[3]) if found else None


def compare(megartp, nvdisasm, cubin, seen):
    """Number of instructions and list of differences."""
    sections, labels = disassemble(nvdisasm, cubin)
    count, problems, section = 0, [], None
    covered = {name: set() for name in sections}
    for line in run([megartp, "verify", "cubin", cubin, "--listing"]).splitlines():
        fields = line.split("\t")
        if fields[0] == "kernel":
            section = fields[1]
            continue
        offset, opcode, guard, name, access, nc, target, constant, text = fields
        offset = int(offset, 16)
        theirs = sections.get(section, {}).get(offset)
        if theirs is None:
            problems.append(f"{section} {offset:#x}: nvdisasm has no instruction")
            continue
        count += 1
        covered[section].add(offset)
        seen.add((name, opcode))
        want = expected_of(theirs, labels[section])
        have = {"guard": guard, "name": name, "target": None if target == "-" else int(target, 16), "constant": constant,
                "address": address_of(text) if want["address"] else None, "global": access != "-", "nc": nc == "nc"}
        if want["target"] is None and name in HAS_TARGET and "`" in theirs:
            have["target"] = None  # a label of another section
        for key, value in want.items():
            if have[key] != value:
                problems.append(f"{section} {offset:#x}: {key} is {have[key]}, nvdisasm has {value} in '{theirs}'")
    for name, offsets in sections.items():
        missing = set(offsets) - covered[name]
        if missing:
            problems.append(f"{name}: {len(missing)} instructions are missing, the first at {min(missing):#x}")
    return count, problems


def main(arguments):
    nvcc, nvdisasm = need_tool("nvcc"), need_tool("nvdisasm")
    inputs = arguments.inputs or [os.path.join(ROOT, "tests/sass/corpus"), os.path.join(ROOT, "tests/faults/cubin")]
    if arguments.wide:
        inputs.append(os.path.join(ROOT, "tests/sass/wide"))
    files = []
    for path in inputs:
        files += sorted(glob.glob(os.path.join(path, "*.cu"))) if os.path.isdir(path) else [path]
    total, kernels, seen, problems = 0, 0, set(), []
    with tempfile.TemporaryDirectory(prefix="megartp-sass-") as folder:
        for path in files:
            cubins = [path]
            if path.endswith(".cu"):
                cubins = []
                for level in LEVELS:
                    cubins.append(os.path.join(folder, os.path.basename(path)[:-3] + level + ".cubin"))
                    run([nvcc, "-cubin", "-arch=sm_90a", "-std=c++17", "-Xptxas", level, "-o", cubins[-1], path])
            for cubin in cubins:
                count, found = compare(arguments.megartp, nvdisasm, cubin, seen)
                total += count
                kernels += 1
                problems += [f"{os.path.basename(cubin)}: {p}" for p in found]
    for problem in problems[:50]:
        print(problem)
    print(f"{total} instructions of {kernels} cubins compared, {len({n for n, _ in seen})} mnemonics, {len(seen)} opcodes, "
          f"{len(problems)} differences")
    return 1 if problems or total == 0 else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megartp", required=True, help="the command-line tool")
    parser.add_argument("--wide", action="store_true", help="also kernels of the toolkit's algorithms library")
    parser.add_argument("inputs", nargs="*")
    sys.exit(main(parser.parse_args()))
