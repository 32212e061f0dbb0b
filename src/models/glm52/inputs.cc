#include "models/glm52/inputs.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <optional>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/math.h"
#include "base/parallel.h"
#include "base/rng.h"
#include "io/safetensors.h"
#include "ops/common/paged_cache.h"
#include "ops/common/quant.h"

namespace megartp::glm52 {
namespace {

using ops::kPageTokens;

constexpr int64_t kMaxPositions = 1 << 22;
constexpr double kResidualStd = 1.0;
constexpr double kXStd = 0.5;  // what a layer adds to the stream is smaller than the stream

Buffer random_bf16(std::vector<int64_t> dims, const Rng& rng, double std_dev) {
  Buffer b = Buffer::make(DType::kBF16, std::move(dims));
  auto* values = b.as<bf16>();
  parallel_for(static_cast<uint64_t>(b.num_elems()), 1 << 16, [&](uint64_t begin, uint64_t end) {
    for (uint64_t i = begin; i < end; ++i) values[i] = to_bf16(std_dev * rng.normal(i));
  });
  return b;
}

// Pages of [0, pages) in an order that depends on the seed.
std::vector<int32_t> shuffled_pages(int64_t pages, uint64_t seed) {
  std::vector<int32_t> order(static_cast<size_t>(pages));
  std::iota(order.begin(), order.end(), 0);
  RngSequence random(seed, Rng::stream_of("block_table"));
  for (size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  return order;
}

// The index-K cache entries of one page: keys of unit variance, as a LayerNorm leaves them.
struct IndexPage {
  std::byte* page;
  int64_t head_dim;

  void write_random(int64_t token, const Rng& rng, uint64_t key_idx, bool pow2) const {
    std::vector<float> key(static_cast<size_t>(head_dim));
    for (int64_t d = 0; d < head_dim; ++d)
      key[static_cast<size_t>(d)] =
          static_cast<float>(rng.normal(key_idx * static_cast<uint64_t>(head_dim) + static_cast<uint64_t>(d)));
    auto* codes = reinterpret_cast<e4m3*>(page + token * head_dim);
    const float scale = ops::quantize_group(key.data(), head_dim, pow2, codes);
    std::memcpy(page + kPageTokens * head_dim + 4 * token, &scale, sizeof scale);
  }
  void write_nan(int64_t token) const {
    std::memset(page + token * head_dim, 0xff, static_cast<size_t>(head_dim));
    std::memset(page + kPageTokens * head_dim + 4 * token, 0xff, 4);
  }
};

// A record with legal random contents. Nothing in attention-pre reads it: what counts is that a run leaves it alone.
void write_mla_record(std::byte* record, const Config& c, const Rng& rng, uint64_t token_idx) {
  const int64_t groups = ceil_div<int64_t>(c.kv_lora_rank, ops::kQuantGroup);
  uint64_t word = token_idx * static_cast<uint64_t>(c.kv_lora_rank + groups + c.qk_rope_head_dim);
  for (int64_t i = 0; i < c.kv_lora_rank; ++i) {
    auto code = static_cast<uint8_t>(rng.bits(word++));
    if (is_nan(e4m3{code})) code ^= 1U;
    record[i] = static_cast<std::byte>(code);
  }
  for (int64_t i = 0; i < groups; ++i) {
    const float scale = 0x1p-8F * static_cast<float>(1U << (rng.bits(word++) % 4));
    std::memcpy(record + c.kv_lora_rank + 4 * i, &scale, sizeof scale);
  }
  for (int64_t i = 0; i < c.qk_rope_head_dim; ++i) {
    const bf16 value = to_bf16(rng.bell(word++));
    std::memcpy(record + c.kv_lora_rank + 4 * groups + 2 * i, &value, sizeof value);
  }
}

void fill_caches(const Config& c, const Options& options, uint64_t seed, Inputs& in) {
  Buffer& index = in.tensors["index_k_cache"];
  Buffer& mla = in.tensors["mla_kv_cache"];
  const auto* table = in.tensors["block_table"].as<int32_t>();
  const int64_t table_width = in.tensors["block_table"].dims[1];
  const int64_t record_bytes = ops::mla_record_bytes(c.kv_lora_rank, c.qk_rope_head_dim);
  const Rng keys(seed, Rng::stream_of("index_k_cache"));
  const Rng records(seed, Rng::stream_of("mla_kv_cache"));
  const auto num_blocks = static_cast<uint64_t>(in.shapes.requests.size()) * static_cast<uint64_t>(table_width);
  parallel_for(num_blocks, 4, [&](uint64_t begin, uint64_t end) {
    for (uint64_t block = begin; block < end; ++block) {
      if (table[block] < 0) continue;
      const RequestShape& q = in.shapes.requests[block / static_cast<uint64_t>(table_width)];
      const int64_t first = static_cast<int64_t>(block % static_cast<uint64_t>(table_width)) * kPageTokens;
      const IndexPage page{index.as<std::byte>() + table[block] * index.dims[1], c.index_head_dim};
      std::byte* mla_page = mla.as<std::byte>() + table[block] * mla.dims[1];
      for (int64_t t = 0; t < kPageTokens && first + t < q.kv_len; ++t) {
        if (first + t >= q.kv_len - q.num_rows) {
          page.write_nan(t);
          continue;
        }
        const uint64_t token_idx = block * kPageTokens + static_cast<uint64_t>(t);
        page.write_random(t, keys, token_idx, options.index_k_pow2_scale);
        write_mla_record(mla_page + t * record_bytes, c, records, token_idx);
      }
    }
  });
}

void fill_slot_mapping(Inputs& in) {
  const Buffer& table = in.tensors["block_table"];
  const auto* positions = in.tensors["positions"].as<int32_t>();
  Buffer slots = Buffer::make(DType::kI32, in.tensors["positions"].dims);
  int64_t row = 0;
  for (size_t r = 0; r < in.shapes.requests.size(); ++r)
    for (const int64_t end = row + in.shapes.requests[r].num_rows; row < end; ++row) {
      // A position outside the table is reported by check_inputs; here it must only not be followed.
      const bool inside = positions[row] >= 0 && positions[row] / kPageTokens < table.dims[1];
      slots.as<int32_t>()[row] = inside ? static_cast<int32_t>(ops::cache_slot(table.as<int32_t>(), table.dims[1],
                                                                               static_cast<int32_t>(r), positions[row]))
                                        : -1;
    }
  in.tensors["slot_mapping"] = std::move(slots);
}

// Requests and context_lens [M] from the file's two forms.
Status read_requests(const SafetensorsFile& file, int64_t m, Inputs& in) {
  const auto fail = [](std::string message) { return make_error(ErrorCode::kParse, std::move(message)); };
  const TensorView* lens = file.find("context_lens");
  if (lens == nullptr) return make_error(ErrorCode::kNotFound, "the file has no tensor 'context_lens'");
  if (lens->dtype != DType::kI32)
    return fail(fmt::format("tensor 'context_lens' has dtype {}, expected I32", to_string(lens->dtype)));
  Buffer flat = Buffer::make(DType::kI32, {m});
  std::vector<int32_t> starts;
  const TensorView* start_loc = file.find("query_start_loc");
  if (start_loc == nullptr) {
    if (lens->dims.size() != 2 || lens->dims[0] < 1 || lens->dims[1] < 1 || lens->num_bytes != flat.num_bytes)
      return fail(
          fmt::format("tensor 'context_lens' has shape {}, expected [requests, new tokens] for {} rows, or [{}] "
                      "together with query_start_loc",
                      to_string(lens->dims), m, m));
    for (int64_t r = 0; r <= lens->dims[0]; ++r) starts.push_back(static_cast<int32_t>(r * lens->dims[1]));
  } else {
    const int64_t expected[] = {m};
    MEGARTP_TRY(file.get("context_lens", DType::kI32, expected));
    if (start_loc->dtype != DType::kI32 || start_loc->dims.size() != 1 || start_loc->dims[0] < 2)
      return fail(fmt::format("tensor 'query_start_loc' is {} {}, expected I32 [requests + 1]",
                              to_string(start_loc->dtype), to_string(start_loc->dims)));
    starts.resize(static_cast<size_t>(start_loc->dims[0]));
    std::memcpy(starts.data(), start_loc->data, start_loc->num_bytes);
    if (starts.front() != 0) return fail(fmt::format("query_start_loc[0] is {}, expected 0", starts.front()));
    for (size_t r = 1; r < starts.size(); ++r)
      if (starts[r] <= starts[r - 1])
        return fail(
            fmt::format("query_start_loc[{}] is {}, not above the entry before it, {}", r, starts[r], starts[r - 1]));
    if (starts.back() != m)
      return fail(fmt::format("query_start_loc[{}] is {}, expected the number of rows, {}", starts.size() - 1,
                              starts.back(), m));
  }
  std::memcpy(flat.bytes.get(), lens->data, flat.num_bytes);
  const auto* values = flat.as<int32_t>();
  int32_t kv = 0;
  for (size_t r = 1; r < starts.size(); ++r) {
    const int32_t longest = *std::max_element(values + starts[r - 1], values + starts[r]);
    in.shapes.requests.push_back({starts[r] - starts[r - 1], longest});
    kv = std::max(kv, longest);
  }
  in.shapes.set("M", m);
  in.shapes.set("R", static_cast<int64_t>(in.shapes.requests.size()));
  in.shapes.set("KV", kv);
  in.tensors["context_lens"] = std::move(flat);
  return {};
}

// A matrix whose first dimension the file chooses; `columns` is absent where it chooses the second one too.
Result<Buffer> read_matrix(const SafetensorsFile& file, std::string_view name, DType dtype,
                           std::optional<int64_t> columns) {
  const TensorView* t = file.find(name);
  if (t == nullptr) return make_error(ErrorCode::kNotFound, fmt::format("the file has no tensor '{}'", name));
  if (t->dims.size() != 2)
    return make_error(ErrorCode::kParse,
                      fmt::format("tensor '{}' has shape {}, expected two dimensions", name, to_string(t->dims)));
  std::vector<int64_t> expected = t->dims;
  if (columns) expected[1] = *columns;
  MEGARTP_TRY(file.get(name, dtype, expected));
  Buffer b = Buffer::make(dtype, t->dims);
  std::memcpy(b.bytes.get(), t->data, t->num_bytes);
  return b;
}

Result<Inputs> load(const Config& config, const SafetensorsFile& file) {
  Inputs in;
  in.tensors["x"] = MEGARTP_TRY(read_matrix(file, "x", DType::kBF16, config.hidden_size));
  const int64_t m = in.tensors["x"].dims[0];
  if (m < 1) return make_error(ErrorCode::kParse, "tensor 'x' has no rows (M = 0)");
  if (m > std::numeric_limits<int32_t>::max()) return make_error(ErrorCode::kParse, "tensor 'x' has too many rows");
  const int64_t wanted[] = {m, config.hidden_size};
  MEGARTP_TRY(file.get("residual", DType::kBF16, wanted));
  in.tensors["residual"] = MEGARTP_TRY(read_matrix(file, "residual", DType::kBF16, config.hidden_size));
  const int64_t rows[] = {m};
  const TensorView* positions = MEGARTP_TRY(file.get("positions", DType::kI32, rows));
  in.tensors["positions"] = Buffer::make(DType::kI32, {m});
  std::memcpy(in.tensors["positions"].bytes.get(), positions->data, positions->num_bytes);
  MEGARTP_TRY(read_requests(file, m, in));
  in.tensors["block_table"] = MEGARTP_TRY(read_matrix(file, "block_table", DType::kI32, std::nullopt));
  const Buffer& table = in.tensors["block_table"];
  if (table.dims[0] != static_cast<int64_t>(in.shapes.requests.size()))
    return make_error(ErrorCode::kParse,
                      fmt::format("tensor 'block_table' has shape {}, expected one row for each of {} requests",
                                  to_string(table.dims), in.shapes.requests.size()));
  in.shapes.set("TABLE", table.dims[1]);
  in.tensors["index_k_cache"] =
      MEGARTP_TRY(read_matrix(file, "index_k_cache", DType::kU8, ops::index_page_bytes(config.index_head_dim)));
  const int64_t pages = in.tensors["index_k_cache"].dims[0];
  in.shapes.set("PAGES", pages);
  const int64_t mla_page_bytes = kPageTokens * ops::mla_record_bytes(config.kv_lora_rank, config.qk_rope_head_dim);
  if (file.find("mla_kv_cache") != nullptr) {
    const int64_t mla_dims[] = {pages, mla_page_bytes};
    MEGARTP_TRY(file.get("mla_kv_cache", DType::kU8, mla_dims));
    in.tensors["mla_kv_cache"] = MEGARTP_TRY(read_matrix(file, "mla_kv_cache", DType::kU8, mla_page_bytes));
  } else {
    in.tensors["mla_kv_cache"] = Buffer::make(DType::kU8, {pages, mla_page_bytes});
  }
  fill_slot_mapping(in);
  // Positions are checked to lie below the lengths, and lengths below the table's reach: this many rows do. The limit
  // keeps a file whose table names one page a million times from asking for a table of many gigabytes.
  const int64_t reach = std::min(table.dims[1] * kPageTokens, kMaxPositions);
  const int64_t num_positions = std::clamp<int64_t>(in.shapes.symbols["KV"], 1, std::max<int64_t>(reach, 1));
  in.shapes.set("POS", num_positions);
  in.tensors["cos_sin"] = make_cos_sin(config, num_positions);
  MEGARTP_TRY(check_inputs(config, in));
  return in;
}

}  // namespace

Result<Inputs> synth_inputs(const Config& config, const Options& options, const ShapeEnv& shapes, uint64_t seed) {
  MEGARTP_TRY(check_config(config));
  MEGARTP_TRY(check_options(config, options));
  Inputs in;
  in.shapes = shapes;
  const int64_t m = MEGARTP_TRY(shapes.eval("M"));
  const int64_t table_width = MEGARTP_TRY(shapes.eval("TABLE"));
  const int64_t pages = MEGARTP_TRY(shapes.eval("PAGES"));
  const int64_t num_positions = MEGARTP_TRY(shapes.eval("POS"));
  const auto num_requests = static_cast<int64_t>(shapes.requests.size());
  if (pages < num_requests * table_width)
    return make_error(ErrorCode::kInvalidArgument, fmt::format("PAGES = {} is too small for {} requests of {} pages",
                                                               pages, num_requests, table_width));
  int64_t rows = 0;
  for (const RequestShape& q : shapes.requests) {
    if (q.num_rows < 1 || q.kv_len < q.num_rows || q.kv_len > table_width * kPageTokens)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("a request of {} rows and {} tokens does not fit a table of {} pages", q.num_rows,
                                    q.kv_len, table_width));
    rows += q.num_rows;
  }
  if (rows != m || m < 1)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("the requests have {} rows together, but M = {}", rows, m));

  in.tensors["x"] = random_bf16({m, config.hidden_size}, Rng(seed, Rng::stream_of("x")), kXStd);
  in.tensors["residual"] = random_bf16({m, config.hidden_size}, Rng(seed, Rng::stream_of("residual")), kResidualStd);
  Buffer positions = Buffer::make(DType::kI32, {m});
  Buffer lens = Buffer::make(DType::kI32, {m});
  Buffer table = Buffer::make(DType::kI32, {num_requests, table_width});
  const std::vector<int32_t> order = shuffled_pages(pages, seed);
  int64_t row = 0;
  for (int64_t r = 0; r < num_requests; ++r) {
    const RequestShape& q = shapes.requests[static_cast<size_t>(r)];
    for (int32_t i = 0; i < q.num_rows; ++i, ++row) {
      positions.as<int32_t>()[row] = q.kv_len - q.num_rows + i;
      lens.as<int32_t>()[row] = positions.as<int32_t>()[row] + 1;
    }
    for (int64_t b = 0; b < table_width; ++b)
      table.as<int32_t>()[r * table_width + b] =
          b * kPageTokens < q.kv_len ? order[static_cast<size_t>(r * table_width + b)] : -1;
  }
  in.tensors["positions"] = std::move(positions);
  in.tensors["context_lens"] = std::move(lens);
  in.tensors["block_table"] = std::move(table);
  in.tensors["index_k_cache"] = Buffer::make(DType::kU8, {pages, ops::index_page_bytes(config.index_head_dim)});
  in.tensors["mla_kv_cache"] = Buffer::make(
      DType::kU8, {pages, kPageTokens * ops::mla_record_bytes(config.kv_lora_rank, config.qk_rope_head_dim)});
  fill_slot_mapping(in);
  fill_caches(config, options, seed, in);
  in.tensors["cos_sin"] = make_cos_sin(config, num_positions);
  MEGARTP_TRY(check_inputs(config, in));
  return in;
}

Result<Inputs> load_inputs(const Config& config, const std::string& path) {
  MEGARTP_TRY(check_config(config));
  const SafetensorsFile file = MEGARTP_TRY(SafetensorsFile::open(path));
  Result<Inputs> inputs = load(config, file);
  if (inputs) return inputs;
  Error error = std::move(inputs).error();
  if (error.code == ErrorCode::kInvalidArgument) error.code = ErrorCode::kParse;  // here the values come from a file
  return tl::unexpected(std::move(error).with("path", path));
}

}  // namespace megartp::glm52
