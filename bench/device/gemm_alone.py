#!/usr/bin/env python3
"""Each FP8 GEMM of attention-pre alone, ours against torch._scaled_mm, on this machine's GPU.

    gemm_alone.py MEGARTP [--m 16] [--repeat 300] [--json]

Ours are the ops B0, D1 and D0 timed by `megartp bench --only`: with all that the op does behind its product (B0 norms, quantises and writes
the cache in a second kernel; D1 and D0 finish their rows in the GEMM), where torch makes a BF16 matrix. torch runs in a CUDA graph.
Both by one protocol: a delay kernel of 40 us, an event, one graph launch, an event; weights cold, because they rotate over copies that
together are larger than the L2 several times (or, ours, because other data is read before). Both contain what two event records cost.

torch's variants: scales of 1 x 128 and 128 x 128 (what the checkpoint has), of rows and columns, of whole tensors with and without fast
accumulation. One that this torch cannot do says so. Each one's values are compared with a product of the dequantised matrices.
Exit status: 1 a wrong product, 4 no torch or no GPU, 5 megartp failed.
"""

import argparse
import json
import subprocess
import sys

DELAY_CYCLES = 80000  # 40 us at 2 GHz
MAX_DIFFERENCE = 1e-3  # calc_diff; a wrong scale makes 1e-1, the tensor core's FP8 sums and BF16 1e-5
SHAPES = [("B0", 2624, 6144), ("D1", 4096, 2048), ("D0", 16384, 2048)]


def quantile(values, q):
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def ours(args, op):
    command = [args.megartp, "bench", "glm52-attention-pre", "--only", op, "--backends", "serial", "--m", str(args.m)]
    command += ["--kv", "8192", "--repeat", str(args.repeat), "--no-same", "--no-progress", "--json"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(5)
    report = json.loads(done.stdout)
    return report.get("result", report)["rows"][0]


class TorchGemm:
    """The graphs of one shape and one kind of scales."""

    def __init__(self, torch, m, n, k, kind):
        self.torch = torch
        properties = torch.cuda.get_device_properties(0)
        copies = max(8, -(-4 * properties.L2_cache_size // (n * k)))
        torch.manual_seed(1)

        def matrix(rows):
            return torch.randn(rows, k, device="cuda").to(torch.float8_e4m3fn)

        def scales(*dims):
            return torch.rand(*dims, device="cuda") * 0.02 + 0.01

        x = matrix(m)
        if kind == "blocks":
            # One scale of 1 x 128, those of a column of blocks together; one of 128 x 128.
            scale_x = scales(k // 128, m).t()
            scale_w = scales(-(-n // 128), k // 128).t()
            full_x = scale_x.repeat_interleave(128, 1)
            full_w = scale_w.t().repeat_interleave(128, 0)[:n].repeat_interleave(128, 1)
        elif kind == "rows":
            scale_x, scale_w = scales(m, 1), scales(1, n)
            full_x, full_w = scale_x, scale_w.t()
        else:
            scale_x, scale_w = scales(1), scales(1)
            full_x, full_w = scale_x, scale_w
        options = {"out_dtype": torch.bfloat16, "use_fast_accum": kind == "tensor, fast"}
        weights = [matrix(n) for _ in range(copies)]
        results = [torch._scaled_mm(x, w.t(), scale_x, scale_w, **options) for w in weights[:2]]
        torch.cuda.synchronize()
        for got, w in zip(results, weights):
            want = (x.double() * full_x.double()) @ (w.double() * full_w.double()).t()
            got = got.double()
            difference = 1 - 2 * (got * want).sum() / (got.square().sum() + want.square().sum())
            if not difference.item() <= MAX_DIFFERENCE:
                raise ArithmeticError(f"N={n} K={k} {kind}: calc_diff {difference.item():.1e}")
        self.keep = [x, weights, scale_x, scale_w]
        self.graphs = []
        for w in weights:
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                self.keep.append(torch._scaled_mm(x, w.t(), scale_x, scale_w, **options))
            self.graphs.append(graph)

    def time(self, count, warm_up=20):
        return time_submissions(self.torch, count + warm_up, lambda i: self.graphs[i % len(self.graphs)].replay())[warm_up:]


def time_submissions(torch, count, submit):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    samples = []
    for i in range(count):
        torch.cuda._sleep(DELAY_CYCLES)
        begin.record()
        submit(i)
        end.record()
        end.synchronize()
        samples.append(begin.elapsed_time(end) * 1e3)
    return samples


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("megartp")
    parser.add_argument("--m", type=int, default=16)
    parser.add_argument("--repeat", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    try:
        import torch
    except ImportError as error:
        print(f"gemm_alone: no torch: {error}", file=sys.stderr)
        sys.exit(4)
    if not torch.cuda.is_available():
        print("gemm_alone: torch finds no GPU", file=sys.stderr)
        sys.exit(4)

    rows = []
    wrong = []
    for op, n, k in SHAPES:
        row = ours(args, op)
        read_us = row.get("read_us", 0)

        def add(name, kernels, median, p5, p95, note="", n=n, k=k, read_us=read_us, op=op):
            rate = n * k / median / 1e3 if median else None
            share = read_us / median if median and read_us else None
            rows.append({"op": op, "n": n, "k": k, "what": name, "kernels": kernels, "median_us": median, "p5_us": p5, "p95_us": p95,
                         "weight_gb_per_s": rate, "share_of_read": share, "note": note})

        cold = row["cold_us"]
        add("megartp", row["kernels"], cold["median"], cold["p5"], cold["p95"])
        for kind in ("blocks", "rows", "tensor, fast", "tensor"):
            try:
                samples = TorchGemm(torch, args.m, n, k, kind).time(args.repeat)
                add("torch " + kind, None, quantile(samples, 0.5), quantile(samples, 0.05), quantile(samples, 0.95))
            except ArithmeticError as error:
                wrong.append(str(error))
                add("torch " + kind, None, None, None, None, str(error))
            except (RuntimeError, ValueError, NotImplementedError) as error:
                add("torch " + kind, None, None, None, None, str(error).strip().splitlines()[0][:90])
            torch.cuda.empty_cache()
    offset = quantile(time_submissions(torch, 100, lambda i: None), 0.5)

    if args.json:
        print(json.dumps({"m": args.m, "torch": torch.__version__, "device": torch.cuda.get_device_name(0), "repeat": args.repeat,
                          "torch_offset_us": offset, "rows": rows}, indent=1))
    else:
        print(f"M = {args.m}, cold, us; torch {torch.__version__} on {torch.cuda.get_device_name(0)}; n = {args.repeat}; two of torch's event "
              f"records alone {offset:.2f} us")
        print(f"{'op':<4}{'N x K':>14}  {'':<20}{'median':>8}{'p5':>8}{'p95':>8}{'GB/s of weights':>17}{'of read':>9}")
        for r in rows:
            head = f"{r['op']:<4}{str(r['n']) + ' x ' + str(r['k']):>14}  {r['what']:<20}"
            if r["median_us"] is None:
                print(head + "  n/a: " + r["note"])
                continue
            share = f"{r['share_of_read'] * 100:.0f}%" if r["share_of_read"] else "-"
            print(f"{head}{r['median_us']:8.2f}{r['p5_us']:8.2f}{r['p95_us']:8.2f}{r['weight_gb_per_s']:17.0f}{share:>9}")
    for sentence in wrong:
        print("gemm_alone: wrong product: " + sentence, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
