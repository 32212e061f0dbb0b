#include "conformance/fixture.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <limits>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "ops/common/paged_cache.h"
#include "ops/common/quant.h"
#include "support/op_harness.h"

namespace megartp::test {
namespace {

using glm52::Buffer;

Result<nlohmann::json> read_cases() {
  const std::string path = golden_path("fp8_path/cases.json");
  std::ifstream file(path);
  if (!file) return make_error(ErrorCode::kNotFound, fmt::format("no file '{}'", path));
  return nlohmann::json::parse(file);
}

glm52::Options options_from(const nlohmann::json& json) {
  glm52::Options options;
  options.hadamard = json.at("hadamard");
  options.act_pow2_scale = json.at("act_pow2");
  options.index_q_pow2_scale = json.at("index_q_pow2");
  options.index_k_pow2_scale = json.at("index_k_pow2");
  options.mla_pow2_scale = json.at("mla_pow2");
  return options;
}

size_t count_of(const std::vector<int64_t>& dims) {
  size_t n = 1;
  for (const int64_t d : dims) n *= static_cast<size_t>(d);
  return n;
}

// A BF16 matrix's columns [begin, end).
Outcome bf16_columns(const void* data, int64_t rows, int64_t row_elems, int64_t begin, int64_t end) {
  Outcome out{DType::kBF16, {rows, end - begin}, {}};
  const auto width = static_cast<size_t>(end - begin) * sizeof(bf16);
  out.bytes.resize(static_cast<size_t>(rows) * width);
  for (int64_t m = 0; m < rows; ++m)
    std::memcpy(out.bytes.data() + static_cast<size_t>(m) * width,
                static_cast<const bf16*>(data) + m * row_elems + begin, width);
  return out;
}

// FP8 groups of `group` values with one scale each, multiplied out.
Outcome dequantized(const e4m3* q, const float* scales, std::vector<int64_t> dims, int64_t group) {
  Outcome out{DType::kF32, std::move(dims), {}};
  const size_t n = count_of(out.dims);
  out.bytes.resize(n * sizeof(float));
  auto* values = reinterpret_cast<float*>(out.bytes.data());
  for (size_t i = 0; i < n; ++i) values[i] = to_float(q[i]) * scales[i / static_cast<size_t>(group)];
  return out;
}

Outcome copy_of(const Buffer& buffer) {
  return {buffer.dtype, buffer.dims, {buffer.bytes.get(), buffer.bytes.get() + buffer.num_bytes}};
}

// Where a new token's entry lies in a cache, and its value in numbers.
struct Entry {
  std::vector<std::pair<size_t, size_t>> byte_ranges;  // offset, length
  std::vector<double> values;
  std::vector<float> scales;
};

Entry index_k_entry(const std::byte* cache, int64_t slot, int64_t dim) {
  const auto page = static_cast<size_t>(slot / ops::kPageTokens * ops::index_page_bytes(dim));
  const auto offset = static_cast<size_t>(slot % ops::kPageTokens);
  const auto d = static_cast<size_t>(dim);
  const size_t key = page + offset * d;
  const size_t scale_at = page + static_cast<size_t>(ops::kPageTokens) * d + 4 * offset;
  float scale = 0;
  std::memcpy(&scale, cache + scale_at, sizeof scale);
  Entry entry{{{key, d}, {scale_at, sizeof scale}}, {}, {scale}};
  for (size_t i = 0; i < d; ++i)
    entry.values.push_back(double{to_float(e4m3{static_cast<uint8_t>(cache[key + i])})} * double{scale});
  return entry;
}

Entry mla_entry(const std::byte* cache, int64_t slot, int64_t kv_lora, int64_t rope) {
  const int64_t record_bytes = ops::mla_record_bytes(kv_lora, rope);
  const auto at = static_cast<size_t>(slot * record_bytes);
  const std::byte* record = cache + at;
  Entry entry{{{at, static_cast<size_t>(record_bytes)}}, {}, {}};
  for (int64_t i = 0; i < kv_lora; ++i) {
    float scale = 0;
    std::memcpy(&scale, record + kv_lora + 4 * (i / ops::kQuantGroup), sizeof scale);
    if (i % ops::kQuantGroup == 0) entry.scales.push_back(scale);
    entry.values.push_back(double{to_float(e4m3{static_cast<uint8_t>(record[i])})} * double{scale});
  }
  const std::byte* k_pe = record + kv_lora + 4 * ((kv_lora + ops::kQuantGroup - 1) / ops::kQuantGroup);
  for (int64_t i = 0; i < rope; ++i) {
    bf16 v;
    std::memcpy(&v, k_pe + 2 * i, sizeof v);
    entry.values.push_back(double{to_float(v)});
  }
  return entry;
}

// Zero values tell nothing of their scale, so scales are compared by themselves: equal but for one BF16 rounding of
// amax.
bool scales_agree(const std::vector<float>& x, const std::vector<float>& y) {
  return std::equal(x.begin(), x.end(), y.begin(), y.end(),
                    [](float a, float b) { return a > 0 && std::abs(a - b) <= std::abs(b) * 0x1p-7F; });
}

double cache_diff(const Fixture& fixture, std::string_view name, const Outcome& actual, const TensorView& expected) {
  const glm52::Config& c = fixture.config;
  const Buffer& slots = fixture.inputs.tensors.at("slot_mapping");
  const auto entry_at = [&](const std::vector<std::byte>& cache, int64_t slot) {
    return name == "index_k_cache" ? index_k_entry(cache.data(), slot, c.index_head_dim)
                                   : mla_entry(cache.data(), slot, c.kv_lora_rank, c.qk_rope_head_dim);
  };
  std::vector<std::byte> have = actual.bytes;
  std::vector<std::byte> want(expected.data, expected.data + expected.num_bytes);
  std::vector<double> have_values;
  std::vector<double> want_values;
  for (int64_t m = 0; m < slots.dims[0]; ++m) {
    const Entry x = entry_at(have, slots.as<int32_t>()[m]);
    const Entry y = entry_at(want, slots.as<int32_t>()[m]);
    if (!scales_agree(x.scales, y.scales)) return std::numeric_limits<double>::infinity();
    have_values.insert(have_values.end(), x.values.begin(), x.values.end());
    want_values.insert(want_values.end(), y.values.begin(), y.values.end());
    for (const auto& [offset, length] : x.byte_ranges) {
      std::fill_n(have.begin() + static_cast<ptrdiff_t>(offset), length, std::byte{0});
      std::fill_n(want.begin() + static_cast<ptrdiff_t>(offset), length, std::byte{0});
    }
  }
  return have == want ? calc_diff(have_values, want_values) : std::numeric_limits<double>::infinity();
}

Result<const void*> intermediate(const Executable& executable, std::string_view name) {
  if (const void* data = executable.data(name)) return data;
  return make_error(ErrorCode::kNotFound, fmt::format("the executable has no tensor '{}'", name));
}

}  // namespace

std::string golden_path(std::string_view file) {
  const std::string source = fmt::format("{}/tests/golden/{}", MEGARTP_SOURCE_DIR, file);
  return std::filesystem::exists(source) ? source : fmt::format("tests/golden/{}", file);
}

std::vector<double> Outcome::doubles() const { return to_doubles(dtype, bytes.data(), count_of(dims)); }

Result<std::vector<std::string>> fixture_names() {
  const nlohmann::json cases = MEGARTP_TRY(read_cases());
  std::vector<std::string> names;
  for (const auto& item : cases) names.push_back(item.at("name"));
  return names;
}

Result<std::shared_ptr<const Fixture>> load_fixture(std::string_view name) {
  const nlohmann::json cases = MEGARTP_TRY(read_cases());
  for (const auto& item : cases) {
    if (item.at("name") != name) continue;
    const auto path = [&](const char* kind) { return golden_path("fp8_path/" + item.at(kind).get<std::string>()); };
    auto fixture = std::make_shared<Fixture>();
    fixture->name = std::string(name);
    fixture->layer = item.at("layer");
    fixture->config = MEGARTP_TRY(glm52::load_config(path("config")));
    fixture->options = options_from(item.at("options"));
    fixture->inputs = MEGARTP_TRY(glm52::load_inputs(fixture->config, path("io")));
    fixture->weights = MEGARTP_TRY(glm52::load_weights(fixture->config, fixture->layer, path("weights")));
    fixture->expect = MEGARTP_TRY(SafetensorsFile::open(path("expect")));
    fixture->graph = glm52::attention_pre_graph(fixture->config, fixture->options, fixture->layer);
    MEGARTP_TRY(fixture->graph.status());
    fixture->has_indexer = glm52::layer_has_indexer(fixture->config, fixture->layer);
    return fixture;
  }
  return make_error(ErrorCode::kNotFound, fmt::format("no fixture '{}'", name));
}

Result<Outcomes> run_fixture(const Fixture& fixture, Executable& executable) {
  const glm52::Config& c = fixture.config;
  const OpGraph& graph = fixture.graph;
  std::map<std::string, Buffer, std::less<>> bound;
  for (const TensorInfo& info : graph.tensors()) {
    const auto input = fixture.inputs.tensors.find(info.name);
    if (info.storage == Storage::kOutput)
      bound[info.name] = Buffer::make(info.dtype, MEGARTP_TRY(fixture.inputs.shapes.eval(info.shape)));
    else if (info.storage == Storage::kState && input != fixture.inputs.tensors.end())
      bound[info.name] = input->second.clone();
    else if (info.storage == Storage::kRuntimeArg && input != fixture.inputs.tensors.end())
      bound[info.name] = input->second;
  }
  for (const auto& [name, buffer] : bound) MEGARTP_TRY(executable.bind(name, buffer.bytes.get(), buffer.num_bytes));
  for (const auto& item : fixture.weights.items)
    MEGARTP_TRY(executable.bind(item.graph_tensor, const_cast<std::byte*>(item.data), item.num_bytes));
  executable.poison();
  MEGARTP_TRY(executable.run());

  const int64_t rows = fixture.inputs.shapes.symbols.at("M");
  Outcomes out;
  for (const char* name : {"q_out", "logits", "index_k_cache", "mla_kv_cache"})
    if (const auto it = bound.find(name); it != bound.end()) out[name] = copy_of(it->second);
  out["residual"] = copy_of(bound.at("residual_out"));
  const void* kv = MEGARTP_TRY(intermediate(executable, "kv"));
  const int64_t width = c.kv_lora_rank + c.qk_rope_head_dim;
  out["kv_latent"] = bf16_columns(kv, rows, width, 0, c.kv_lora_rank);
  out["k_pe"] = bf16_columns(kv, rows, width, c.kv_lora_rank, width);
  if (!fixture.has_indexer) return out;

  const std::vector<int64_t> q_dims = {rows, c.index_n_heads, c.index_head_dim};
  const void* q = MEGARTP_TRY(intermediate(executable, "index_q"));
  const void* q_scale = MEGARTP_TRY(intermediate(executable, "index_q_scale"));
  out["index_q"] =
      dequantized(static_cast<const e4m3*>(q), static_cast<const float*>(q_scale), q_dims, c.index_head_dim);
  const auto* gate = static_cast<const std::byte*>(MEGARTP_TRY(intermediate(executable, "gate")));
  out["gate"] = {DType::kF32, {rows, c.index_n_heads}, {gate, gate + rows * c.index_n_heads * 4}};
  Outcome index_k{DType::kF32, {rows, c.index_head_dim}, {}};
  const int32_t* slots = fixture.inputs.tensors.at("slot_mapping").as<int32_t>();
  for (int64_t m = 0; m < rows; ++m)
    for (const double v : index_k_entry(out["index_k_cache"].bytes.data(), slots[m], c.index_head_dim).values) {
      const auto f = static_cast<float>(v);
      const auto* bytes = reinterpret_cast<const std::byte*>(&f);
      index_k.bytes.insert(index_k.bytes.end(), bytes, bytes + sizeof f);
    }
  out["index_k"] = std::move(index_k);
  return out;
}

double diff(const Fixture& fixture, std::string_view name, const Outcome& actual, const TensorView& expected) {
  constexpr double kDiffers = std::numeric_limits<double>::infinity();
  if (expected.dtype == DType::kU8)
    return actual.bytes.size() == expected.num_bytes ? cache_diff(fixture, name, actual, expected) : kDiffers;
  const std::vector<double> want = to_doubles(expected.dtype, expected.data, count_of(expected.dims));
  const std::vector<double> have = actual.doubles();
  if (actual.dims.size() != expected.dims.size() || actual.dims.back() < expected.dims.back()) return kDiffers;
  if (!std::equal(expected.dims.begin(), expected.dims.end() - 1, actual.dims.begin())) return kDiffers;
  const auto stride = static_cast<size_t>(actual.dims.back());
  const auto width = static_cast<size_t>(expected.dims.back());
  std::vector<double> leading;
  leading.reserve(want.size());
  for (size_t row = 0; row < want.size() / width; ++row)
    leading.insert(leading.end(), have.begin() + static_cast<ptrdiff_t>(row * stride),
                   have.begin() + static_cast<ptrdiff_t>(row * stride + width));
  return calc_diff(leading, want);
}

std::vector<Difference> expected_differences(const Fixture& fixture, const Outcomes& outcomes, double limit) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  std::vector<Difference> all;
  for (const TensorView& expected : fixture.expect.tensors()) {
    const auto actual = outcomes.find(expected.name);
    const double measured =
        actual == outcomes.end() ? kInfinity : diff(fixture, expected.name, actual->second, expected);
    all.push_back({expected.name, measured, expected.name == "residual" ? 0.0 : limit});
  }
  if (!fixture.has_indexer) return all;
  const Outcome& logits = outcomes.at("logits");
  const std::vector<double> values = logits.doubles();
  const auto width = static_cast<size_t>(logits.dims[1]);
  const int32_t* lengths = fixture.inputs.tensors.at("context_lens").as<int32_t>();
  double visibility = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_visible = i % width < static_cast<size_t>(lengths[i / width]);
    if (is_visible ? !std::isfinite(values[i]) : values[i] != -kInfinity) visibility = kInfinity;
  }
  all.push_back({"logits' visibility", visibility, 0.0});
  return all;
}

Result<std::vector<Difference>> golden_differences(const Fixture& fixture, const Outcomes& outcomes) {
  const SafetensorsFile golden = MEGARTP_TRY(SafetensorsFile::open(golden_path("tiny_a_io.safetensors")));
  const glm52::Config& c = fixture.config;
  const std::vector<double> q_out = outcomes.at("q_out").doubles();
  const auto width = static_cast<size_t>(c.kv_lora_rank + c.qk_rope_head_dim);
  const auto latent = static_cast<size_t>(c.kv_lora_rank);
  constexpr std::pair<const char*, double> kLimits[] = {{"residual", 0}, {"gate", 1e-3},    {"kv_latent", 1e-3},
                                                        {"k_pe", 1e-3},  {"index_k", 1e-3}, {"index_q", 1e-3},
                                                        {"q_lat", 2e-3}, {"q_pe", 2e-3},    {"logits", 5e-3}};
  std::vector<Difference> all;
  for (const auto& [name, limit] : kLimits) {
    const TensorView* expected = golden.find(fmt::format("expect.{}", name));
    if (expected == nullptr) return make_error(ErrorCode::kNotFound, fmt::format("no golden tensor '{}'", name));
    if (!std::string_view(name).starts_with("q_")) {
      all.push_back({name, diff(fixture, name, outcomes.at(name), *expected), limit});
      continue;
    }
    // q_lat and q_pe are parts of q_out.
    const bool is_latent = std::string_view(name) == "q_lat";
    std::vector<double> part;
    for (size_t i = 0; i < q_out.size(); ++i)
      if ((i % width < latent) == is_latent) part.push_back(q_out[i]);
    all.push_back({name, calc_diff(part, to_doubles(expected->dtype, expected->data, part.size())), limit});
  }
  return all;
}

}  // namespace megartp::test
