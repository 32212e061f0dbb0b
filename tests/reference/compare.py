#!/usr/bin/env python3
"""Compares the tensors of two safetensors files: calc_diff = 1 - 2<x,y> / (|x|^2 + |y|^2) per tensor.

  compare.py ACTUAL EXPECTED [--limit 1e-6] [--limit logits=5e-3] [--rename actual=expected]

Every tensor of EXPECTED must be in ACTUAL (ACTUAL may hold more). A last axis may be longer in ACTUAL: padding columns
are not compared. Infinities must stand in the same places; the finite values are measured. U8 tensors (caches) are
measured as the fraction of bytes that differ. Exit code 1 when a limit is exceeded or a tensor is missing.
"""

import argparse
import sys

import numpy as np

import tensor_file


def calc_diff(x, y):
    """0 for equal tensors, NaN where a NaN or an infinity stands in only one of them."""
    finite = np.isfinite(x)
    if not np.array_equal(np.where(finite, 0, x), np.where(np.isfinite(y), 0, y)):  # also false for any NaN
        return float("nan")
    x, y = x[finite], y[finite]
    norm = float(x @ x + y @ y)
    # |x - y|^2 / (|x|^2 + |y|^2) is the same number without the cancellation.
    return 0.0 if norm == 0 else float((x - y) @ (x - y)) / norm


def measure(actual, expected):
    """(measure, note) of one pair."""
    if (
        actual.ndim == expected.ndim
        and actual.shape[:-1] == expected.shape[:-1]
        and actual.shape[-1] > expected.shape[-1]
    ):
        actual = actual[..., : expected.shape[-1]]
    if actual.shape != expected.shape:
        return float("nan"), f"shape {actual.shape}, expected {expected.shape}"
    differing = int(np.count_nonzero(actual != expected))
    if expected.dtype == np.uint8:
        return differing / expected.size, f"{differing} of {expected.size} bytes differ"
    x, y = actual.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    return calc_diff(x, y), f"{differing} of {expected.size} values differ"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("actual")
    parser.add_argument("expected")
    parser.add_argument("--limit", action="append", default=[], help="NUMBER, or TENSOR=NUMBER; default 1e-6")
    parser.add_argument("--rename", action="append", default=[], help="ACTUAL=EXPECTED tensor name")
    parser.add_argument("--only-common", action="store_true", help="skip tensors that ACTUAL lacks")
    args = parser.parse_args()
    default_limit, limits = 1e-6, {}
    for item in args.limit:
        name, _, number = item.rpartition("=")
        if name:
            limits[name] = float(number)
        else:
            default_limit = float(number)
    actual, expected = tensor_file.load(args.actual), tensor_file.load(args.expected)
    for item in args.rename:
        old, _, new = item.partition("=")
        actual[new] = actual[old]
    failed = compared = 0
    for name, want in sorted(expected.items()):
        if name not in actual:
            if not args.only_common:
                failed += 1
                print(f"{name:24} MISSING")
            continue
        compared += 1
        limit = limits.get(name, default_limit)
        value, note = measure(actual[name], want)
        ok = value <= limit  # false for NaN
        failed += not ok
        print(f"{name:24} {value:10.3e}  limit {limit:.0e}  {'ok' if ok else 'FAILED'}  ({note})")
    if compared == 0:
        print("no tensor in common")
    return 1 if failed or compared == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
