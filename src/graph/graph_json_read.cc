// Reads the JSON form of an OpGraph. docs/life-of-a-graph.md describes the format.
//
// Reading records the same calls again: leaf tensors up to the next op's outputs, then the op, whose inferred outputs
// are compared with what the file says. So nothing in a file is believed, and a graph that was read obeys every rule of
// one that was built.
#include <algorithm>
#include <new>
#include <optional>
#include <span>
#include <unordered_map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "graph/graph_json.h"
#include "graph/json_fields.h"
#include "graph/text.h"
#include "megartp/op_graph.h"

namespace megartp {
namespace {

using Json = nlohmann::ordered_json;

// An error of the recording API, as an error of the file at that place.
tl::unexpected<Error> rejected(std::string_view where, Error error) {
  if (error.code != ErrorCode::kInternal) error.code = ErrorCode::kParse;
  return tl::unexpected(std::move(error).with("at", where));
}

bool is_defined_by_op(Storage storage) { return storage == Storage::kActivation || storage == Storage::kOutput; }

std::optional<Storage> parse_storage(std::string_view name) {
  for (const Storage s :
       {Storage::kRuntimeArg, Storage::kWeight, Storage::kActivation, Storage::kState, Storage::kOutput})
    if (to_string(s) == name) return s;
  return std::nullopt;
}

Result<Shape> read_shape(const Json& list, const std::string& where) {
  if (list.size() > JsonFields::kMaxListItems) return malformed_json(where, fmt::format("{} dimensions", list.size()));
  Shape shape;
  for (const Json& v : list) {
    if (v.is_string()) {
      Result<Dim> dim = parse_dim(v.get_ref<const std::string&>());
      // Constants are numbers: one text for each value.
      if (!dim || dim->is_const())
        return malformed_json(where, "malformed dimension " + quote_name(v.get_ref<const std::string&>()));
      shape.push_back(std::move(*dim));
      continue;
    }
    const std::optional<int64_t> value = json_integer(v);
    if (!value) return malformed_json(where, "expected integers, symbols like \"M\", or \"round_up(KV, 256)\"");
    shape.emplace_back(*value);
  }
  return shape;
}

Result<Attrs> read_attrs(const Json* value, const std::string& where) {
  Attrs attrs;
  if (value == nullptr) return attrs;
  if (!value->is_object()) return malformed_json(where, "expected an object");
  for (const auto& [name, v] : value->items()) {
    if (v.is_boolean()) {
      attrs.set(name, v.get<bool>());
    } else if (v.is_number_float()) {
      attrs.set(name, v.get<double>());
    } else if (v.is_string()) {
      attrs.set(name, v.get<std::string>());
    } else if (const std::optional<int64_t> i = json_integer(v)) {
      attrs.set(name, *i);
    } else {
      return malformed_json(where + "." + name, "expected a 64-bit integer, a number, a boolean or a string");
    }
  }
  return attrs;
}

class Reader {
 public:
  explicit Reader(std::string name) : graph_(std::move(name)) {}

  Status read_tensors(const Json& list) {
    constexpr std::string_view kRequired[] = {"name", "dtype", "shape", "storage"};
    constexpr std::string_view kOptional[] = {"partial"};
    for (size_t i = 0; i < list.size(); ++i) {
      const JsonFields f = MEGARTP_TRY(JsonFields::of(list[i], fmt::format("tensors[{}]", i), kRequired, kOptional));
      TensorInfo t;
      t.name = MEGARTP_TRY(f.string("name"));
      const std::string dtype = MEGARTP_TRY(f.string("dtype"));
      const std::string storage = MEGARTP_TRY(f.string("storage"));
      const std::optional<DType> parsed_dtype = parse_dtype(dtype);
      if (!parsed_dtype) return malformed_json(f.path("dtype"), "unknown dtype " + quote_name(dtype));
      const std::optional<Storage> parsed_storage = parse_storage(storage);
      if (!parsed_storage) return malformed_json(f.path("storage"), "unknown storage class " + quote_name(storage));
      t.dtype = *parsed_dtype;
      t.storage = *parsed_storage;
      t.is_partial = MEGARTP_TRY(f.boolean("partial"));
      if (t.is_partial && !is_defined_by_op(t.storage))
        return malformed_json(f.path("partial"), fmt::format("only a tensor that an op defines can be partial, not {}",
                                                             quote_name(t.name)));
      const Json* shape = MEGARTP_TRY(f.array("shape"));
      t.shape = MEGARTP_TRY(read_shape(*shape, f.path("shape")));
      if (!tensor_positions_.emplace(t.name, i).second)
        return malformed_json(f.path("name"), fmt::format("tensor {} is listed twice", quote_name(t.name)));
      tensors_.push_back(std::move(t));
    }
    return {};
  }

  Status read_ops(const Json& list) {
    for (size_t i = 0; i < list.size(); ++i) MEGARTP_TRY(read_op(list[i], fmt::format("ops[{}]", i)));
    MEGARTP_TRY(declare_leaves());
    if (next_ < tensors_.size())
      return malformed_json(fmt::format("tensors[{}]", next_),
                            fmt::format("no op defines the {} tensor {}", to_string(tensors_[next_].storage),
                                        quote_name(tensors_[next_].name)));
    return {};
  }

  Status read_outputs(const std::vector<std::string>& names) {
    std::vector<Tensor> outputs;
    for (const std::string& name : names) {
      const Tensor t = graph_.find_tensor(name);
      if (!t.valid()) return malformed_json("outputs", "unknown tensor " + quote_name(name));
      if (std::any_of(outputs.begin(), outputs.end(), [t](Tensor o) { return o.id == t.id; }))
        return malformed_json("outputs", fmt::format("tensor {} is listed twice", quote_name(name)));
      outputs.push_back(t);
    }
    graph_.set_outputs(outputs);
    if (!graph_.status()) return rejected("outputs", graph_.status().error());
    for (size_t i = 0; i < tensors_.size(); ++i)
      if (const Storage actual = graph_.tensor(static_cast<TensorId>(i)).storage; actual != tensors_[i].storage)
        return malformed_json(
            fmt::format("tensors[{}].storage", i),
            fmt::format("tensor {} is listed as {}, but the list of outputs makes it {}", quote_name(tensors_[i].name),
                        to_string(tensors_[i].storage), to_string(actual)));
    return {};
  }

  OpGraph take() { return std::move(graph_); }

 private:
  // Records the args, weights and states that come before the next tensor that an op defines.
  Status declare_leaves() {
    for (; next_ < tensors_.size() && !is_defined_by_op(tensors_[next_].storage); ++next_) {
      const TensorInfo& t = tensors_[next_];
      if (t.storage == Storage::kRuntimeArg) graph_.runtime_arg(t.name, t.dtype, t.shape);
      if (t.storage == Storage::kWeight) graph_.bound_weight(t.name, t.dtype, t.shape);
      if (t.storage == Storage::kState) graph_.state(t.name, t.dtype, t.shape);
      if (!graph_.status()) return rejected(fmt::format("tensors[{}]", next_), graph_.status().error());
    }
    return {};
  }

  Result<std::vector<Tensor>> find_inputs(const std::vector<std::string>& names, const std::string& op_name,
                                          const std::string& where) const {
    std::vector<Tensor> inputs;
    for (const std::string& name : names) {
      inputs.push_back(graph_.find_tensor(name));
      if (inputs.back().valid()) continue;
      const bool later = tensor_positions_.contains(name);
      return malformed_json(
          where,
          later ? fmt::format("op {}: tensor {} is used before it is defined", quote_name(op_name), quote_name(name))
                : fmt::format("op {}: unknown tensor {}", quote_name(op_name), quote_name(name)));
    }
    return inputs;
  }

  Status read_op(const Json& value, const std::string& where) {
    constexpr std::string_view kRequired[] = {"name", "kind", "inputs", "outputs"};
    constexpr std::string_view kOptional[] = {"updates", "attrs"};
    const JsonFields f = MEGARTP_TRY(JsonFields::of(value, where, kRequired, kOptional));
    const std::string name = MEGARTP_TRY(f.string("name"));
    const std::string kind = MEGARTP_TRY(f.string("kind"));
    if (name.empty()) return malformed_json(f.path("name"), "the op name is empty");
    const std::vector<std::string> output_names = MEGARTP_TRY(f.names("outputs"));
    Attrs attrs = MEGARTP_TRY(read_attrs(f.find("attrs"), f.path("attrs")));
    MEGARTP_TRY(declare_leaves());
    const std::vector<std::string> input_names = MEGARTP_TRY(f.names("inputs"));
    const std::vector<std::string> updates = MEGARTP_TRY(f.names("updates"));
    const std::vector<Tensor> inputs = MEGARTP_TRY(find_inputs(input_names, name, f.path("inputs")));

    const std::vector<std::string_view> views(output_names.begin(), output_names.end());
    const std::vector<Tensor> outputs = graph_.op(kind, name, inputs, std::move(attrs), views);
    if (!graph_.status()) return rejected(where, graph_.status().error());
    if (outputs.size() != output_names.size())
      return malformed_json(f.path("outputs"), fmt::format("op {} ({}) defines {} outputs, the file lists none",
                                                           quote_name(name), kind, outputs.size()));
    MEGARTP_TRY(check_updates(graph_.ops().back(), updates, f.path("updates")));
    for (const Tensor t : outputs) MEGARTP_TRY(check_output(graph_.ops().back(), t));
    return {};
  }

  Status check_updates(const OpInfo& op, const std::vector<std::string>& listed, const std::string& where) const {
    std::vector<std::string> actual;
    for (const TensorId id : op.updates) actual.push_back(graph_.tensor(id).name);
    if (actual == listed) return {};
    const auto list = [](const std::vector<std::string>& names) {
      std::string s = "[";
      for (const std::string& n : names) s += (s.size() == 1 ? "" : ", ") + quote_name(n);
      return s + "]";
    };
    return malformed_json(where, fmt::format("op {} ({}) updates {}, the file says {}", quote_name(op.name), op.kind,
                                             list(actual), list(listed)));
  }

  // Compares an inferred output with the next tensor of the file.
  Status check_output(const OpInfo& op, Tensor output) {
    const TensorInfo& actual = graph_.tensor(output.id);
    if (next_ >= tensors_.size() || tensors_[next_].name != actual.name) {
      const auto it = tensor_positions_.find(actual.name);
      if (it == tensor_positions_.end())
        return malformed_json(
            "tensors", fmt::format("op {}: its output {} is not listed", quote_name(op.name), quote_name(actual.name)));
      return malformed_json(fmt::format("tensors[{}]", it->second),
                            fmt::format("op {}: its output {} is not listed where the op defines it (expected at {})",
                                        quote_name(op.name), quote_name(actual.name), next_));
    }
    const TensorInfo& listed = tensors_[next_];
    const auto mismatch = [&](std::string_view what, std::string_view is, std::string_view says) {
      return malformed_json(fmt::format("tensors[{}].{}", next_, what),
                            fmt::format("op {} ({}): tensor {} has {} {} by inference, the file says {}",
                                        quote_name(op.name), op.kind, quote_name(actual.name), what, is, says));
    };
    if (listed.dtype != actual.dtype) return mismatch("dtype", to_string(actual.dtype), to_string(listed.dtype));
    if (listed.is_partial != actual.is_partial)
      return mismatch("partial", actual.is_partial ? "true" : "false", listed.is_partial ? "true" : "false");
    if (listed.shape != actual.shape) return mismatch("shape", to_string(actual.shape), to_string(listed.shape));
    ++next_;
    return {};
  }

  OpGraph graph_;
  std::vector<TensorInfo> tensors_;  // as listed
  std::unordered_map<std::string, size_t> tensor_positions_;
  size_t next_ = 0;  // the first listed tensor that the graph does not hold yet
};

Result<OpGraph> read_graph(std::string_view text) {
  const Json root = MEGARTP_TRY(parse_json(text));
  constexpr std::string_view kRequired[] = {"megartp_graph", "name", "tensors", "ops", "outputs"};
  const JsonFields f = MEGARTP_TRY(JsonFields::of(root, "", kRequired));
  if (const auto version = json_integer(*f.find("megartp_graph")); version != kGraphFormatVersion)
    return malformed_json("megartp_graph",
                          fmt::format("unknown version of the graph format, expected {}", kGraphFormatVersion));
  const std::string name = MEGARTP_TRY(f.string("name"));
  if (const std::string_view problem = name_problem(name); !problem.empty())
    return malformed_json("name", fmt::format("the graph name {} {}", quote_name(name), problem));
  Reader reader(name);
  const Json* tensors = MEGARTP_TRY(f.array("tensors"));
  const Json* ops = MEGARTP_TRY(f.array("ops"));
  const std::vector<std::string> outputs = MEGARTP_TRY(f.names("outputs"));
  MEGARTP_TRY(reader.read_tensors(*tensors));
  MEGARTP_TRY(reader.read_ops(*ops));
  MEGARTP_TRY(reader.read_outputs(outputs));
  return reader.take();
}

}  // namespace

Result<OpGraph> graph_from_json(std::string_view text) {
  try {
    return read_graph(text);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory, fmt::format("no memory to read a graph of {} bytes", text.size()));
  }
}

}  // namespace megartp
