#include "models/glm52/layer_run.h"

#include <cmath>
#include <cstring>
#include <limits>

#include <fmt/format.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "base/math.h"

namespace megartp::glm52 {
namespace {

Result<std::vector<int64_t>> dims_of(const LayerRun& run, TensorId id) {
  return run.inputs.shapes.eval(run.graph.tensor(id).shape);
}

}  // namespace

Result<LayerRun> make_layer_run(const Config& config, const Options& options, int64_t layer, Inputs inputs,
                                Weights weights) {
  MEGARTP_TRY(check_config(config));
  MEGARTP_TRY(check_inputs(config, inputs));
  LayerRun run{
      config, options, layer, attention_pre_graph(config, options, layer), std::move(inputs), std::move(weights)};
  MEGARTP_TRY(Status(run.graph.status()));
  return run;
}

Result<LayerExecution> LayerExecution::create(const LayerRun& run, std::unique_ptr<Executable> executable) {
  LayerExecution e;
  e.run_ = &run;
  e.executable_ = std::move(executable);
  for (TensorId id = 0; id < run.graph.tensors().size(); ++id) {
    const TensorInfo& t = run.graph.tensor(id);
    if (t.storage == Storage::kRuntimeArg) {
      const auto it = run.inputs.tensors.find(t.name);
      if (it == run.inputs.tensors.end()) return make_error(ErrorCode::kNotFound, "no input '" + t.name + "'");
      MEGARTP_TRY(e.executable_->bind(t.name, it->second.bytes.get(), it->second.num_bytes));
    } else if (t.storage == Storage::kState) {
      const auto it = run.inputs.tensors.find(t.name);
      if (it == run.inputs.tensors.end()) return make_error(ErrorCode::kNotFound, "no input '" + t.name + "'");
      const Buffer& copy = e.owned_[t.name] = it->second.clone();
      MEGARTP_TRY(e.executable_->bind(t.name, copy.bytes.get(), copy.num_bytes));
    } else if (t.storage == Storage::kOutput) {
      const Buffer& out = e.owned_[t.name] = Buffer::make(t.dtype, MEGARTP_TRY(dims_of(run, id)));
      MEGARTP_TRY(e.executable_->bind(t.name, out.bytes.get(), out.num_bytes));
    }
  }
  for (const Weights::Item& item : run.weights.items) {
    if (!run.graph.find_tensor(item.graph_tensor).valid()) continue;
    // Backends take mutable addresses for everything; weights are read only, as their storage class says.
    MEGARTP_TRY(e.executable_->bind(item.graph_tensor, const_cast<std::byte*>(item.data), item.num_bytes));
  }
  return e;
}

Result<RunStats> LayerExecution::run(bool poison) {
  if (poison) {
    executable_->poison();
    for (auto& [name, buffer] : owned_) {
      const auto it = run_->inputs.tensors.find(name);
      if (it != run_->inputs.tensors.end()) std::memcpy(buffer.bytes.get(), it->second.bytes.get(), buffer.num_bytes);
    }
  }
  return executable_->run();
}

TensorMap LayerExecution::collect() const {
  TensorMap out;
  for (const OpInfo& op : run_->graph.ops()) {
    for (const auto* ids : {&op.outputs, &op.updates}) {
      for (const TensorId id : *ids) {
        const TensorInfo& t = run_->graph.tensor(id);
        const void* data = executable_->data(t.name);
        if (data == nullptr || out.contains(t.name)) continue;
        Buffer copy = Buffer::make(t.dtype, dims_of(*run_, id).value_or(std::vector<int64_t>{}));
        std::memcpy(copy.bytes.get(), data, copy.num_bytes);
        out.emplace(t.name, std::move(copy));
      }
    }
  }
  return out;
}

std::vector<float> to_floats(const Buffer& b) {
  std::vector<float> v(b.num_bytes / size_in_bytes(b.dtype));
  for (size_t i = 0; i < v.size(); ++i) {
    switch (b.dtype) {
      case DType::kF64: v[i] = static_cast<float>(b.as<double>()[i]); break;
      case DType::kF32: v[i] = b.as<float>()[i]; break;
      case DType::kBF16: v[i] = to_float(b.as<bf16>()[i]); break;
      case DType::kF8E4M3: v[i] = to_float(b.as<e4m3>()[i]); break;
      case DType::kI64: v[i] = static_cast<float>(b.as<int64_t>()[i]); break;
      case DType::kI32: v[i] = static_cast<float>(b.as<int32_t>()[i]); break;
      case DType::kU8: v[i] = static_cast<float>(b.as<uint8_t>()[i]); break;
    }
  }
  return v;
}

double calc_diff(const std::vector<float>& x, const std::vector<float>& y) {
  if (x.size() != y.size()) return std::numeric_limits<double>::infinity();
  double xy = 0;
  double xx = 0;
  double yy = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isinf(x[i]) && x[i] == y[i]) continue;  // masked logits
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return std::numeric_limits<double>::infinity();
    const auto a = static_cast<double>(x[i]);
    const auto b = static_cast<double>(y[i]);
    xy += a * b;
    xx += a * a;
    yy += b * b;
  }
  return xx + yy == 0 ? 0.0 : 1.0 - 2.0 * xy / (xx + yy);
}

std::map<std::string, uint64_t, std::less<>> op_bytes(const LayerRun& run) {
  std::map<std::string, uint64_t, std::less<>> bytes;
  for (const OpInfo& op : run.graph.ops()) {
    uint64_t sum = 0;
    for (const auto* ids : {&op.inputs, &op.outputs}) {
      for (const TensorId id : *ids) {
        const TensorInfo& t = run.graph.tensor(id);
        if (t.name == "cos_sin" || t.name == "mla_kv_cache" || t.name == "block_table") continue;  // a few rows only
        const auto dims = dims_of(run, id);
        uint64_t n = size_in_bytes(t.dtype);
        for (const int64_t d : dims.value_or(std::vector<int64_t>{})) n *= static_cast<uint64_t>(d);
        if (t.name == "index_k_cache") {
          if (op.kind != "indexer_score") continue;
          n = 0;
          for (const RequestShape& r : run.inputs.shapes.requests)
            n += static_cast<uint64_t>(r.kv_len) * static_cast<uint64_t>(run.config.index_head_dim + 4);
        }
        if (op.kind == "q_absorb" && t.storage == Storage::kWeight) {  // only the key rows are read
          n = n * static_cast<uint64_t>(run.config.qk_nope_head_dim) /
              static_cast<uint64_t>(run.config.qk_nope_head_dim + run.config.v_head_dim);
        }
        sum += n;
      }
    }
    bytes[op.name] = sum;
  }
  return bytes;
}

}  // namespace megartp::glm52
