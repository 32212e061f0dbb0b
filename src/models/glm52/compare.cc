// Comparison of two executions of one layer.
#include <algorithm>
#include <cstring>
#include <limits>
#include <span>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "models/glm52/layer_run.h"
#include "models/glm52/outputs.h"
#include "ops/common/paged_cache.h"
#include "ops/op_family.h"

namespace megartp::glm52 {
namespace {

// FP8 tensors and the scales that give them a meaning; `group` 0 = one scale per row of the last dim.
struct QuantizedPair {
  const char* codes;
  const char* scales;
  int64_t group;
};
constexpr QuantizedPair kPairs[] = {
    {"hidden_q", "hidden_scale", 128}, {"q_resid", "q_resid_scale", 128}, {"index_q", "index_q_scale", 0}};

std::vector<float> dequantize(const Buffer& codes, const Buffer& scales, int64_t group) {
  const int64_t cols = codes.dims.back();
  const int64_t rows = codes.num_elems() / cols;
  const int64_t groups = group == 0 ? 1 : (cols + group - 1) / group;
  std::vector<float> v(static_cast<size_t>(rows * cols));
  for (int64_t r = 0; r < rows; ++r)
    for (int64_t c = 0; c < cols; ++c)
      v[static_cast<size_t>(r * cols + c)] =
          to_float(codes.as<e4m3>()[r * cols + c]) * scales.as<float>()[r * groups + (group == 0 ? 0 : c / group)];
  return v;
}

// The records of the new rows in an MLA cache, dequantised: [M, kv_lora + rope].
std::vector<float> mla_rows(const Config& c, const Buffer& cache, std::span<const int32_t> slots) {
  const int64_t record = ops::mla_record_bytes(c.kv_lora_rank, c.qk_rope_head_dim);
  const int64_t groups = (c.kv_lora_rank + 127) / 128;
  std::vector<float> v;
  for (const int32_t slot : slots) {
    const std::byte* bytes = cache.bytes.get() + int64_t{slot} * record;
    for (int64_t i = 0; i < c.kv_lora_rank; ++i) {
      float scale = 0;
      std::memcpy(&scale, bytes + c.kv_lora_rank + i / 128 * 4, 4);
      v.push_back(decode_e4m3_bits(static_cast<uint8_t>(bytes[i])) * scale);
    }
    for (int64_t i = 0; i < c.qk_rope_head_dim; ++i) {
      bf16 x;
      std::memcpy(&x, bytes + c.kv_lora_rank + groups * 4 + i * 2, 2);
      v.push_back(to_float(x));
    }
  }
  return v;
}

// Do two caches differ outside the slots that the layer writes? `slot_mask` marks the bytes of written slots.
bool same_elsewhere(const Buffer& a, const Buffer& b, const std::vector<bool>& slot_mask) {
  for (size_t i = 0; i < a.num_bytes; ++i)
    if (!slot_mask[i] && a.bytes[static_cast<ptrdiff_t>(i)] != b.bytes[static_cast<ptrdiff_t>(i)]) return false;
  return true;
}

std::vector<bool> written_bytes(const Config& c, const Buffer& cache, std::span<const int32_t> slots, bool is_mla) {
  std::vector<bool> mask(cache.num_bytes);
  const auto mark = [&](int64_t begin, int64_t count) {
    for (int64_t i = begin; i < begin + count; ++i) mask[static_cast<size_t>(i)] = true;
  };
  for (const int32_t slot : slots) {
    if (is_mla) {
      const int64_t record = ops::mla_record_bytes(c.kv_lora_rank, c.qk_rope_head_dim);
      mark(int64_t{slot} * record, record);
      continue;
    }
    const int64_t page = slot / ops::kPageTokens * ops::index_page_bytes(c.index_head_dim);
    const int64_t offset = slot % ops::kPageTokens;
    mark(page + offset * c.index_head_dim, c.index_head_dim);
    mark(page + ops::kPageTokens * c.index_head_dim + offset * 4, 4);
  }
  return mask;
}

Result<double> cache_diff(const LayerRun& run, const std::string& name, const Buffer& got, const Buffer& want) {
  const Buffer& mapping = run.inputs.tensors.find("slot_mapping")->second;
  const std::span<const int32_t> slots(mapping.as<int32_t>(), static_cast<size_t>(mapping.num_elems()));
  const bool is_mla = name == "mla_kv_cache";
  const Buffer& before = run.inputs.tensors.find(name)->second;
  if (!same_elsewhere(got, before, written_bytes(run.config, got, slots, is_mla)))
    return std::numeric_limits<double>::infinity();  // a byte changed that no new row owns
  if (is_mla) return calc_diff(mla_rows(run.config, got, slots), mla_rows(run.config, want, slots));
  const auto rows = [&](const Buffer& cache) {
    return dequantize_index_k(std::span(cache.bytes.get(), cache.num_bytes), slots, run.config.index_head_dim);
  };
  return calc_diff(to_floats(MEGARTP_TRY(rows(got))), to_floats(MEGARTP_TRY(rows(want))));
}

Result<double> tensor_diff(const LayerRun& run, const std::string& name, const TensorMap& got, const TensorMap& want) {
  const Buffer& g = got.find(name)->second;
  const Buffer& w = want.find(name)->second;
  if (name == "index_k_cache" || name == "mla_kv_cache") return cache_diff(run, name, g, w);
  for (const QuantizedPair& p : kPairs)
    if (name == p.codes)
      return calc_diff(dequantize(g, got.find(p.scales)->second, p.group),
                       dequantize(w, want.find(p.scales)->second, p.group));
  if (name == "gate_partials") {  // addends: only their sum has a meaning
    const auto sum = [](const Buffer& b) {
      const auto n = static_cast<size_t>(b.num_elems() / b.dims[0]);
      std::vector<float> v(n);
      for (int64_t s = 0; s < b.dims[0]; ++s)
        for (size_t i = 0; i < n; ++i) v[i] += b.as<float>()[static_cast<size_t>(s) * n + i];
      return v;
    };
    return calc_diff(sum(g), sum(w));
  }
  return calc_diff(to_floats(g), to_floats(w));
}

bool is_scale(const std::string& name) {
  for (const QuantizedPair& p : kPairs)
    if (name == p.scales) return true;
  return false;
}

// Compares what one op wrote. `skip_q_out_of_d0`: q_out is complete only after its last writer.
Status compare_op(const LayerRun& run, const OpInfo& op, const TensorMap& got, const TensorMap& want,
                  bool skip_q_out_of_d0, std::vector<TensorDiff>& diffs) {
  for (const auto* ids : {&op.outputs, &op.updates}) {
    for (const TensorId id : *ids) {
      const TensorInfo& t = run.graph.tensor(id);
      if (is_scale(t.name) || (skip_q_out_of_d0 && ids == &op.outputs && t.name == "q_out")) continue;
      if (!got.contains(t.name) || !want.contains(t.name))
        return make_error(ErrorCode::kInternal, "tensor '" + t.name + "' was not collected");
      const bool is_output = t.storage == Storage::kOutput || t.storage == Storage::kState;
      diffs.push_back({ op.name, t.name, is_output, MEGARTP_TRY(tensor_diff(run, t.name, got, want)) });
    }
  }
  return {};
}

// The memory of one tensor for a reference op that runs on `got`: weights and arguments as they are bound, written
// tensors as copies in `fresh`. A state that the op updates starts as the input's; any other written tensor starts as
// got's, so that an op which writes a part is judged by that part.
Result<HostTensor> reference_operand(const LayerRun& run, const TensorMap& got, TensorId id, bool is_written,
                                     TensorMap& fresh) {
  const TensorInfo& t = run.graph.tensor(id);
  const auto dims = MEGARTP_TRY(run.inputs.shapes.eval(t.shape));
  if (const Weights::Item* item = run.weights.find(t.name); t.storage == Storage::kWeight && item != nullptr)
    return HostTensor{t.dtype, dims, const_cast<std::byte*>(item->data)};
  const auto input = run.inputs.tensors.find(t.name);
  const auto held = got.find(t.name);
  const bool from_input = t.storage == Storage::kRuntimeArg || (t.storage == Storage::kState && is_written);
  if (from_input ? input == run.inputs.tensors.end() : held == got.end())
    return make_error(ErrorCode::kInternal, "no values of tensor '" + t.name + "'");
  const Buffer& buffer = from_input ? input->second : held->second;
  if (!is_written) return HostTensor{t.dtype, dims, buffer.bytes.get()};
  const Buffer& copy = fresh.insert_or_assign(t.name, buffer.clone()).first->second;
  return HostTensor{t.dtype, dims, copy.bytes.get()};
}

}  // namespace

Result<std::vector<TensorDiff>> compare(const LayerRun& run, const TensorMap& got, const TensorMap& want) {
  std::vector<TensorDiff> diffs;
  for (const OpInfo& op : run.graph.ops()) MEGARTP_TRY(compare_op(run, op, got, want, true, diffs));
  return diffs;
}

Result<std::vector<TensorDiff>> compare_ops(const LayerRun& run, const TensorMap& got) {
  std::vector<TensorDiff> diffs;
  for (const OpInfo& op : run.graph.ops()) {
    TensorMap fresh;
    std::vector<HostTensor> inputs;
    std::vector<HostTensor> outputs;
    for (const TensorId id : op.inputs) {
      const bool is_written = std::find(op.updates.begin(), op.updates.end(), id) != op.updates.end();
      inputs.push_back(MEGARTP_TRY(reference_operand(run, got, id, is_written, fresh)));
    }
    for (const TensorId id : op.outputs) outputs.push_back(MEGARTP_TRY(reference_operand(run, got, id, true, fresh)));
    MEGARTP_TRY(find_op_family(op.kind)->reference(ReferenceContext{op, run.inputs.shapes, inputs, outputs}));
    MEGARTP_TRY(compare_op(run, op, got, fresh, false, diffs));
  }
  return diffs;
}

}  // namespace megartp::glm52
