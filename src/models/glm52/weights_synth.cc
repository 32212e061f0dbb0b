// Synthetic checkpoints. Every element is a function of (seed, tensor name, index), so that the writer can ask for any
// piece, any number of threads can make it, and memory stays at one chunk.
//
// Quantising real weights to FP8 puts the largest value of every 128 x 128 block at +-448. Taking a maximum over drawn
// values would tie the elements of a block together; instead the block's ratio of maximum to standard deviation is
// drawn (a normal sample of 16,384 has one near 4), the maximum is planted at a drawn place, and the other codes are
// drawn below it.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/math.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "models/glm52/weights.h"

namespace megartp::glm52 {
namespace {

constexpr double kNormStd = 0.1;
constexpr double kBiasStd = 0.05;
constexpr double kBlockScaleLogStd = 0.25;  // block to block
constexpr uint64_t kGrain = 1 << 16;

// Standard normal quantile: Newton steps on the distribution function, once per table entry.
double normal_quantile(double p) {
  double x = 0;
  for (int i = 0; i < 60; ++i) {
    const double error = 0.5 * std::erfc(-x / std::sqrt(2.0)) - p;
    const double density = std::exp(-0.5 * x * x) * 0.3989422804014327;
    const double step = std::clamp(error / density, -0.5, 0.5);
    x -= step;
    if (std::fabs(step) < 1e-13) break;
  }
  return x;
}

// From 16 random bits to an e4m3 code, for blocks whose maximum lies at `ratio` standard deviations. A few ratios stand
// for all: each table takes 64 KiB, and a core's cache should hold them.
class CodeTables {
 public:
  static constexpr std::array<double, 4> kRatios{3.7, 3.9, 4.1, 4.4};

  CodeTables() {
    for (size_t i = 0; i < kSize / 2; ++i) {
      const double z = normal_quantile(0.5 + (static_cast<double>(i) + 0.5) / kSize);
      for (size_t r = 0; r < kRatios.size(); ++r) {
        const e4m3 code = to_e4m3(static_cast<float>(std::min(z / kRatios[r], 1.0) * 448.0));
        tables_[r][i] = code.bits;
        tables_[r][i + kSize / 2] = code.bits | 0x80U;
      }
    }
  }
  const uint8_t* table(uint64_t ratio_idx) const { return tables_[ratio_idx].data(); }

  static const CodeTables& get() {
    static const CodeTables tables;
    return tables;
  }

 private:
  static constexpr size_t kSize = 1 << 16;
  std::array<std::array<uint8_t, kSize>, kRatios.size()> tables_;
};

// What is drawn per block of one FP8 tensor; the codes and the scales are made from it independently.
struct BlockDraws {
  uint64_t blocks_per_row;
  Rng rng;

  BlockDraws(const std::string& name, uint64_t seed, int64_t columns)
      : blocks_per_row(static_cast<uint64_t>(ceil_div(columns, kScaleBlock))),
        rng(seed, Rng::stream_of(name + "/blocks")) {}

  uint64_t ratio_idx(uint64_t block) const { return rng.bits(4 * block) % CodeTables::kRatios.size(); }
  // Row within the block (of `rows`), column within the block (of `columns`) and sign of its largest code.
  uint64_t peak_row(uint64_t block, uint64_t rows) const { return rng.below(4 * block + 1, rows); }
  uint64_t peak_column(uint64_t block, uint64_t columns) const { return rng.below(4 * block + 2, columns); }
  uint8_t peak_code(uint64_t block) const { return (rng.bits(4 * block + 1) & 1U) != 0 ? 0xfe : 0x7e; }
  float scale(uint64_t block, int64_t columns) const {
    const double weight_std =
        std::exp(kBlockScaleLogStd * rng.normal(4 * block + 3)) / std::sqrt(static_cast<double>(columns));
    return static_cast<float>(weight_std * CodeTables::kRatios[ratio_idx(block)] / 448.0);
  }
};

// Codes of elements [begin, end) of an FP8 tensor [rows, columns], to out[0...].
void fill_codes(const WeightSpec& spec, uint64_t seed, uint64_t begin, uint64_t end, uint8_t* out) {
  const BlockDraws draws(spec.name, seed, spec.dims[1]);
  const Rng rng(seed, Rng::stream_of(spec.name));
  const auto rows = static_cast<uint64_t>(spec.dims[0]);
  const auto columns = static_cast<uint64_t>(spec.dims[1]);
  const uint64_t side = kScaleBlock;
  for (uint64_t i = begin; i < end;) {  // one row of one block a turn
    const uint64_t row = i / columns;
    const uint64_t column = i % columns;
    const uint64_t block_row = row / side;
    const uint64_t block_column = column / side;
    const uint64_t block = block_row * draws.blocks_per_row + block_column;
    const uint64_t stop = std::min(end, row * columns + std::min(columns, (block_column + 1) * side));
    const uint8_t* table = CodeTables::get().table(draws.ratio_idx(block));
    const uint64_t first = i;
    for (; i < stop && i % 4 != 0; ++i) out[i - begin] = table[rng.bits(i / 4) >> (16 * (i % 4)) & 0xffffU];
    for (; i + 4 <= stop; i += 4) {
      const uint64_t bits = rng.bits(i / 4);
      for (uint64_t k = 0; k < 4; ++k) out[i - begin + k] = table[bits >> (16 * k) & 0xffffU];
    }
    for (; i < stop; ++i) out[i - begin] = table[rng.bits(i / 4) >> (16 * (i % 4)) & 0xffffU];
    if (row % side != draws.peak_row(block, std::min(side, rows - block_row * side))) continue;
    const uint64_t peak_column =
        block_column * side + draws.peak_column(block, std::min(side, columns - block_column * side));
    const uint64_t peak = row * columns + peak_column;
    if (peak >= first && peak < stop) out[peak - begin] = draws.peak_code(block);
  }
}

void fill_bf16(const WeightSpec& spec, uint64_t seed, uint64_t begin, uint64_t end, bf16* out) {
  const Rng rng(seed, Rng::stream_of(spec.name));
  const double mean = spec.kind == WeightSpec::Kind::kNorm ? 1.0 : 0.0;
  const double std_dev = spec.kind == WeightSpec::Kind::kNorm ? kNormStd
                         : spec.kind == WeightSpec::Kind::kNormBias
                             ? kBiasStd
                             : 1.0 / std::sqrt(static_cast<double>(spec.dims.back()));
  for (uint64_t i = begin; i < end; ++i) out[i - begin] = to_bf16(mean + std_dev * rng.normal(i));
}

// `columns` of the weight that the scales belong to.
void fill_scales(const std::string& weight_name, int64_t columns, uint64_t seed, uint64_t begin, uint64_t end,
                 float* out) {
  const BlockDraws draws(weight_name, seed, columns);
  for (uint64_t i = begin; i < end; ++i) out[i - begin] = draws.scale(i, columns);
}

// One generator: bytes [offset, offset + out.size()) of a tensor, cut over the cores.
TensorToWrite generator(const WeightSpec& spec, const WeightSpec& weight, uint64_t seed) {
  const uint64_t size = size_in_bytes(spec.dtype);
  const auto fill = [spec, weight, seed, size](uint64_t offset, std::span<std::byte> out) -> Status {
    const uint64_t first = offset / size;  // chunks are whole numbers of elements
    parallel_for(out.size() / size, kGrain, [&](uint64_t begin, uint64_t end) {
      std::byte* to = out.data() + begin * size;
      if (spec.dtype == DType::kF8E4M3) {
        fill_codes(spec, seed, first + begin, first + end, reinterpret_cast<uint8_t*>(to));
      } else if (spec.dtype == DType::kBF16) {
        fill_bf16(spec, seed, first + begin, first + end, reinterpret_cast<bf16*>(to));
      } else {
        fill_scales(weight.name, weight.dims[1], seed, first + begin, first + end, reinterpret_cast<float*>(to));
      }
    });
    return {};
  };
  return {spec.name, spec.dtype, spec.dims, nullptr, fill};
}

}  // namespace

Status synth_weights(const Config& config, const std::vector<int64_t>& layers, uint64_t seed, const std::string& path,
                     const std::function<void(uint64_t, uint64_t)>& progress) {
  MEGARTP_TRY(check_config(config));
  if (layers.empty()) return make_error(ErrorCode::kInvalidArgument, "no layers to make weights for");
  std::vector<TensorToWrite> tensors;
  for (const int64_t layer : layers) {
    MEGARTP_TRY(check_layer(config, layer));
    const std::vector<WeightSpec> specs = layer_weights(config, layer);
    for (size_t i = 0; i < specs.size(); ++i)  // a scale stands right behind its weight
      tensors.push_back(generator(specs[i], specs[i == 0 ? 0 : i - 1], seed));
  }
  return write_safetensors(path, tensors, {{"format", "pt"}, {"megartp_seed", std::to_string(seed)}}, progress);
}

}  // namespace megartp::glm52
