#include "lowering/lower.h"

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

Result<TaskGraph> lower(const OpGraph& graph, const ShapeEnv& shapes, const LowerOptions& options) {
  if (!graph.status()) return tl::unexpected(graph.status().error());
  if (graph.ops().empty())
    return make_error(ErrorCode::kInvalidArgument, "graph '" + graph.name() + "' has no ops, nothing to lower");
  TaskGraph out;
  out.finalizer = options.finalizer;
  MEGARTP_TRY(lowering::resolve_tensors(graph, shapes, out));
  MEGARTP_TRY(lowering::build_stages(graph, out));
  MEGARTP_TRY(lowering::expand_tasks(out));
  MEGARTP_TRY(lowering::derive_events(out));
  return out;
}

}  // namespace megartp
