#include <nlohmann/json.hpp>

#include "verify/launch/launch_json.h"

namespace megartp::launch {
namespace {

using Json = nlohmann::ordered_json;

Json device_json(const Device& d) {
  return {{"name", d.name},       {"sms", d.num_sms}, {"registers", d.registers},
          {"threads", d.threads}, {"ctas", d.ctas},   {"smem_bytes", d.smem_bytes}};
}

Json buffer_json(const Buffer& b) {
  Json j{{"name", b.name}, {"bytes", b.num_bytes}};
  if (b.kind != BufferKind::kData) j["kind"] = to_string(b.kind);
  if (b.advances) j["advances"] = true;
  return j;
}

// Defaults are left out, except the phase: what it is by default depends on the node.
Json access_json(const std::vector<Buffer>& buffers, const Access& a) {
  Json j{{"buffer", buffers[a.buffer].name}, {"range", {a.begin, a.end}}, {"phase", to_string(a.phase)}};
  if (a.means != Means::kGeneric) j["how"] = to_string(a.means);
  if (a.ordered_by != OrderedBy::kWait) j["ordered_by"] = to_string(a.ordered_by);
  if (a.before_trigger) j["before_trigger"] = true;
  if (a.proxy_fenced) j["proxy_fenced"] = true;
  if (a.resets) j["resets"] = true;
  return j;
}

void put_resources(Json& j, const Node& n) {
  if (n.grid != 1) j["grid"] = n.grid;
  if (n.resident_ctas != 0) j["resident_ctas"] = n.resident_ctas;
  if (n.threads != 0) j["threads"] = n.threads;
  if (n.registers != 0) j["registers"] = n.registers;
  if (n.smem_bytes != 0) j["smem_bytes"] = n.smem_bytes;
  if (n.is_cooperative) j["cooperative"] = true;
  if (n.priority != 0) j["priority"] = n.priority;
  if (n.sync_domain != 0) j["sync_domain"] = n.sync_domain;
  if (n.prologue != Prologue::kUnknown) j["prologue"] = to_string(n.prologue);
}

Json node_json(const std::vector<Buffer>& buffers, const std::vector<Node>& nodes, const Node& n) {
  Json j{{"name", n.name}};
  if (n.kind != NodeKind::kKernel) j["kind"] = to_string(n.kind);
  if (n.waits != Waits::kNone) j["waits"] = to_string(n.waits);
  if (n.trigger != Trigger::kNone) j["trigger"] = to_string(n.trigger);
  if (n.fence != Fence::kNone) j["fence"] = to_string(n.fence);
  if (n.proxy_fence) j["proxy_fence"] = true;
  if (n.bulk_drained) j["bulk_drained"] = true;
  if (!n.is_inspected) j["inspected"] = false;
  if (n.code_waits) j["code_waits"] = to_string(*n.code_waits);
  put_resources(j, n);
  for (const uint32_t spun : n.spins_on) j["spins_on"].push_back(nodes[spun].name);
  for (const Access& a : n.accesses) j[a.is_write ? "writes" : "reads"].push_back(access_json(buffers, a));
  return j;
}

Json head_json(const Device& device, const std::vector<Buffer>& buffers, const std::vector<Node>& nodes,
               uint32_t replay_streams) {
  Json j{{"launch", 1}, {"device", device_json(device)}};
  j["buffers"] = Json::array();
  for (const Buffer& b : buffers) j["buffers"].push_back(buffer_json(b));
  j["nodes"] = Json::array();
  for (const Node& n : nodes) j["nodes"].push_back(node_json(buffers, nodes, n));
  if (replay_streams != 1) j["replay_streams"] = replay_streams;
  return j;
}

}  // namespace

std::string to_json(const Graph& graph) {
  Json j = head_json(graph.device, graph.buffers, graph.nodes, graph.replay_streams);
  j["edges"] = Json::array();
  for (const Edge& e : graph.edges)
    j["edges"].push_back(
        {{"from", graph.nodes[e.from].name}, {"to", graph.nodes[e.to].name}, {"kind", to_string(e.kind)}});
  return j.dump();
}

std::string to_json(const Program& program) {
  Json j = head_json(program.device, program.buffers, program.nodes, program.replay_streams);
  j["capture"] = program.is_captured;
  if (!program.is_captured) j["replays"] = program.num_replays;
  j["program"] = Json::array();
  for (const StreamOp& op : program.ops) {
    Json o{{"stream", program.streams[op.stream]}};
    switch (op.kind) {
      case StreamOpKind::kRecord: o["record"] = program.events[op.event]; break;
      case StreamOpKind::kWait: o["wait"] = program.events[op.event]; break;
      case StreamOpKind::kLaunch:
        o["launch"] = program.nodes[op.node].name;
        if (op.is_programmatic) o["pss"] = true;
        if (op.programmatic_event) o["programmatic_event"] = program.events[*op.programmatic_event];
        if (op.at_block_start) o["at_block_start"] = true;
        if (op.launch_completion_event) o["launch_completion_event"] = program.events[*op.launch_completion_event];
        break;
    }
    j["program"].push_back(std::move(o));
  }
  return j.dump();
}

}  // namespace megartp::launch
