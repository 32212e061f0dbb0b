// Writes the JSON form of an OpGraph. docs/life-of-a-graph.md describes the format.
//
// Tensors stand in id order, ops in program order, one a line, keys in a fixed order: equal graphs give equal bytes.
#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "graph/graph_json.h"
#include "megartp/op_graph.h"

namespace megartp {
namespace {

using Json = nlohmann::ordered_json;

// Never throws: malformed bytes (only possible in a graph that is in error already) are replaced.
std::string dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

Json to_json_value(const Dim& dim) {
  if (dim.is_const()) return dim.value;
  return to_string(dim);
}

Json to_json_value(const TensorInfo& tensor) {
  Json shape = Json::array();
  for (const Dim& d : tensor.shape) shape.push_back(to_json_value(d));
  Json value = {{"name", tensor.name},
                {"dtype", to_string(tensor.dtype)},
                {"shape", std::move(shape)},
                {"storage", to_string(tensor.storage)}};
  if (tensor.is_partial) value["partial"] = true;
  return value;
}

Json names_of(const OpGraph& graph, const std::vector<TensorId>& ids) {
  Json names = Json::array();
  for (const TensorId id : ids) names.push_back(graph.tensor(id).name);
  return names;
}

Json to_json_value(const OpGraph& graph, const OpInfo& op) {
  Json attrs = Json::object();
  // A double is always written with a point or an exponent, so that its type survives.
  for (const auto& [name, value] : op.attrs.items()) std::visit([&](const auto& v) { attrs[name] = v; }, value);
  return {{"name", op.name},
          {"kind", op.kind},
          {"inputs", names_of(graph, op.inputs)},
          {"outputs", names_of(graph, op.outputs)},
          {"updates", names_of(graph, op.updates)},
          {"attrs", std::move(attrs)}};
}

}  // namespace

std::string to_json(const OpGraph& graph) {
  std::string out =
      fmt::format("{{\n  \"megartp_graph\": {},\n  \"name\": {},\n", kGraphFormatVersion, dump(graph.name()));
  const auto lines = [&out](std::string_view key, size_t n, const auto& item) {
    out += fmt::format("  \"{}\": [", key);
    for (size_t i = 0; i < n; ++i) out += (i == 0 ? "\n    " : ",\n    ") + dump(item(i));
    out += n == 0 ? "],\n" : "\n  ],\n";
  };
  lines("tensors", graph.tensors().size(), [&](size_t i) { return to_json_value(graph.tensors()[i]); });
  lines("ops", graph.ops().size(), [&](size_t i) { return to_json_value(graph, graph.ops()[i]); });
  return out + fmt::format("  \"outputs\": {}\n}}\n", dump(names_of(graph, graph.outputs())));
}

}  // namespace megartp
