#!/usr/bin/env python3
"""Prints a Markdown table of the critical paths of cmp and mega, size by size, from `megartp trace show FILES --json`.

usage: size_table.py SUMMARIES.json

Columns: the span; what the ops on the critical path take (computing, and waiting for weights); what lies between them (events, launches, other
tasks of the same SM or worker); and the three ops of which mega has most more on its path. All in microseconds.
Sizes without a trace of each backend are named on stderr, and the exit status is 1; 3 when the file cannot be used.
"""

import json
import sys

BACKENDS = ("cmp", "mega")


def by_op(trace):
    """Microseconds on the critical path of each op, the kernels of one op together."""
    times = {}
    for op in trace["ops"]:
        name = op["name"].split(".")[0]
        times[name] = times.get(name, 0) + op["critical_ns"] / 1e3
    return times


def row(size, traces):
    spans, inside, between = [], [], []
    for backend in BACKENDS:
        path = traces[backend]["critical_path"]
        spans.append(traces[backend]["span_ns"] / 1e3)
        inside.append((path["compute_ns"] + path["weights_ns"]) / 1e3)
        between.append((path["wait_ns"] + path["queue_ns"] + path["launch_ns"]) / 1e3)
    ops = [by_op(traces[backend]) for backend in BACKENDS]
    more = {op: ops[1].get(op, 0) - ops[0].get(op, 0) for op in ops[0].keys() | ops[1].keys()}
    most = sorted(more.items(), key=lambda item: (-item[1], item[0]))[:3]
    pairs = " | ".join(f"{a:.1f}, {b:.1f}" for a, b in (spans, inside, between))
    named = ", ".join(f"{op} {us:+.1f}" for op, us in most if us > 0.05)
    return f"| {size[0]} | {size[1]} | {pairs} | {named} |"


def main():
    if len(sys.argv) != 2:
        print(__doc__, file=sys.stderr)
        return 2
    path = sys.argv[1]
    rows, status, sizes = [], 0, {}
    try:
        with open(path, encoding="utf-8") as file:
            traces = json.load(file)["result"]["traces"]
        for trace in traces:
            of_size = sizes.setdefault((trace["shapes"]["M"], trace["shapes"]["KV"]), {})
            if trace["backend"] in of_size:
                raise ValueError(f"M = {trace['shapes']['M']}, KV = {trace['shapes']['KV']}: two traces of {trace['backend']}")
            of_size[trace["backend"]] = trace
        for size, both in sorted(sizes.items()):
            missing = [backend for backend in BACKENDS if backend not in both]
            if missing:
                print(f"{path}: M = {size[0]}, KV = {size[1]}: no trace of {missing[0]}", file=sys.stderr)
                status = 1
            else:
                rows.append(row(size, both))
    except KeyError as error:
        print(f"{path}: no {error} in a summary of traces", file=sys.stderr)
        return 3
    except (OSError, ValueError, TypeError) as error:
        print(f"{path}: {error}", file=sys.stderr)
        return 3
    if not rows:
        print(f"{path}: no size has a trace of each of {', '.join(BACKENDS)}", file=sys.stderr)
        return 3
    print("| M | KV | span: cmp, mega | ops | between ops | mega's path has more of |")
    print("|---|---|---|---|---|---|")
    print("\n".join(rows))
    return status


if __name__ == "__main__":
    sys.exit(main())
