#include "partition/partition_json.h"

#include <new>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "graph/json_fields.h"
#include "graph/text.h"

namespace megartp {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
// Tensors are keys of one object.
constexpr JsonLimits kLimits{.max_bytes = size_t{64} << 20, .max_depth = 8, .max_keys = size_t{1} << 14};

// --- reading ---------------------------------------------------------------------------------------------------------

Result<std::vector<int64_t>> read_integers(const JsonFields& fields, std::string_view key, std::string_view owner,
                                           size_t min_size, size_t max_size, std::string_view expected) {
  const Json& list = *fields.find(key);
  const auto fail = [&] { return malformed_json(fields.path(key), fmt::format("{}: expected {}", owner, expected)); };
  if (!list.is_array() || list.size() < min_size || list.size() > max_size) return fail();
  std::vector<int64_t> values;
  for (const Json& v : list) {
    const std::optional<int64_t> value = json_integer(v);
    if (!value) return fail();
    values.push_back(*value);
  }
  return values;
}

std::array<int64_t, 3> to_triple(const std::vector<int64_t>& v) { return {v[0], v[1], v[2]}; }

Status read_tensors(const Json& object, PartitionGraph& graph) {
  if (!object.is_object()) return malformed_json("tensors", "expected an object with one entry a tensor");
  constexpr std::string_view kOptional[] = {"shape"};
  for (const auto& [name, value] : object.items()) {
    const JsonFields f = MEGARTP_TRY(JsonFields::of(value, fmt::format("tensors.{}", quote_name(name)), {}, kOptional));
    PartitionTensor tensor{name, std::nullopt};
    if (f.find("shape") != nullptr)
      tensor.shape = MEGARTP_TRY(read_integers(f, "shape", fmt::format("tensor {}", quote_name(name)), 1, kMaxRank,
                                               "a list of 1 to 4 extents"));
    graph.tensors.push_back(std::move(tensor));
  }
  return {};
}

Status read_accesses(const JsonFields& op, std::string_view key, const std::string& owner,
                     std::vector<PartitionAccess>& out) {
  if (op.find(key) == nullptr) return {};
  const Json& list = *MEGARTP_TRY(op.array(key));
  constexpr std::string_view kRequired[] = {"tensor", "map"};
  for (size_t i = 0; i < list.size(); ++i) {
    const JsonFields f = MEGARTP_TRY(JsonFields::of(list[i], fmt::format("{}[{}]", op.path(key), i), kRequired));
    PartitionAccess access;
    access.tensor = MEGARTP_TRY(f.string("tensor"));
    access.map =
        to_triple(MEGARTP_TRY(read_integers(f, "map", fmt::format("{}, tensor {}", owner, quote_name(access.tensor)), 3,
                                            3, "the tensor dims that grid x, y and z split, -1 for none")));
    out.push_back(std::move(access));
  }
  return {};
}

Result<PartitionOp> read_op(const Json& value, std::string where) {
  constexpr std::string_view kRequired[] = {"name", "grid"};
  constexpr std::string_view kOptional[] = {"inputs", "outputs"};
  const JsonFields f = MEGARTP_TRY(JsonFields::of(value, std::move(where), kRequired, kOptional));
  PartitionOp op;
  op.name = MEGARTP_TRY(f.string("name"));
  const std::string owner = fmt::format("op {}", quote_name(op.name));
  op.grid = to_triple(MEGARTP_TRY(read_integers(f, "grid", owner, 3, 3, "three integers, grid x, y and z")));
  MEGARTP_TRY(read_accesses(f, "inputs", owner, op.inputs));
  MEGARTP_TRY(read_accesses(f, "outputs", owner, op.outputs));
  return op;
}

Result<PartitionGraph> read_graph(std::string_view text) {
  const Json root = MEGARTP_TRY(parse_json(text, kLimits));
  constexpr std::string_view kRequired[] = {"partition_graph", "ops"};
  constexpr std::string_view kOptional[] = {"tensors"};
  const JsonFields f = MEGARTP_TRY(JsonFields::of(root, "", kRequired, kOptional));
  if (json_integer(*f.find("partition_graph")) != kFormatVersion)
    return malformed_json("partition_graph",
                          fmt::format("unknown version of the partition graph format, expected {}", kFormatVersion));
  PartitionGraph graph;
  if (const Json* tensors = f.find("tensors"); tensors != nullptr) MEGARTP_TRY(read_tensors(*tensors, graph));
  const Json& ops = *MEGARTP_TRY(f.array("ops"));
  for (size_t i = 0; i < ops.size(); ++i) graph.ops.push_back(MEGARTP_TRY(read_op(ops[i], fmt::format("ops[{}]", i))));
  if (Status status = check_partition_graph(graph); !status) {
    // It is the file that is wrong, whatever rule it breaks.
    status.error().code = ErrorCode::kParse;
    return tl::unexpected(std::move(status).error());
  }
  return graph;
}

// --- writing ---------------------------------------------------------------------------------------------------------

Json accesses_json(const std::vector<PartitionAccess>& accesses) {
  Json list = Json::array();
  for (const PartitionAccess& a : accesses) list.push_back({{"tensor", a.tensor}, {"map", a.map}});
  return list;
}

Json edge_json(const TaskGraph& tasks, const StageEdge& edge) {
  Json hazards = Json::array();
  for (const HazardKind kind : {HazardKind::kRaw, HazardKind::kWar, HazardKind::kWaw})
    if ((edge.hazards & 1U << static_cast<uint32_t>(kind)) != 0) hazards.push_back(to_string(kind));
  return {{"producer", tasks.op_names[tasks.stages[edge.producer_stage].op]},
          {"consumer", tasks.op_names[tasks.stages[edge.consumer_stage].op]},
          {"tensor", tasks.tensors[edge.tensor].name},
          {"hazards", std::move(hazards)}};
}

Json events_json(const StageEdge& edge) {
  Json list = Json::array();
  for (const EventShape& e : edge.events)
    list.push_back({{"triggers", e.triggers}, {"consumers", e.consumers}, {"count", e.count}});
  return list;
}

}  // namespace

Result<PartitionGraph> partition_graph_from_json(std::string_view text) {
  try {
    return read_graph(text);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory,
                      fmt::format("no memory to read a partition graph of {} bytes", text.size()));
  }
}

std::string to_json(const PartitionGraph& graph) {
  Json root;
  root["partition_graph"] = kFormatVersion;
  Json tensors = Json::object();
  for (const PartitionTensor& t : graph.tensors) {
    tensors[t.name] = Json::object();
    if (t.shape) tensors[t.name]["shape"] = *t.shape;
  }
  root["tensors"] = std::move(tensors);
  Json ops = Json::array();
  for (const PartitionOp& op : graph.ops)
    ops.push_back({{"name", op.name},
                   {"grid", op.grid},
                   {"inputs", accesses_json(op.inputs)},
                   {"outputs", accesses_json(op.outputs)}});
  root["ops"] = std::move(ops);
  return root.dump();
}

PartitionCounts count_partition(const TaskGraph& tasks) {
  PartitionCounts counts;
  counts.events = tasks.events.size();
  for (const Task& task : tasks.tasks) {
    if (is_relay(tasks.stages[task.stage])) {
      ++counts.relay_tasks;
      continue;
    }
    ++counts.tasks;
    counts.roots += task.num_waits == 0 ? 1 : 0;
    counts.end_triggers += task.num_signals == 0 ? 1 : 0;
  }
  return counts;
}

std::string partition_result_json(const PartitionGraph& graph, const TaskGraph& tasks) {
  const PartitionCounts counts = count_partition(tasks);
  Json result;
  result["mode"] = to_string(tasks.event_mode);
  result["tasks"] = counts.tasks;
  result["relay_tasks"] = counts.relay_tasks;
  result["events"] = counts.events;
  result["roots"] = counts.roots;
  result["end_triggers"] = counts.end_triggers;
  Json edges = Json::array();
  Json implied = Json::array();
  for (const StageEdge& edge : tasks.edges) {
    Json entry = edge_json(tasks, edge);
    if (edge.is_implied) {
      implied.push_back(std::move(entry));
      continue;
    }
    entry["policy"] = to_string(edge.policy);
    entry["events"] = events_json(edge);
    edges.push_back(std::move(entry));
  }
  result["edges"] = std::move(edges);
  result["implied_edges"] = std::move(implied);
  result["warnings"] = partition_warnings(graph);
  return result.dump();
}

}  // namespace megartp
