// libFuzzer entry of partition graphs: whatever the text is, reading ends with a one-line error or a graph that is
// written and read back as the same text; a small one is lowered too, in every mode, and its result printed.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "partition/partition_json.h"

namespace {

// Above this an input is slow rather than interesting.
constexpr int64_t kMaxTasks = 512;

bool is_small(const megartp::PartitionGraph& graph) {
  int64_t tasks = 0;
  for (const megartp::PartitionOp& op : graph.ops) tasks += op.num_tasks();
  return tasks <= kMaxTasks;
}

void check_error(const megartp::Error& error) {
  const std::string text = error.to_string();
  if (text.empty() || text.find('\n') != std::string::npos || error.code == megartp::ErrorCode::kInternal) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto graph = megartp::partition_graph_from_json({reinterpret_cast<const char*>(data), size});
  if (!graph) {
    check_error(graph.error());
    return 0;
  }
  const std::string json = megartp::to_json(*graph);
  const auto again = megartp::partition_graph_from_json(json);
  if (!again || megartp::to_json(*again) != json) std::abort();
  if (!is_small(*graph)) return 0;
  for (const auto mode :
       {megartp::EventMode::kExact, megartp::EventMode::kAuto, megartp::EventMode::kGcd, megartp::EventMode::kWhole}) {
    const auto tasks = megartp::lower_partition_graph(*graph, {.mode = mode});
    if (!tasks)
      check_error(tasks.error());
    else if (megartp::partition_result_json(*graph, *tasks).empty())
      std::abort();
  }
  return 0;
}
