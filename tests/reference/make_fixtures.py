#!/usr/bin/env python3
"""Makes the fixtures of the FP8 path: tests/golden/fp8_path/<case>_{config.json,weights,io,expect}.safetensors and
cases.json.

  make_fixtures.py --golden tests/golden --output tests/golden/fp8_path

The same versions of numpy and ml_dtypes give the same bytes. A case is made of seeded random values; expectations come
from attention_pre_reference.py. Sums in another order move values by an fp32 ulp or so; where such a step lands on the
other side of a rounding boundary of FP8, one element jumps by 6 % and everything after it moves. Seeds are taken in
order until a case has no value so near to a boundary, so that a comparison to 1e-6 judges the arithmetic and not the
order of a sum.
"""

import argparse
import itertools
import json
import os
from dataclasses import asdict, dataclass, field

import numpy as np

import tensor_file
from attention_pre_reference import (
    GROUP,
    PAGE_TOKENS,
    Config,
    Options,
    Rounding,
    Weights,
    attention_pre,
    dequantize,
    num_groups,
    quantize,
)
from compare import measure
from tensor_file import BF16, E4M3

NAN_BYTE = 0x7F  # E4M3
NOISE_RUNS = 4
NOISE_LIMIT = 2e-7  # a few BF16 roundings may flip, no FP8 rounding that matters


@dataclass
class Case:
    name: str
    layer: int
    new_tokens: list  # per request
    kv: list  # visible length of each request's last row
    config: dict
    options: Options = field(default_factory=Options)
    with_indexer: bool = True
    with_mla_cache: bool = False  # give a cache with old contents instead of none
    ragged_format: bool = True  # context_lens [M] and query_start_loc, or context_lens [requests, new]
    small: bool = (
        False  # inputs and projections so small that every norm's eps matters, and a row of zeros (amax floor)
    )


def glm_config(**dims):
    return {
        "model_type": "glm_moe_dsa",
        "num_hidden_layers": 8,
        "index_topk_freq": 4,
        "index_skip_topk_offset": 3,
        "rms_norm_eps": 1e-5,
        "rope_interleave": True,
        "indexer_rope_interleave": True,
        "rope_parameters": {"rope_type": "default", "rope_theta": 8e6},
    } | dims


CASES = [
    # Nothing is a multiple of anything: a K group half full, blocks of kv_b that straddle heads, a row on a page edge.
    Case(
        name="ragged",
        layer=6,
        new_tokens=[3, 2],
        kv=[131, 64],
        with_mla_cache=True,
        small=True,
        config=glm_config(
            hidden_size=640,
            q_lora_rank=192,
            kv_lora_rank=96,
            num_attention_heads=3,
            qk_nope_head_dim=48,
            qk_rope_head_dim=32,
            v_head_dim=40,
            index_n_heads=2,
            index_head_dim=64,
        ),
    ),
    # DeepSeek-V3.2: heads of 192 against weight blocks of 128, half-split rotation in the indexer, YaRN.
    Case(
        name="deepseek_v32",
        layer=1,
        new_tokens=[4],
        kv=[200],
        ragged_format=False,
        config={
            "model_type": "deepseek_v32",
            "num_hidden_layers": 4,
            "hidden_size": 384,
            "q_lora_rank": 256,
            "kv_lora_rank": 128,
            "num_attention_heads": 3,
            "qk_nope_head_dim": 128,
            "qk_rope_head_dim": 64,
            "v_head_dim": 128,
            "index_n_heads": 4,
            "index_head_dim": 128,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000,
            "rope_scaling": {
                "type": "yarn",
                "factor": 40,
                "original_max_position_embeddings": 4096,
                "beta_fast": 32,
                "beta_slow": 1,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
            },
        },
    ),
    # The options, more rows than one tile of 16, a first token, a request that crosses a page.
    Case(
        name="hadamard_pow2",
        layer=2,
        new_tokens=[9, 7, 1],
        kv=[70, 129, 1],
        options=Options(hadamard=True, act_pow2=True),
        config=glm_config(
            hidden_size=256,
            q_lora_rank=128,
            kv_lora_rank=160,
            num_attention_heads=2,
            qk_nope_head_dim=64,
            qk_rope_head_dim=64,
            v_head_dim=64,
            index_n_heads=3,
            index_head_dim=128,
        ),
    ),
    # A layer that takes another layer's top-k: no indexer tensors.
    Case(
        name="shared_layer",
        layer=3,
        new_tokens=[2, 1],
        kv=[65, 3],
        with_indexer=False,
        config=glm_config(
            hidden_size=320,
            q_lora_rank=160,
            kv_lora_rank=64,
            num_attention_heads=2,
            qk_nope_head_dim=40,
            qk_rope_head_dim=16,
            v_head_dim=24,
            index_n_heads=2,
            index_head_dim=64,
        ),
    ),
]


# --- weights ----------------------------------------------------------------------------------------------------------
def quantize_weight(w):
    """fp32 [N, K] -> E4M3 and one amax / 448 scale per 128 x 128 block."""
    n_blocks, k_blocks = (num_groups(n) for n in w.shape)
    q = np.empty(w.shape, dtype=E4M3)
    scales = np.empty((n_blocks, k_blocks), dtype=np.float32)
    for i, j in itertools.product(range(n_blocks), range(k_blocks)):
        block = (slice(i * GROUP, (i + 1) * GROUP), slice(j * GROUP, (j + 1) * GROUP))
        scales[i, j] = np.abs(w[block]).max() / np.float32(448)
        q[block] = np.clip(w[block] / scales[i, j], -448, 448).astype(E4M3)
    return q, scales


def random_matrix(rng, n, k):
    """Normal values whose size differs from block to block; a product with a normed row is of order one."""
    gain = np.exp2(rng.uniform(-1, 1, (num_groups(n), num_groups(k)))).repeat(GROUP, 0).repeat(GROUP, 1)[:n, :k]
    return (rng.standard_normal((n, k)) * gain / np.sqrt(k)).astype(np.float32)


def make_weights(rng, case, c):
    tensors = {}
    layer = f"model.layers.{case.layer}."

    def matrix(name, n, k, small_scale=1.0):
        base = f"{layer}self_attn.{name}.weight"
        scale = np.float32(small_scale if case.small else 1)
        tensors[base], tensors[base + "_scale_inv"] = quantize_weight(random_matrix(rng, n, k) * scale)

    def vector(name, n, mean):
        tensors[layer + name] = (mean + 0.2 * rng.standard_normal(n)).astype(BF16)

    hidden = case.config["hidden_size"]
    vector("input_layernorm.weight", hidden, 1)
    vector("self_attn.q_a_layernorm.weight", c.q_lora, 1)
    vector("self_attn.kv_a_layernorm.weight", c.kv_lora, 1)
    matrix("q_a_proj", c.q_lora, hidden, small_scale=4e-3)  # squared: about eps
    matrix("kv_a_proj_with_mqa", c.kv_lora + c.rope, hidden, small_scale=4e-3)
    matrix("q_b_proj", c.heads * (c.nope + c.rope), c.q_lora)
    matrix("kv_b_proj", c.heads * (c.nope + c.v), c.kv_lora)
    if case.with_indexer:
        vector("self_attn.indexer.k_norm.weight", c.index_dim, 1)
        vector("self_attn.indexer.k_norm.bias", c.index_dim, 0)
        matrix("indexer.wk", c.index_dim, hidden, small_scale=1e-3)
        matrix("indexer.wq_b", c.index_heads * c.index_dim, c.q_lora)
        gate = random_matrix(rng, c.index_heads, hidden)
        tensors[layer + "self_attn.indexer.weights_proj.weight"] = gate.astype(BF16)
    return tensors


# --- inputs -----------------------------------------------------------------------------------------------------------
def make_io(rng, case, c):
    hidden, rows = case.config["hidden_size"], sum(case.new_tokens)
    pages_of = [num_pages(kv) for kv in case.kv]
    num_all = sum(pages_of) + 1  # one page belongs to nobody
    pages = iter(rng.permutation(num_all).astype(np.int32))
    block_table = np.full((len(case.kv), max(pages_of) + 1), -1, dtype=np.int32)
    for request, count in enumerate(pages_of):
        block_table[request, :count] = list(itertools.islice(pages, count))
    lengths = np.concatenate([np.arange(kv - new + 1, kv + 1) for kv, new in zip(case.kv, case.new_tokens)]).astype(
        np.int32
    )
    size = (1 + 7 * (rng.random(hidden) < 0.02)) * np.ones((rows, 1))  # a few large channels
    if case.small:
        size *= 2e-3
        size[-1] = 0
    io = {
        "x": (rng.standard_normal((rows, hidden)) * size).astype(BF16),
        "residual": (2 * rng.standard_normal((rows, hidden)) * size).astype(BF16),
        "positions": lengths - 1,
        "block_table": block_table,
        "index_k_cache": index_k_cache(rng, case, c, block_table, num_all),
    }
    if case.ragged_format:
        io["context_lens"] = lengths
        io["query_start_loc"] = np.cumsum([0] + case.new_tokens).astype(np.int32)
    else:
        io["context_lens"] = lengths.reshape(len(case.kv), -1)
    if case.with_mla_cache:
        io["mla_kv_cache"] = rng.integers(0, 256, (num_all, PAGE_TOKENS * c.mla_record_bytes()), dtype=np.uint8)
    return io


def num_pages(kv):
    return -(-kv // PAGE_TOKENS)


def index_k_cache(rng, case, c, block_table, pages):
    """Keys for every visible position, NaN elsewhere. Those of new tokens are stale: the layer must replace them."""
    keys = np.full((pages, PAGE_TOKENS, c.index_dim), NAN_BYTE, dtype=np.uint8)
    scales = np.full((pages, PAGE_TOKENS), np.nan, dtype=np.float32)
    for request, kv in enumerate(case.kv):
        size = np.exp2(rng.uniform(-1, 1, (kv, 1)))
        q, s = quantize((rng.standard_normal((kv, c.index_dim)) * size).astype(BF16), case.options.index_k_pow2)
        at = (block_table[request, np.arange(kv) // PAGE_TOKENS], np.arange(kv) % PAGE_TOKENS)
        keys[at], scales[at] = q.view(np.uint8), s[:, 0]
    return np.concatenate([keys.reshape(pages, -1), scales.view(np.uint8).reshape(pages, -1)], axis=1)


# --- cases ------------------------------------------------------------------------------------------------------------
def order_sensitivity(config, weights, io, options, expect):
    """The largest measure over float outputs when values move by what another order of summation would."""

    def measured(outputs):  # the caches' contents as numbers: index_k is there, the MLA latent is not
        floats = {name: t for name, t in outputs.items() if t.dtype != np.uint8}
        return floats | {"mla_latent": dequantize(*quantize(outputs["kv_latent"], options.mla_pow2))}

    worst = 0.0
    for seed in range(NOISE_RUNS):
        moved = measured(attention_pre(config, weights, io, options, Rounding(noise_seed=seed)))
        worst = max([worst] + [measure(moved[name], t)[0] for name, t in measured(expect).items()])
    return worst


def make_case(case, case_idx):
    config = Config.from_json(json.dumps(case.config))
    for attempt in range(100):
        rng = np.random.default_rng([20260101, case_idx, attempt])
        tensors = make_weights(rng, case, config)
        io = make_io(rng, case, config)
        weights = Weights(tensors, case.layer)
        expect = attention_pre(config, weights, io, case.options)
        sensitivity = order_sensitivity(config, weights, io, case.options, expect)
        if sensitivity <= NOISE_LIMIT:
            print(f"{case.name}: attempt {attempt}, order sensitivity {sensitivity:.1e}")
            return tensors, io, expect
    raise SystemExit(f"{case.name}: no seed without a value on a rounding boundary")


def describe(name, directory, layer, options):
    files = {f"{kind}": f"{directory}{name}_{kind}.safetensors" for kind in ("weights", "io")}
    return (
        {"name": name, "layer": layer, "config": f"{directory}{name}_config.json"}
        | files
        | {"options": asdict(options)}
    )


def write_text(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=1)
        f.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--golden", required=True, help="folder with tiny_a_config.json, tiny_a_weights and tiny_a_io")
    parser.add_argument("--output", required=True, help="folder to write")
    args = parser.parse_args()
    os.makedirs(args.output, exist_ok=True)

    # Paths in cases.json are relative to it.
    tiny = describe("tiny_a", "../", 6, Options()) | {"expect": "tiny_a_fp8.safetensors"}
    cases = [tiny]
    with open(os.path.join(args.golden, "tiny_a_config.json"), encoding="utf-8") as f:
        config = Config.from_json(f.read())
    tensors, io = (
        tensor_file.load(os.path.join(args.golden, f"tiny_a_{kind}.safetensors")) for kind in ("weights", "io")
    )
    weights = Weights(tensors, tiny["layer"])
    expect = attention_pre(config, weights, io)
    print(f"tiny_a: order sensitivity {order_sensitivity(config, weights, io, Options(), expect):.1e}")
    tensor_file.save(os.path.join(args.output, tiny["expect"]), expect)

    for case_idx, case in enumerate(CASES):
        entry = describe(case.name, "", case.layer, case.options) | {"expect": f"{case.name}_expect.safetensors"}
        tensors, io, expect = make_case(case, case_idx)
        write_text(os.path.join(args.output, entry["config"]), case.config)
        for kind, content in (("weights", tensors), ("io", io), ("expect", expect)):
            tensor_file.save(os.path.join(args.output, entry[kind]), content)
        cases.append(entry)
    write_text(os.path.join(args.output, "cases.json"), cases)


if __name__ == "__main__":
    main()
