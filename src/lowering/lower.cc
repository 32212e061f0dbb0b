#include "lowering/lower.h"

#include <fmt/format.h>

#include "lowering/passes.h"

namespace megartp {

std::string_view to_string(EdgePolicy policy) {
  switch (policy) {
    case EdgePolicy::kWhole: return "whole";
    case EdgePolicy::kTileEqual: return "tile_equal";
    case EdgePolicy::kTileCover: return "tile_cover";
    case EdgePolicy::kTileReduce: return "tile_reduce";
  }
  return "?";
}

std::string_view to_string(HazardKind kind) {
  switch (kind) {
    case HazardKind::kRaw: return "raw";
    case HazardKind::kWar: return "war";
    case HazardKind::kWaw: return "waw";
  }
  return "?";
}

std::string_view to_string(EventMode mode) {
  switch (mode) {
    case EventMode::kExact: return "exact";
    case EventMode::kAuto: return "auto";
    case EventMode::kGcd: return "gcd";
    case EventMode::kWhole: return "whole";
  }
  return "?";
}

Result<EventMode> parse_event_mode(std::string_view name) {
  for (const EventMode mode : {EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole})
    if (to_string(mode) == name) return mode;
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("unknown event mode '{}'; known: exact, auto, gcd, whole", name));
}

Result<TaskGraph> lower(const OpGraph& graph, const ShapeEnv& shapes, const LowerOptions& options) {
  if (!graph.status()) return tl::unexpected(graph.status().error());
  if (graph.ops().empty())
    return make_error(ErrorCode::kInvalidArgument, "graph '" + graph.name() + "' has no ops, nothing to lower");
  TaskGraph out;
  out.finalizer = options.finalizer;
  out.any_shape = options.any_shape;
  out.num_sms = options.num_sms;
  MEGARTP_TRY(lowering::resolve_tensors(graph, shapes, out));
  MEGARTP_TRY(lowering::build_stages(graph, out));
  MEGARTP_TRY(lowering::expand_tasks(out));
  MEGARTP_TRY(lowering::derive_events(out, options.events));
  return out;
}

}  // namespace megartp
