#include "ops/common/fp8_gemm_stage.h"

#include <fmt/format.h>

#include "base/math.h"
#include "ops/common/gemm_cpu.h"

namespace megartp::ops {
namespace {

// The segment that holds column n, and its first column.
struct SegmentAt {
  uint32_t idx = 0;
  int64_t first = 0;
};
SegmentAt segment_at(const Fp8GemmSpec& spec, int64_t n) {
  return n < spec.segment_rows[0] ? SegmentAt{0, 0} : SegmentAt{1, spec.segment_rows[0]};
}

uint32_t word(int64_t value) { return static_cast<uint32_t>(value); }

}  // namespace

Fp8GemmPayload decode_fp8_gemm_payload(const uint32_t* w) { return {w[0], w[1], w[2], w[3], w[4], w[5]}; }

void add_fp8_gemm_regions(const Fp8GemmTensors& tensors, const Fp8GemmSpec& spec, const Fp8GemmPayload& p,
                          std::vector<Access>& reads, std::vector<Access>& writes) {
  const Range k = split_range(spec.k, spec.splits, p.split);
  const std::pair<int64_t, int64_t> m{p.m_begin, int64_t{p.m_begin} + p.m_count};
  const std::pair<int64_t, int64_t> n{p.n_begin, int64_t{p.n_begin} + p.n_count};
  reads.push_back({tensors.a, Box::of({m, {k.begin, k.end}})});
  reads.push_back({tensors.a_scale, Box::of({m, {k.begin / kBlockK, ceil_div(k.end, kBlockK)}})});
  writes.push_back({tensors.partial, Box::of({{p.split, int64_t{p.split} + 1}, m, n})});
}

Fp8GemmTiles::Fp8GemmTiles(const Tensors& tensors, const Fp8GemmSpec& spec, int64_t m, int64_t block_n)
    : tensors_(tensors), spec_(spec), m_(m), num_m_tiles_(word(ceil_div(m, block_m(m)))) {
  int64_t first = 0;
  for (const uint32_t rows : spec.segment_rows) {
    for (int64_t n = 0; n < rows; n += block_n)
      n_tiles_.push_back({first + n, first + std::min<int64_t>(rows, n + block_n)});
    first += rows;
  }
}

Fp8GemmTiles::Coordinates Fp8GemmTiles::coordinates(uint32_t tile_idx) const {
  const uint32_t column = tile_idx / spec_.splits;
  return {column / num_n_tiles(), column % num_n_tiles(), tile_idx % spec_.splits};
}

void Fp8GemmTiles::tile(uint32_t tile_idx, TileDesc& out) const {
  const Coordinates at = coordinates(tile_idx);
  const Range m = m_range(at.m_tile);
  const Range n = n_range(at.n_tile);
  out.set_payload({word(m.begin), word(m.size()), word(n.begin), word(n.size()), at.split, word(m_)});
  if (!out.wants_regions && !out.wants_costs) return;
  const Range k = split_range(spec_.k, spec_.splits, at.split);
  const Range kb{k.begin / kBlockK, ceil_div(k.end, kBlockK)};
  out.weight_bytes = static_cast<uint64_t>(n.size() * k.size() + 4 * ceil_div(n.size(), kBlockN) * kb.size());
  out.other_bytes = static_cast<uint64_t>(m.size() * (k.size() + 4 * kb.size() + 4 * n.size()));
  out.flops = static_cast<uint64_t>(m.size() * n.size() * k.size());
  if (!out.wants_regions) return;
  add_fp8_gemm_regions(tensors_, spec_, decode_fp8_gemm_payload(out.payload.data()), out.reads, out.writes);
}

void run_fp8_gemm_tile(const Fp8GemmSpec& spec, const Fp8GemmPayload& p, const CpuTile& tile,
                       const Fp8GemmSlots& slots) {
  const SegmentAt segment = segment_at(spec, p.n_begin);
  const Fp8GemmSlots::Weight& weight = slots.segments[segment.idx];
  const Range k = split_range(spec.k, spec.splits, p.split);
  const int64_t k_blocks = ceil_div<int64_t>(spec.k, kBlockK);
  const int64_t n_total = total_n(spec);
  Fp8GemmArgs g;
  g.a = tile.operand<const e4m3>(slots.a) + int64_t{p.m_begin} * spec.k;
  g.lda = spec.k;
  g.a_scale = tile.operand<const float>(slots.a_scale) + int64_t{p.m_begin} * k_blocks;
  g.ld_a_scale = k_blocks;
  g.w = tile.operand<const e4m3>(weight.weight);
  g.ldw = spec.k;
  g.w_scale = tile.operand<const float>(weight.scale);
  g.ld_w_scale = k_blocks;
  g.m_count = p.m_count;
  g.n_begin = p.n_begin - segment.first;
  g.n_count = p.n_count;
  g.k_begin = k.begin;
  g.k_end = k.end;
  g.out = tile.operand<float>(slots.partial) + (int64_t{p.split} * p.m_total + p.m_begin) * n_total + p.n_begin;
  g.ld_out = n_total;
  fp8_gemm_tile(g, tile.scratch);
}

Status check_fp8_gemm(std::string_view kind, const Fp8GemmSpec& spec, const InstructionCheck& check,
                      const Fp8GemmSlots& slots) {
  const auto refuse = [&](std::string_view what) {
    return make_error(ErrorCode::kParse, fmt::format("{}: {}", kind, what));
  };
  constexpr int64_t kMaxDim = INT32_MAX;
  const int64_t k_blocks = ceil_div<int64_t>(spec.k, kBlockK);
  const int64_t n_total = int64_t{spec.segment_rows[0]} + spec.segment_rows[1];
  if (spec.k == 0 || spec.k > kMaxDim || spec.segment_rows[0] == 0 || n_total > kMaxDim)
    return refuse(fmt::format("spec has K={} N={}+{}", spec.k, spec.segment_rows[0], spec.segment_rows[1]));
  if (spec.splits == 0 || spec.splits > k_blocks)
    return refuse(fmt::format("spec has {} splits of {} K blocks", spec.splits, k_blocks));
  if (abi::num_payload(check.instruction) < kFp8GemmPayloadWords)
    return refuse("too few payload words for a GEMM tile");
  const Fp8GemmPayload p = decode_fp8_gemm_payload(check.instruction.payload);
  if (p.m_count == 0 || int64_t{p.m_begin} + p.m_count > p.m_total)
    return refuse(fmt::format("rows {}+{} of {}", p.m_begin, p.m_count, p.m_total));
  const SegmentAt segment = segment_at(spec, p.n_begin);
  if (p.n_count == 0 || int64_t{p.n_begin} + p.n_count > segment.first + spec.segment_rows[segment.idx])
    return refuse(fmt::format("columns {}+{} leave their weight (N={}+{})", p.n_begin, p.n_count, spec.segment_rows[0],
                              spec.segment_rows[1]));
  if (p.split >= spec.splits) return refuse(fmt::format("k-split {} of {}", p.split, spec.splits));
  if (!check.operand_is(slots.a, DType::kF8E4M3, {p.m_total, spec.k}) ||
      !check.operand_is(slots.a_scale, DType::kF32, {p.m_total, k_blocks}))
    return refuse("activation operands do not fit the spec");
  for (uint32_t s = 0; s < kMaxGemmSegments; ++s) {
    const int64_t rows = spec.segment_rows[s];
    if (rows != 0 && (!check.operand_is(slots.segments[s].weight, DType::kF8E4M3, {rows, spec.k}) ||
                      !check.operand_is(slots.segments[s].scale, DType::kF32, {ceil_div(rows, kBlockN), k_blocks})))
      return refuse(fmt::format("weight operands of segment {} do not fit the spec", s));
  }
  if (!check.operand_is(slots.partial, DType::kF32, {spec.splits, p.m_total, n_total}))
    return refuse("partial operand does not fit the spec");
  return {};
}

void sum_partials(const float* partial, int64_t split_stride, int64_t splits, int64_t count, float* out) {
  for (int64_t i = 0; i < count; ++i) out[i] = partial[i];
  for (int64_t s = 1; s < splits; ++s) {
    const float* addend = partial + s * split_stride;
    for (int64_t i = 0; i < count; ++i) out[i] += addend[i];
  }
}

std::string describe_fp8_gemm_payload(std::span<const uint32_t> payload) {
  if (payload.size() < kFp8GemmPayloadWords) return "?";
  const Fp8GemmPayload p = decode_fp8_gemm_payload(payload.data());
  return fmt::format("m {}..{}, n {}..{}, k-split {}", p.m_begin, p.m_begin + p.m_count, p.n_begin,
                     p.n_begin + p.n_count, p.split);
}

std::string describe_fp8_gemm_spec(const Fp8GemmSpec& spec) {
  const std::string n = spec.segment_rows[1] == 0 ? fmt::format("{}", spec.segment_rows[0])
                                                  : fmt::format("{}+{}", spec.segment_rows[0], spec.segment_rows[1]);
  return fmt::format("N={} K={} splits={}", n, spec.k, spec.splits);
}

}  // namespace megartp::ops
