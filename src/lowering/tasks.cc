// expand_tasks: one task a tile.
#include <limits>

#include <fmt/format.h>

#include "lowering/passes.h"

namespace megartp::lowering {

Status expand_tasks(TaskGraph& graph) {
  uint64_t num_tasks = 0;
  uint64_t num_groups = graph.join_counts.size();
  for (TaskStage& s : graph.stages) {
    s.first_task = static_cast<uint32_t>(num_tasks);
    num_tasks += s.stage->num_tiles;
    num_groups += s.stage->num_join_groups;
    if (num_tasks > std::numeric_limits<int32_t>::max() || num_groups > std::numeric_limits<int32_t>::max())
      return make_error(ErrorCode::kOutOfResources,
                        fmt::format("op '{}' (stage '{}'): more than 2^31 tasks", graph.op_names[s.op], s.stage->name));
  }
  graph.tasks.reserve(num_tasks);
  TileDesc tile;
  tile.wants_regions = false;
  for (uint32_t s = 0; s < graph.stages.size(); ++s) {
    const Stage& stage = *graph.stages[s].stage;
    const auto first_group = static_cast<uint32_t>(graph.join_counts.size());
    graph.join_counts.resize(first_group + stage.num_join_groups, 0);
    for (uint32_t t = 0; t < stage.num_tiles; ++t) {
      tile.clear();
      stage.tile(t, tile);
      Task& task = graph.tasks.emplace_back();
      task.stage = s;
      task.opcode = stage.opcode;
      task.tile = t;
      task.num_payload = static_cast<uint8_t>(tile.num_payload);
      task.payload = tile.payload;
      task.bytes = static_cast<float>(tile.weight_bytes + tile.other_bytes);
      task.flops = static_cast<float>(tile.flops);
      if ((tile.join_group == abi::kNoJoin) != (stage.num_join_groups == 0) ||
          (tile.join_group != abi::kNoJoin && tile.join_group >= stage.num_join_groups))
        return make_error(ErrorCode::kInternal,
                          fmt::format("stage '{}': tile {} has no valid join group", stage.name, t));
      if (tile.join_group == abi::kNoJoin) continue;
      task.join_group = first_group + tile.join_group;
      ++graph.join_counts[task.join_group];
    }
  }
  return {};
}

}  // namespace megartp::lowering
