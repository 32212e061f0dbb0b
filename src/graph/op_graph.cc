#include "megartp/op_graph.h"

#include <algorithm>

#include "graph/op_schema.h"

namespace megartp {

std::string_view to_string(Storage storage) {
  switch (storage) {
    case Storage::kRuntimeArg: return "runtime_arg";
    case Storage::kWeight: return "weight";
    case Storage::kActivation: return "activation";
    case Storage::kState: return "state";
    case Storage::kOutput: return "output";
  }
  return "?";
}

void Attrs::set(std::string_view name, AttrValue value) {
  for (auto& [n, v] : items_) {
    if (n == name) {
      v = std::move(value);
      return;
    }
  }
  items_.emplace_back(name, std::move(value));
}

const AttrValue* Attrs::find(std::string_view name) const {
  for (const auto& [n, v] : items_)
    if (n == name) return &v;
  return nullptr;
}

int64_t Attrs::get_int(std::string_view name, int64_t fallback) const {
  const AttrValue* v = find(name);
  const int64_t* i = v == nullptr ? nullptr : std::get_if<int64_t>(v);
  return i == nullptr ? fallback : *i;
}

double Attrs::get_double(std::string_view name, double fallback) const {
  const AttrValue* v = find(name);
  const double* d = v == nullptr ? nullptr : std::get_if<double>(v);
  return d == nullptr ? fallback : *d;
}

bool Attrs::get_bool(std::string_view name, bool fallback) const {
  const AttrValue* v = find(name);
  const bool* b = v == nullptr ? nullptr : std::get_if<bool>(v);
  return b == nullptr ? fallback : *b;
}

std::string Attrs::get_string(std::string_view name, std::string_view fallback) const {
  const AttrValue* v = find(name);
  const std::string* s = v == nullptr ? nullptr : std::get_if<std::string>(v);
  return s == nullptr ? std::string(fallback) : *s;
}

void OpGraph::fail(Error error) {
  if (status_) status_ = tl::unexpected(std::move(error).with("graph", name_));
}

Tensor OpGraph::add_tensor(TensorInfo info) {
  if (!status_) return {};
  if (info.name.empty()) {
    fail(Error{ErrorCode::kInvalidArgument, "a tensor needs a name", {}});
    return {};
  }
  const auto [it, inserted] = tensor_names_.try_emplace(info.name, static_cast<uint32_t>(tensors_.size()));
  if (!inserted) {
    fail(Error{ErrorCode::kInvalidArgument, "tensor '" + info.name + "' exists already", {}});
    return {};
  }
  if (info.shape.empty() || info.shape.size() > 4) {
    fail(Error{ErrorCode::kInvalidArgument,
               "tensor '" + info.name + "' has " + std::to_string(info.shape.size()) + " dimensions, expected 1 to 4", {}});
    return {};
  }
  for (const Dim& d : info.shape) {
    if (d.is_const() && d.value <= 0) {
      fail(Error{ErrorCode::kInvalidArgument,
                 "tensor '" + info.name + "' has shape " + to_string(info.shape) + "; every dimension must be positive", {}});
      return {};
    }
  }
  tensors_.push_back(std::move(info));
  return Tensor{it->second};
}

Tensor OpGraph::runtime_arg(std::string_view name, DType dtype, Shape shape) {
  return add_tensor({std::string(name), dtype, std::move(shape), Storage::kRuntimeArg, kInvalidId});
}
Tensor OpGraph::bound_weight(std::string_view name, DType dtype, Shape shape) {
  return add_tensor({std::string(name), dtype, std::move(shape), Storage::kWeight, kInvalidId});
}
Tensor OpGraph::state(std::string_view name, DType dtype, Shape shape) {
  return add_tensor({std::string(name), dtype, std::move(shape), Storage::kState, kInvalidId});
}

Tensor OpGraph::find_tensor(std::string_view name) const {
  const auto it = tensor_names_.find(name);
  return it == tensor_names_.end() ? Tensor{} : Tensor{it->second};
}

std::vector<Tensor> OpGraph::op(std::string_view kind, std::string_view name, std::span<const Tensor> inputs, Attrs attrs,
                                std::span<const std::string_view> output_names) {
  const OpSchema* schema = find_op_schema(kind);
  // Callers index the result, so an error still returns as many (invalid) tensors as could be asked for.
  const std::vector<Tensor> invalid(8);
  if (!status_) return invalid;
  if (schema == nullptr) {
    fail(Error{ErrorCode::kUnsupported, "unknown op kind '" + std::string(kind) + "'", {{"op", std::string(name)}}});
    return invalid;
  }
  std::string op_name(name);
  if (op_name.empty()) {
    for (size_t n = ops_.size(); op_name.empty() || op_names_.contains(op_name); ++n)
      op_name = std::string(kind) + "_" + std::to_string(n);
  }
  if (op_names_.contains(op_name)) {
    fail(Error{ErrorCode::kInvalidArgument, "op '" + op_name + "' exists already", {}});
    return invalid;
  }
  const std::string what = "op '" + op_name + "' (" + std::string(kind) + ")";
  const auto names = schema->input_names();
  if (inputs.size() != names.size()) {
    fail(Error{ErrorCode::kInvalidArgument,
               what + ": takes " + std::to_string(names.size()) + " inputs, got " + std::to_string(inputs.size()), {}});
    return invalid;
  }
  OpInfo info{op_name, std::string(kind), {}, {}, {}, std::move(attrs)};
  std::vector<TensorInfo> input_infos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].id >= tensors_.size()) {
      fail(Error{ErrorCode::kInvalidArgument, what + ": input '" + std::string(names[i]) + "' is not a tensor of this graph", {}});
      return invalid;
    }
    info.inputs.push_back(inputs[i].id);
    input_infos.push_back(tensors_[inputs[i].id]);
  }
  for (const auto& [attr_name, value] : info.attrs.items()) {
    const auto specs = schema->attr_specs();
    const auto it = std::find_if(specs.begin(), specs.end(), [&](const AttrSpec& s) { return s.name == attr_name; });
    if (it == specs.end() || it->default_value.index() != value.index()) {
      const char* problem = it == specs.end() ? "unknown attribute '" : "wrong type of attribute '";
      fail(Error{ErrorCode::kInvalidArgument, what + ": " + problem + attr_name + "'", {}});
      return invalid;
    }
  }
  Result<InferResult> inferred = schema->infer(InferContext{op_name, input_infos, info.attrs});
  if (!inferred) {
    fail(std::move(inferred).error());
    return invalid;
  }
  if (!output_names.empty() && output_names.size() != inferred->outputs.size()) {
    fail(Error{ErrorCode::kInvalidArgument,
               what + ": defines " + std::to_string(inferred->outputs.size()) + " outputs, got " +
                   std::to_string(output_names.size()) + " names", {}});
    return invalid;
  }
  for (uint32_t position : inferred->updates) {
    const TensorInfo& t = tensors_[info.inputs[position]];
    if (t.storage == Storage::kRuntimeArg || t.storage == Storage::kWeight) {
      fail(Error{ErrorCode::kInvalidArgument,
                 what + ": writes tensor '" + t.name + "', which is a read-only " + std::string(to_string(t.storage)), {}});
      return invalid;
    }
    info.updates.push_back(info.inputs[position]);
  }
  std::vector<Tensor> outputs;
  const auto op_id = static_cast<OpId>(ops_.size());
  for (size_t i = 0; i < inferred->outputs.size(); ++i) {
    OutputSpec& spec = inferred->outputs[i];
    std::string tensor_name =
        !output_names.empty() ? std::string(output_names[i])
                              : op_name + (spec.name.empty() ? std::string(".out") : "." + spec.name);
    const Tensor t = add_tensor({std::move(tensor_name), spec.dtype, std::move(spec.shape), Storage::kActivation, op_id,
                                 spec.is_partial});
    if (!t.valid()) return invalid;
    outputs.push_back(t);
    info.outputs.push_back(t.id);
  }
  op_names_.emplace(op_name, op_id);
  ops_.push_back(std::move(info));
  return outputs;
}

void OpGraph::set_outputs(std::span<const Tensor> outputs) {
  for (const Tensor t : outputs) {
    if (t.id >= tensors_.size()) {
      fail(Error{ErrorCode::kInvalidArgument, "set_outputs: not a tensor of this graph", {}});
      return;
    }
    TensorInfo& info = tensors_[t.id];
    if (info.storage == Storage::kRuntimeArg || info.storage == Storage::kWeight) {
      fail(Error{ErrorCode::kInvalidArgument, "set_outputs: tensor '" + info.name + "' is a read-only " +
                                                  std::string(to_string(info.storage)), {}});
      return;
    }
    if (std::find(outputs_.begin(), outputs_.end(), t.id) != outputs_.end()) continue;
    if (info.storage == Storage::kActivation) info.storage = Storage::kOutput;
    outputs_.push_back(t.id);
  }
}

// --- typed calls: each is one line over op() ---------------------------------------------------------------------------

Tensor OpGraph::add(Tensor a, Tensor b, std::string_view name) {
  const Tensor in[] = {a, b};
  return op("add", name, in)[0];
}

Tensor OpGraph::rmsnorm(Tensor x, Tensor w, double eps, std::string_view name) {
  const Tensor in[] = {x, w};
  return op("rmsnorm", name, in, {{"eps", eps}})[0];
}

Tensor OpGraph::gemm(Tensor x, Tensor w, std::string_view name) {
  const Tensor in[] = {x, w};
  return op("gemm", name, in)[0];
}

OpGraph::NormQuant OpGraph::add_rmsnorm_quant(Tensor x, Tensor residual, Tensor w, Attrs attrs, std::string_view name) {
  const Tensor in[] = {x, residual, w};
  const auto out = op("add_rmsnorm_quant", name, in, std::move(attrs));
  return {out[0], out[1], out[2], out[3]};
}

OpGraph::QkvA OpGraph::qkv_a(Quantized x, Quantized q_a_proj, Quantized kv_a_proj, Tensor q_norm, Tensor kv_norm,
                             Positions where, Tensor mla_kv_cache, Attrs attrs, std::string_view name) {
  const Tensor in[] = {x.q,    x.scale, q_a_proj.q,      q_a_proj.scale, kv_a_proj.q,        kv_a_proj.scale,
                       q_norm, kv_norm, where.positions, where.cos_sin,  where.slot_mapping, mla_kv_cache};
  const auto out = op("qkv_a", name, in, std::move(attrs));
  return {{out[0], out[1]}, out[2]};
}

Tensor OpGraph::head_gate(Tensor y, Tensor w, std::string_view name) {
  const Tensor in[] = {y, w};
  return op("head_gate", name, in)[0];
}

void OpGraph::indexer_k(Quantized x, Quantized wk, Tensor norm_w, Tensor norm_b, Positions where, Tensor index_k_cache,
                        Attrs attrs, std::string_view name) {
  const Tensor in[] = {x.q,    x.scale,         wk.q,          wk.scale,           norm_w,
                       norm_b, where.positions, where.cos_sin, where.slot_mapping, index_k_cache};
  op("indexer_k", name, in, std::move(attrs));
}

OpGraph::IndexerQ OpGraph::indexer_q(Quantized x, Quantized wq_b, Tensor gate_partials, Positions where, Attrs attrs,
                                     std::string_view name) {
  const Tensor in[] = {x.q, x.scale, wq_b.q, wq_b.scale, gate_partials, where.positions, where.cos_sin};
  const auto out = op("indexer_q", name, in, std::move(attrs));
  return {{out[0], out[1]}, out[2], out[3]};
}

std::pair<Tensor, Tensor> OpGraph::main_q(Quantized x, Quantized q_b_proj, Positions where, Attrs attrs,
                                          std::string_view name) {
  const Tensor in[] = {x.q, x.scale, q_b_proj.q, q_b_proj.scale, where.positions, where.cos_sin};
  const auto out = op("main_q", name, in, std::move(attrs));
  return {out[0], out[1]};
}

void OpGraph::q_absorb(Tensor q_nope, Quantized kv_b, Tensor q_out, Attrs attrs, std::string_view name) {
  const Tensor in[] = {q_nope, kv_b.q, kv_b.scale, q_out};
  op("q_absorb", name, in, std::move(attrs));
}

Tensor OpGraph::indexer_score(Tensor q, Tensor weights, Tensor index_k_cache, Tensor context_lens, Tensor block_table,
                              std::string_view name) {
  const Tensor in[] = {q, weights, index_k_cache, context_lens, block_table};
  return op("indexer_score", name, in)[0];
}

}  // namespace megartp
