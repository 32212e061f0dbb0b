#include "megartp/op_graph.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include <fmt/format.h>

#include "graph/op_schema.h"
#include "graph/text.h"

namespace megartp {
namespace {

constexpr size_t kMaxTensorRank = 4;
// What regions can express.
constexpr int64_t kMaxConstDim = std::numeric_limits<int32_t>::max();

Error invalid_argument(std::string message) { return Error{ErrorCode::kInvalidArgument, std::move(message), {}}; }

Status check_name(std::string_view what, std::string_view name) {
  const std::string_view problem = name_problem(name);
  if (problem.empty()) return {};
  return tl::unexpected(invalid_argument(fmt::format("the {} name {} {}", what, quote_name(name), problem)));
}

// A symbolic dim must survive its text form: "M", "round_up(KV, 256)".
bool is_sound(const Dim& dim) {
  if (dim.is_const()) return dim.align == 1 && dim.value > 0 && dim.value <= kMaxConstDim;
  if (dim.symbol.find('*') != std::string::npos) return false;  // schemas' wildcard
  const Result<Dim> parsed = parse_dim(to_string(dim));
  return parsed && *parsed == dim;
}

Status check_shape(std::string_view name, const Shape& shape) {
  if (shape.empty() || shape.size() > kMaxTensorRank)
    return tl::unexpected(invalid_argument(
        fmt::format("tensor {} has {} dimensions, expected 1 to {}", quote_name(name), shape.size(), kMaxTensorRank)));
  for (size_t d = 0; d < shape.size(); ++d)
    if (!is_sound(shape[d]))
      return tl::unexpected(invalid_argument(fmt::format(
          "tensor {} has shape {}: dimension {} must be a constant from 1 to {}, a symbol, or a symbol rounded up",
          quote_name(name), to_string(shape), d, kMaxConstDim)));
  return {};
}

// Names and types against the schema; values that have no text form are refused.
Status check_attrs(std::string_view what, const OpSchema& schema, const Attrs& attrs) {
  const auto specs = schema.attr_specs();
  for (const auto& [name, value] : attrs.items()) {
    const auto it = std::find_if(specs.begin(), specs.end(), [&](const AttrSpec& s) { return s.name == name; });
    const auto refuse = [&](std::string_view problem) {
      return tl::unexpected(invalid_argument(fmt::format("{}: {} attribute {}", what, problem, quote_name(name))));
    };
    if (it == specs.end()) return refuse("unknown");
    if (it->default_value.index() != value.index()) return refuse("wrong type of");
    if (attrs.find(name) != &value) return refuse("repeated");
    if (const double* d = std::get_if<double>(&value); d != nullptr && !std::isfinite(*d))
      return refuse("non-finite value of");
    if (const std::string* s = std::get_if<std::string>(&value); s != nullptr && !is_valid_utf8(*s))
      return refuse("malformed UTF-8 in");
  }
  return {};
}

// An op may write its input only if it is the caller's to write, and only if it does not read it through another input
// as well: the order between its own tiles would be undefined.
Status check_updates(std::string_view what, std::span<const TensorInfo> inputs, std::span<const Tensor> ids,
                     std::span<const uint32_t> updates) {
  for (const uint32_t position : updates) {
    if (position >= inputs.size())
      return make_error(ErrorCode::kInternal,
                        fmt::format("{}: the schema updates input {} of {}", what, position, inputs.size()));
    const TensorInfo& t = inputs[position];
    if (t.storage == Storage::kRuntimeArg || t.storage == Storage::kWeight)
      return tl::unexpected(invalid_argument(fmt::format("{}: writes tensor {}, which is a read-only {}", what,
                                                         quote_name(t.name), to_string(t.storage))));
    for (size_t i = 0; i < ids.size(); ++i)
      if (i != position && ids[i].id == ids[position].id)
        return tl::unexpected(invalid_argument(
            fmt::format("{}: updates tensor {} in place and takes it as another input too", what, quote_name(t.name))));
  }
  return {};
}

}  // namespace

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

OpGraph::OpGraph(std::string name) : name_(std::move(name)) {
  if (Status s = check_name("graph", name_); !s) fail(std::move(s).error());
}

void OpGraph::fail(Error error) {
  if (status_) status_ = tl::unexpected(std::move(error).with("graph", quote_name(name_)));
}

Status OpGraph::check_tensor(const TensorInfo& info) const {
  MEGARTP_TRY(check_name("tensor", info.name));
  if (tensor_names_.contains(info.name))
    return tl::unexpected(invalid_argument(fmt::format("tensor {} exists already", quote_name(info.name))));
  return check_shape(info.name, info.shape);
}

Tensor OpGraph::push_tensor(TensorInfo info) {
  const auto id = static_cast<TensorId>(tensors_.size());
  tensor_names_.emplace(info.name, id);
  tensors_.push_back(std::move(info));
  return Tensor{id};
}

Tensor OpGraph::add_tensor(TensorInfo info) {
  if (!status_) return {};
  if (Status s = check_tensor(info); !s) {
    fail(std::move(s).error());
    return {};
  }
  return push_tensor(std::move(info));
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

std::vector<Tensor> OpGraph::op(std::string_view kind, std::string_view name, std::span<const Tensor> inputs,
                                Attrs attrs, std::span<const std::string_view> output_names) {
  // Callers index the result, so an error still returns as many (invalid) tensors as could be asked for.
  constexpr size_t kMaxOutputs = 8;
  if (!status_) return std::vector<Tensor>(kMaxOutputs);
  Result<std::vector<Tensor>> outputs = record_op(kind, name, inputs, std::move(attrs), output_names);
  if (outputs) return std::move(*outputs);
  fail(std::move(outputs).error());
  return std::vector<Tensor>(kMaxOutputs);
}

Result<std::vector<Tensor>> OpGraph::record_op(std::string_view kind, std::string_view name,
                                               std::span<const Tensor> inputs, Attrs attrs,
                                               std::span<const std::string_view> output_names) {
  const OpSchema* schema = find_op_schema(kind);
  if (schema == nullptr)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("op {}: unknown op kind {}", quote_name(name), quote_name(kind)));
  std::string op_name(name);
  if (op_name.empty()) {
    for (size_t n = ops_.size(); op_name.empty() || op_names_.contains(op_name); ++n)
      op_name = std::string(kind) + "_" + std::to_string(n);
  }
  MEGARTP_TRY(check_name("op", op_name));
  const std::string what = fmt::format("op {} ({})", quote_name(op_name), kind);
  if (op_names_.contains(op_name))
    return tl::unexpected(invalid_argument(what + ": an op of this name exists already"));

  const auto input_names = schema->input_names();
  if (inputs.size() != input_names.size())
    return tl::unexpected(
        invalid_argument(fmt::format("{}: takes {} inputs, got {}", what, input_names.size(), inputs.size())));
  OpInfo info{op_name, std::string(kind), {}, {}, {}, std::move(attrs)};
  std::vector<TensorInfo> input_infos;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].id >= tensors_.size())
      return tl::unexpected(
          invalid_argument(fmt::format("{}: input '{}' is not a tensor of this graph", what, input_names[i])));
    info.inputs.push_back(inputs[i].id);
    input_infos.push_back(tensors_[inputs[i].id]);
  }
  MEGARTP_TRY(check_attrs(what, *schema, info.attrs));
  InferResult inferred = MEGARTP_TRY(schema->infer(InferContext{op_name, input_infos, info.attrs, kind}));
  MEGARTP_TRY(check_updates(what, input_infos, inputs, inferred.updates));
  for (const uint32_t position : inferred.updates) info.updates.push_back(info.inputs[position]);

  if (!output_names.empty() && output_names.size() != inferred.outputs.size())
    return tl::unexpected(invalid_argument(
        fmt::format("{}: defines {} outputs, got {} names", what, inferred.outputs.size(), output_names.size())));
  std::vector<TensorInfo> defined;
  for (size_t i = 0; i < inferred.outputs.size(); ++i) {
    OutputSpec& spec = inferred.outputs[i];
    TensorInfo t{op_name + "." + (spec.name.empty() ? "out" : spec.name),
                 spec.dtype,
                 std::move(spec.shape),
                 Storage::kActivation,
                 static_cast<OpId>(ops_.size()),
                 spec.is_partial};
    if (!output_names.empty()) t.name = std::string(output_names[i]);
    Status sound = check_tensor(t);
    if (sound && std::any_of(defined.begin(), defined.end(), [&](const TensorInfo& d) { return d.name == t.name; }))
      sound = tl::unexpected(invalid_argument(fmt::format("tensor {} exists already", quote_name(t.name))));
    if (!sound) return tl::unexpected(std::move(sound).error().with("op", quote_name(op_name)));
    defined.push_back(std::move(t));
  }
  // Everything is checked: from here on nothing fails, so an op is recorded whole or not at all.
  std::vector<Tensor> outputs;
  for (TensorInfo& t : defined) outputs.push_back(push_tensor(std::move(t)));
  for (const Tensor t : outputs) info.outputs.push_back(t.id);
  op_names_.emplace(op_name, static_cast<OpId>(ops_.size()));
  ops_.push_back(std::move(info));
  return outputs;
}

void OpGraph::set_outputs(std::span<const Tensor> outputs) {
  if (!status_) return;
  for (const Tensor t : outputs) {
    if (t.id >= tensors_.size()) return fail(invalid_argument("set_outputs: not a tensor of this graph"));
    const TensorInfo& info = tensors_[t.id];
    if (info.storage == Storage::kRuntimeArg || info.storage == Storage::kWeight)
      return fail(invalid_argument(
          fmt::format("set_outputs: tensor {} is a read-only {}", quote_name(info.name), to_string(info.storage))));
  }
  for (const Tensor t : outputs) {
    if (std::find(outputs_.begin(), outputs_.end(), t.id) != outputs_.end()) continue;
    if (tensors_[t.id].storage == Storage::kActivation) tensors_[t.id].storage = Storage::kOutput;
    outputs_.push_back(t.id);
  }
}

// --- typed calls: each is one line over op()
// ---------------------------------------------------------------------------

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
