// What inputs must satisfy before they reach an op: ops trust positions, slots and pages.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/math.h"
#include "models/glm52/inputs.h"
#include "ops/common/paged_cache.h"

namespace megartp::glm52 {
namespace {

tl::unexpected<Error> bad(std::string message) { return make_error(ErrorCode::kInvalidArgument, std::move(message)); }

class Checker {
 public:
  Checker(const Config& config, const Inputs& inputs) : config_(config), inputs_(inputs) {}

  Status run() {
    MEGARTP_TRY(check_sizes());
    MEGARTP_TRY(check_shapes());
    MEGARTP_TRY(check_activations());
    positions_ = data<int32_t>("positions");
    lens_ = data<int32_t>("context_lens");
    slots_ = data<int32_t>("slot_mapping");
    table_ = data<int32_t>("block_table");
    MEGARTP_TRY(check_lengths());
    MEGARTP_TRY(check_pages());
    MEGARTP_TRY(check_slots());
    return check_keys();
  }

 private:
  template <class T>
  const T* data(std::string_view name) const {
    return inputs_.tensors.find(name)->second.as<const T>();
  }

  Status check_sizes() {
    const auto& symbols = inputs_.shapes.symbols;
    for (const char* name : {"M", "KV", "R", "TABLE", "PAGES", "POS"}) {
      const auto it = symbols.find(name);
      if (it == symbols.end()) return bad(fmt::format("the batch gives no value for {}", name));
      if (it->second < 1) return bad(fmt::format("{} = {}: the batch is empty", name, it->second));
    }
    m_ = symbols.find("M")->second;
    table_width_ = symbols.find("TABLE")->second;
    pages_ = symbols.find("PAGES")->second;
    num_positions_ = symbols.find("POS")->second;
    const auto& requests = inputs_.shapes.requests;
    int64_t rows = 0;
    for (const RequestShape& q : requests) rows += q.num_rows;
    if (rows != m_ || static_cast<int64_t>(requests.size()) != symbols.find("R")->second)
      return bad(fmt::format("the requests have {} rows together, but M = {}", rows, m_));
    return {};
  }

  Status check_shapes() const {
    const Config& c = config_;
    const struct {
      const char* name;
      DType dtype;
      std::vector<int64_t> dims;
    } kExpected[] = {
        {"x", DType::kBF16, {m_, c.hidden_size}},
        {"residual", DType::kBF16, {m_, c.hidden_size}},
        {"positions", DType::kI32, {m_}},
        {"context_lens", DType::kI32, {m_}},
        {"slot_mapping", DType::kI32, {m_}},
        {"block_table", DType::kI32, {static_cast<int64_t>(inputs_.shapes.requests.size()), table_width_}},
        {"cos_sin", DType::kF32, {num_positions_, c.qk_rope_head_dim}},
        {"index_k_cache", DType::kU8, {pages_, ops::index_page_bytes(c.index_head_dim)}},
        {"mla_kv_cache",
         DType::kU8,
         {pages_, ops::kPageTokens * ops::mla_record_bytes(c.kv_lora_rank, c.qk_rope_head_dim)}},
    };
    for (const auto& e : kExpected) {
      const auto it = inputs_.tensors.find(e.name);
      if (it == inputs_.tensors.end())
        return make_error(ErrorCode::kNotFound, fmt::format("the inputs have no tensor '{}'", e.name));
      const Buffer& b = it->second;
      if (b.dtype != e.dtype)
        return bad(
            fmt::format("tensor '{}' has dtype {}, expected {}", e.name, to_string(b.dtype), to_string(e.dtype)));
      if (b.dims != e.dims)
        return bad(fmt::format("tensor '{}' has shape {}, expected {}", e.name, to_string(b.dims), to_string(e.dims)));
    }
    return {};
  }

  // NaN or infinity in would be NaN out, which then looks like a fault of the backend.
  Status check_activations() const {
    for (const char* name : {"x", "residual"}) {
      const Buffer& b = inputs_.tensors.find(name)->second;
      for (int64_t i = 0; i < b.num_elems(); ++i)
        if ((b.as<bf16>()[i].bits & 0x7f80U) == 0x7f80U)
          return bad(fmt::format("tensor '{}' has the value {} at [{}, {}]", name, to_float(b.as<bf16>()[i]),
                                 i / config_.hidden_size, i % config_.hidden_size));
    }
    return {};
  }

  // Row by row: the request's table covers the length, and the position lies inside it.
  Status check_lengths() {
    int64_t row = 0;
    for (size_t r = 0; r < inputs_.shapes.requests.size(); ++r) {
      const RequestShape& q = inputs_.shapes.requests[r];
      int32_t longest = 0;
      for (const int64_t end = row + q.num_rows; row < end; ++row) {
        if (lens_[row] < 1) return bad(fmt::format("context_lens[{}] is {}, expected at least 1", row, lens_[row]));
        if (lens_[row] > table_width_ * ops::kPageTokens)
          return bad(fmt::format("context_lens[{}] is {}, beyond the {} tokens that block_table reaches", row,
                                 lens_[row], table_width_ * ops::kPageTokens));
        if (positions_[row] < 0 || positions_[row] >= lens_[row])
          return bad(fmt::format("positions[{}] is {}, expected 0 to {} (context_lens[{}] counts the row's own key)",
                                 row, positions_[row], lens_[row] - 1, row));
        if (positions_[row] >= num_positions_)
          return bad(fmt::format("positions[{}] is {}, but cos_sin has {} rows", row, positions_[row], num_positions_));
        longest = std::max(longest, lens_[row]);
      }
      if (longest != q.kv_len)
        return bad(
            fmt::format("request {} has a length of {} in context_lens, but of {} in the batch", r, longest, q.kv_len));
      const int64_t kv = inputs_.shapes.symbols.find("KV")->second;
      if (longest > kv) return bad(fmt::format("request {} has a length of {}, but KV = {}", r, longest, kv));
    }
    return {};
  }

  Status check_pages() const {
    for (size_t r = 0; r < inputs_.shapes.requests.size(); ++r) {
      const int64_t used = ceil_div<int64_t>(inputs_.shapes.requests[r].kv_len, ops::kPageTokens);
      for (int64_t b = 0; b < table_width_; ++b) {
        const int32_t page = table_[static_cast<int64_t>(r) * table_width_ + b];
        if (page >= pages_ || page < (b < used ? 0 : -1))
          return bad(fmt::format("block_table[{}][{}] is {}, outside the cache of {} pages", r, b, page, pages_));
      }
    }
    return {};
  }

  Status check_slots() {
    std::unordered_map<int32_t, int64_t> row_of_slot;
    int64_t row = 0;
    for (size_t r = 0; r < inputs_.shapes.requests.size(); ++r) {
      for (const int64_t end = row + inputs_.shapes.requests[r].num_rows; row < end; ++row) {
        const int64_t slot = ops::cache_slot(table_, table_width_, static_cast<int32_t>(r), positions_[row]);
        if (slots_[row] != slot)
          return bad(
              fmt::format("slot_mapping[{}] is {}, but block_table and positions give {}", row, slots_[row], slot));
        const auto [it, inserted] = row_of_slot.emplace(slots_[row], row);
        if (!inserted)
          return bad(fmt::format("positions[{}] and positions[{}] put two new tokens into one cache slot, {}",
                                 it->second, row, slots_[row]));
      }
    }
    for (const auto& [slot, unused] : row_of_slot) new_slots_.insert(slot);
    return {};
  }

  // Keys that this run writes may hold anything before it.
  Status check_keys() const {
    const int64_t head_dim = config_.index_head_dim;
    const int64_t page_bytes = ops::index_page_bytes(head_dim);
    const auto* cache = data<std::byte>("index_k_cache");
    for (size_t r = 0; r < inputs_.shapes.requests.size(); ++r) {
      for (int64_t s = 0; s < inputs_.shapes.requests[r].kv_len; ++s) {
        const int64_t slot = ops::cache_slot(table_, table_width_, static_cast<int32_t>(r), static_cast<int32_t>(s));
        if (new_slots_.contains(static_cast<int32_t>(slot))) continue;
        const std::byte* page = cache + slot / ops::kPageTokens * page_bytes;
        const int64_t token = slot % ops::kPageTokens;
        const auto* codes = reinterpret_cast<const e4m3*>(page + token * head_dim);
        uint32_t nans = 0;
        for (int64_t d = 0; d < head_dim; ++d) nans += is_nan(codes[d]) ? 1U : 0U;
        if (nans != 0)
          return bad(fmt::format("index_k_cache: the key of request {}, token {} (page {}, entry {}) has a NaN code", r,
                                 s, slot / ops::kPageTokens, token));
        float scale = 0;
        std::memcpy(&scale, page + ops::kPageTokens * head_dim + 4 * token, sizeof scale);
        if (!std::isfinite(scale) || scale < 0)
          return bad(fmt::format("index_k_cache: the scale of request {}, token {} (page {}, entry {}) is {}", r, s,
                                 slot / ops::kPageTokens, token, scale));
      }
    }
    return {};
  }

  const Config& config_;
  const Inputs& inputs_;
  int64_t m_ = 0, table_width_ = 0, pages_ = 0, num_positions_ = 0;
  const int32_t* positions_ = nullptr;
  const int32_t* lens_ = nullptr;
  const int32_t* slots_ = nullptr;
  const int32_t* table_ = nullptr;
  std::unordered_set<int32_t> new_slots_;
};

}  // namespace

Status check_inputs(const Config& config, const Inputs& inputs) { return Checker(config, inputs).run(); }

}  // namespace megartp::glm52
