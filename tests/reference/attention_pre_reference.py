#!/usr/bin/env python3
"""Attention-pre of one layer, FP8 path, in numpy: a second reading of the specification, independent of the C++ code.

Everything is float64; values are rounded exactly where the specification rounds (BF16, FP8, and the few fp32 steps that
decide which way an FP8 value goes). Called by make_fixtures.py, and from the shell:

  attention_pre_reference.py --config C.json --weights W.safetensors --io IO.safetensors --output OUT.safetensors

Step names (A0, B0, ...) are those of the attention-pre graph. Requests are ragged: row m belongs to request
row_request[m].
"""

import argparse
import json
import math
import re
from dataclasses import dataclass

import numpy as np

import tensor_file
from tensor_file import BF16, E4M3

GROUP = 128  # elements that share one activation scale, and edge of a weight block
PAGE_TOKENS = 64
INDEXER_NORM_EPS = 1e-6  # hard-coded in every implementation, unlike rms_norm_eps
E4M3_MAX = 448.0
AMAX_FLOOR = 1e-4


# --- configuration ----------------------------------------------------------------------------------------------------
@dataclass
class Config:
    """The fields of a Hugging Face config.json that attention-pre needs."""

    heads: int
    q_lora: int
    kv_lora: int
    nope: int
    rope: int
    v: int
    index_heads: int
    index_dim: int
    eps: float
    theta: float
    interleave: bool
    indexer_interleave: bool
    yarn: dict | None  # factor, original_max_position_embeddings, beta_fast, beta_slow, mscale, mscale_all_dim

    @staticmethod
    def from_json(text):
        c = json.loads(text)
        is_deepseek = c.get("model_type") == "deepseek_v32"
        rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
        is_yarn = rope.get("rope_type", rope.get("type", "default")) == "yarn"
        return Config(
            heads=c["num_attention_heads"],
            q_lora=c["q_lora_rank"],
            kv_lora=c["kv_lora_rank"],
            nope=c["qk_nope_head_dim"],
            rope=c["qk_rope_head_dim"],
            v=c["v_head_dim"],
            index_heads=c["index_n_heads"],
            index_dim=c["index_head_dim"],
            eps=c["rms_norm_eps"],
            theta=float(rope.get("rope_theta", c.get("rope_theta"))),
            interleave=c.get("rope_interleave", True),
            indexer_interleave=c.get("indexer_rope_interleave", not is_deepseek),
            yarn=rope if is_yarn else None,
        )

    def mla_record_bytes(self):
        return self.kv_lora + 4 * num_groups(self.kv_lora) + 2 * self.rope


@dataclass
class Options:
    """What the specification leaves open; the defaults are its picks."""

    hadamard: bool = False  # rotate indexer q and k by H / sqrt(D) before they are quantised
    act_pow2: bool = False  # power-of-two scales of the two quantised activations (after A0 and after the q norm)
    index_q_pow2: bool = True
    index_k_pow2: bool = False
    mla_pow2: bool = True


# --- numbers ----------------------------------------------------------------------------------------------------------
class Rounding:
    """Rounding to BF16; with a seed, each value first moves by a few fp32 ulps of its row's size.

    make_fixtures.py uses the seed to find inputs whose outcome does not hang on how sums are ordered.
    """

    def __init__(self, noise_seed=None, relative_noise=2e-7):
        self._rng = None if noise_seed is None else np.random.default_rng(noise_seed)
        self._relative_noise = relative_noise

    def bf16(self, x):
        """Nearest BF16, ties to even, straight from float64 (by way of fp32 it would round twice)."""
        x = np.asarray(x, dtype=np.float64)
        if self._rng is not None:
            size = np.sqrt(np.mean(x * x, axis=-1, keepdims=True))
            x = x + self._relative_noise * size * self._rng.standard_normal(x.shape)
        bits = x.view(np.uint64)
        dropped = np.uint64(52 - 7)
        odd = (bits >> dropped) & np.uint64(1)
        half = np.uint64(1) << (dropped - np.uint64(1))
        rounded = ((bits + half - np.uint64(1) + odd) >> dropped << dropped).view(np.float64)
        subnormal = np.abs(x) < 2.0**-126
        return np.where(subnormal, x.astype(np.float32).astype(BF16).astype(np.float64), rounded)


def num_groups(n):
    return -(-n // GROUP)


def pow2_ceil(scale):
    """The smallest power of two >= scale (fp32, positive), by its bits."""
    bits = scale.astype(np.float32).view(np.uint32)
    bump = (bits & np.uint32(0x7FFFFF)) != 0
    return ((bits >> np.uint32(23)) + bump.astype(np.uint32) << np.uint32(23)).view(np.float32)


def to_e4m3(x):
    """Nearest E4M3 of fp32 values, ties to even, saturating."""
    return np.clip(x.astype(np.float32), -E4M3_MAX, E4M3_MAX).astype(E4M3)


def quantize(x, pow2):
    """FP8 in groups of 128 along the last axis (the last group may be shorter): (E4M3 values, fp32 scales).

    x holds BF16 values; scale and quotient are fp32, as kernels compute them.
    """
    x = np.asarray(x).astype(np.float32)
    q = np.empty(x.shape, dtype=E4M3)
    scales = np.empty(x.shape[:-1] + (num_groups(x.shape[-1]),), dtype=np.float32)
    for g in range(scales.shape[-1]):
        part = x[..., g * GROUP : (g + 1) * GROUP]
        amax = np.maximum(np.abs(part).max(axis=-1), np.float32(AMAX_FLOOR))
        scale = amax / np.float32(E4M3_MAX)
        if pow2:
            scale = pow2_ceil(scale)
        scales[..., g] = scale
        q[..., g * GROUP : (g + 1) * GROUP] = to_e4m3(part / scale[..., None])
    return q, scales


def dequantize(q, scales):
    """Inverse of quantize, exact in float64."""
    return q.astype(np.float64) * np.repeat(scales.astype(np.float64), GROUP, axis=-1)[..., : q.shape[-1]]


def dequantize_weight(w, scales):
    """E4M3 [N, K] with one fp32 scale per 128 x 128 block, exact in float64."""
    blocks = scales.astype(np.float64).repeat(GROUP, axis=0).repeat(GROUP, axis=1)
    return w.astype(np.float64) * blocks[: w.shape[0], : w.shape[1]]


def rms_norm(x, weight, eps):
    return weight.astype(np.float64) * x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps)


def layer_norm(x, weight, bias, eps):
    centred = x - x.mean(axis=-1, keepdims=True)
    variance = np.mean(centred * centred, axis=-1, keepdims=True)
    return centred / np.sqrt(variance + eps) * weight.astype(np.float64) + bias.astype(np.float64)


def hadamard(n):
    """The orthogonal Hadamard matrix in Sylvester's order."""
    if n & (n - 1):
        raise ValueError(f"hadamard: {n} is not a power of two")
    h = np.ones((1, 1))
    while h.shape[0] < n:
        h = np.block([[h, h], [h, -h]])
    return h / math.sqrt(n)


# --- rotary embedding -------------------------------------------------------------------------------------------------
def rope_frequencies(config):
    """theta_i of the rope / 2 pairs, and the factor on cos and sin (1 without YaRN)."""
    pairs = config.rope // 2
    theta = config.theta ** (-2.0 * np.arange(pairs) / config.rope)
    if config.yarn is None:
        return theta, 1.0
    y = config.yarn
    factor = y["factor"]

    def dim_of(rotations):  # the (fractional) pair that turns so often over the original context
        length = y["original_max_position_embeddings"]
        return config.rope * math.log(length / (rotations * 2 * math.pi)) / (2 * math.log(config.theta))

    low = max(math.floor(dim_of(y.get("beta_fast", 32))), 0)
    high = min(math.ceil(dim_of(y.get("beta_slow", 1))), config.rope - 1)
    ramp = np.clip((np.arange(pairs) - low) / (high - low if high != low else 0.001), 0, 1)
    theta = theta / factor * ramp + theta * (1 - ramp)

    def mscale(m):
        return 1.0 if factor <= 1 else 0.1 * m * math.log(factor) + 1.0

    return theta, mscale(y.get("mscale", 1)) / mscale(y.get("mscale_all_dim", 1))


def cos_sin(config, positions):
    """fp32 cos and sin [M, rope / 2]; the angle is an fp32 product of fp32 factors, as serving systems have it."""
    theta, factor = rope_frequencies(config)
    phi = (positions.astype(np.float32)[:, None] * theta.astype(np.float32)[None, :]).astype(np.float64)
    return [(f(phi) * factor).astype(np.float32).astype(np.float64) for f in (np.cos, np.sin)]


def rotate(x, cos, sin, interleave):
    """RoPE over the whole last axis of x [M, ..., rope], in place order; cos, sin [M, rope / 2]."""
    shape = (x.shape[0],) + (1,) * (x.ndim - 2) + (cos.shape[1],)
    cos, sin = cos.reshape(shape), sin.reshape(shape)
    half = x.shape[-1] // 2
    even, odd = (slice(0, None, 2), slice(1, None, 2)) if interleave else (slice(0, half), slice(half, None))
    y = np.empty_like(x)
    y[..., even] = x[..., even] * cos - x[..., odd] * sin
    y[..., odd] = x[..., even] * sin + x[..., odd] * cos
    return y


# --- caches -----------------------------------------------------------------------------------------------------------
def index_k_views(cache, dim):
    """E4M3 keys [pages * 64, D] and fp32 scales [pages * 64] of the index-K cache U8 [pages, 64 * (D + 4)] (copies).

    A page is 64 keys, then 64 scales.
    """
    keys = cache[:, : PAGE_TOKENS * dim].reshape(-1, dim).view(E4M3)
    scales = np.ascontiguousarray(cache[:, PAGE_TOKENS * dim :]).view(np.float32).reshape(-1)
    return keys, scales


def write_index_k(cache, slots, keys, scales):
    dim = keys.shape[-1]
    for slot, key, scale in zip(slots, keys, scales):
        page, offset = divmod(int(slot), PAGE_TOKENS)
        cache[page, offset * dim : (offset + 1) * dim] = key.view(np.uint8)
        at = PAGE_TOKENS * dim + 4 * offset
        cache[page, at : at + 4] = np.frombuffer(np.float32(scale).tobytes(), np.uint8)


def write_mla(cache, slots, q, scales, k_pe):
    """One record a token: E4M3 latent, its fp32 group scales, BF16 k_pe."""
    for slot, *parts in zip(slots, q, scales, k_pe.astype(BF16)):
        record = np.frombuffer(b"".join(part.tobytes() for part in parts), np.uint8)
        page, offset = divmod(int(slot), PAGE_TOKENS)
        cache[page, offset * record.size : (offset + 1) * record.size] = record


# --- the layer --------------------------------------------------------------------------------------------------------
class Weights:
    """One layer's tensors by the short names of the checkpoint."""

    def __init__(self, tensors, layer):
        prefix = f"model.layers.{layer}."
        self._tensors = {name[len(prefix) :]: t for name, t in tensors.items() if name.startswith(prefix)}

    def has_indexer(self):
        return "self_attn.indexer.wk.weight" in self._tensors

    def vector(self, name):
        return self._tensors[name]

    def matrix(self, name):
        """The FP8 matrix, dequantised, in float64."""
        base = f"self_attn.{name}.weight"
        return dequantize_weight(self._tensors[base], self._tensors[base + "_scale_inv"])


def row_requests(io):
    """The request of each row, and each row's visible length."""
    lengths = io["context_lens"]
    if lengths.ndim == 2:
        return np.repeat(np.arange(lengths.shape[0]), lengths.shape[1]), lengths.reshape(-1)
    starts = io["query_start_loc"]
    return np.repeat(np.arange(len(starts) - 1), np.diff(starts)), lengths


def indexer_score(q, weights, keys, key_scales, io, request, lengths):
    """E1: logits [M, longest row], -inf beyond a row's own length."""
    logits = np.full((len(lengths), lengths.max()), -np.inf)
    for m, length in enumerate(lengths):
        s = np.arange(length)
        slots = io["block_table"][request[m], s // PAGE_TOKENS] * PAGE_TOKENS + s % PAGE_TOKENS
        dots = q[m].astype(np.float64) @ keys[slots].astype(np.float64).T
        logits[m, :length] = key_scales[slots].astype(np.float64) * (
            weights[m].astype(np.float64) @ np.maximum(dots, 0)
        )
    return logits


def attention_pre(config, weights, io, options=Options(), rounding=Rounding()):
    """All outputs of the layer, by name. `io` holds the inputs; caches are copied, not changed."""
    bf16 = rounding.bf16
    request, lengths = row_requests(io)
    positions = io["positions"]
    slots = io["block_table"][request, positions // PAGE_TOKENS] * PAGE_TOKENS + positions % PAGE_TOKENS
    cos, sin = cos_sin(config, positions)
    rows, rope = len(positions), config.rope
    out = {}

    # A0: add, norm, quantise.
    residual = Rounding().bf16(io["x"].astype(np.float64) + io["residual"].astype(np.float64))  # exact before it rounds
    y = bf16(rms_norm(residual, weights.vector("input_layernorm.weight"), config.eps))
    a = dequantize(*quantize(y, options.act_pow2))
    out["residual"] = residual.astype(BF16)

    # B0: QKV-A, q norm and quantisation, kv norm, k_pe, cache record.
    z_q = bf16(a @ weights.matrix("q_a_proj").T)
    z_kv = bf16(a @ weights.matrix("kv_a_proj_with_mqa").T)
    q_resid = bf16(rms_norm(z_q, weights.vector("self_attn.q_a_layernorm.weight"), config.eps))
    aq = dequantize(*quantize(q_resid, options.act_pow2))
    kv_norm = weights.vector("self_attn.kv_a_layernorm.weight")
    kv_latent = bf16(rms_norm(z_kv[:, : config.kv_lora], kv_norm, config.eps))
    k_pe = bf16(rotate(z_kv[:, config.kv_lora :], cos, sin, config.interleave))
    pages = io["index_k_cache"].shape[0]
    mla = io.get("mla_kv_cache", np.zeros((pages, PAGE_TOKENS * config.mla_record_bytes()), np.uint8)).copy()
    write_mla(mla, slots, *quantize(kv_latent, options.mla_pow2), k_pe)
    out |= {"kv_latent": kv_latent.astype(BF16), "k_pe": k_pe.astype(BF16), "mla_kv_cache": mla}

    # D0 and D2: main q, its rotary part, the absorbed part. W_UK is the first `nope` rows of each head of kv_b_proj.
    q_main = bf16(aq @ weights.matrix("q_b_proj").T).reshape(rows, config.heads, config.nope + rope)
    q_pe = bf16(rotate(q_main[..., config.nope :], cos, sin, config.interleave))
    w_uk = Rounding().bf16(weights.matrix("kv_b_proj")).reshape(config.heads, config.nope + config.v, config.kv_lora)
    q_lat = bf16(np.einsum("mhd,hdl->mhl", q_main[..., : config.nope], w_uk[:, : config.nope]))
    out["q_out"] = np.concatenate([q_lat, q_pe], axis=-1).astype(BF16)
    if not weights.has_indexer():
        return out

    # C0: head gate, not rounded to BF16.
    gate = (y @ weights.vector("self_attn.indexer.weights_proj.weight").astype(np.float64).T).astype(np.float32)

    def rotate_front(v):  # indexer heads are rotary part first
        return np.concatenate([rotate(v[..., :rope], cos, sin, config.indexer_interleave), v[..., rope:]], axis=-1)

    def round_indexer(
        v,
    ):  # the one rounding before quantisation; the Hadamard rotation, where there is one, comes before it
        return bf16(v @ hadamard(config.index_dim)) if options.hadamard else bf16(v)

    # B1: indexer key into the cache. LayerNorm and RoPE share one rounding.
    kk = bf16(a @ weights.matrix("indexer.wk").T)
    norm_weight, norm_bias = (weights.vector(f"self_attn.indexer.k_norm.{part}") for part in ("weight", "bias"))
    k8, k_scale = quantize(
        round_indexer(rotate_front(layer_norm(kk, norm_weight, norm_bias, INDEXER_NORM_EPS))), options.index_k_pow2
    )
    index_cache = io["index_k_cache"].copy()
    write_index_k(index_cache, slots, k8, k_scale[:, 0])

    # D1: indexer query, gate folded into its scale.
    qi = bf16(aq @ weights.matrix("indexer.wq_b").T).reshape(rows, config.index_heads, config.index_dim)
    q8, q_scale = quantize(round_indexer(rotate_front(qi)), options.index_q_pow2)
    score_scale = 1 / math.sqrt(config.index_dim * config.index_heads)
    w = (gate.astype(np.float64) * q_scale[..., 0] * score_scale).astype(np.float32)

    # E1: the score.
    keys, key_scales = index_k_views(index_cache, config.index_dim)
    logits = indexer_score(q8, w, keys, key_scales, io, request, lengths)
    return out | {
        "gate": gate,
        "index_k": dequantize(k8, k_scale).astype(np.float32),
        "index_q": dequantize(q8, q_scale).astype(np.float32),
        "index_k_cache": index_cache,
        "logits": logits.astype(np.float32),
    }


def only_layer(names):
    """The layer number in tensor names that all belong to one layer."""
    layers = {int(match.group(1)) for name in names if (match := re.match(r"model\.layers\.(\d+)\.", name))}
    if len(layers) != 1:
        raise SystemExit(f"the weights file holds layers {sorted(layers)}: choose one with --layer")
    return layers.pop()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--config", required=True, help="Hugging Face config.json")
    parser.add_argument("--weights", required=True, help="safetensors with Hugging Face tensor names")
    parser.add_argument("--io", required=True, help="safetensors with the inputs")
    parser.add_argument("--output", required=True, help="safetensors to write")
    parser.add_argument("--layer", type=int, help="default: the only one in the weights file")
    parser.add_argument("--hadamard", action="store_true", help="rotate indexer q and k by H/sqrt(D)")
    parser.add_argument("--pow2-act", action="store_true", help="power-of-two scales of quantised activations")
    args = parser.parse_args()
    with open(args.config, encoding="utf-8") as f:
        config = Config.from_json(f.read())
    tensors = tensor_file.load(args.weights)
    layer = only_layer(tensors) if args.layer is None else args.layer
    options = Options(hadamard=args.hadamard, act_pow2=args.pow2_act)
    tensor_file.save(args.output, attention_pre(config, Weights(tensors, layer), tensor_file.load(args.io), options))


if __name__ == "__main__":
    main()
