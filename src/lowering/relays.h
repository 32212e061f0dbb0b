// Relay tasks: wait, signal, nothing else.
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "lowering/task_graph.h"

namespace megartp::lowering {

struct Relay {
  uint32_t stage = 0;           // whose signals or waits it carries
  bool is_after = false;        // stands after the stage (it carries signals), not before (it carries waits)
  std::vector<uint32_t> waits;  // events
  std::vector<std::pair<uint32_t, uint64_t>> signals;  // event, increment
};

// Gives the relays stages of their own beside the stages that they serve, and renumbers stages and tasks. Errors
// (kOutOfResources): too many tasks, an increment that does not fit.
Status insert_relays(TaskGraph& graph, std::vector<Relay> relays);

}  // namespace megartp::lowering
