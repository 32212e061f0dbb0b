// What would settle a hazard: single changes of the graph, each tried with the prover's own relations.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/launch/launch_order.h"

namespace megartp::launch {

enum class RemedyKind : uint8_t {
  kMovePost,      // the access follows the wait of its kernel
  kWait,          // a kernel waits in every CTA
  kTriggerLater,  // a kernel triggers after its wait
  kWaitTrigger,   // both
  kPassOn,        // both, with a release fence between them
  kPlainLoad,     // an ordinary load instead of the read-only path
  kPublish,       // fence, proxy fence and trigger after the access
  kRelease,       // a kernel between them fences before its trigger
  kFullEdge,      // a programmatic edge made full
  kNewEdge,       // a full edge between the two
};
struct Remedy {
  RemedyKind kind = RemedyKind::kWait;
  uint32_t node = 0;             // whose contract changes
  std::optional<uint32_t> edge;  // of kFullEdge
  std::string text;
};

// Remedies of a conflict that find_gap objects to, cheapest first.
std::vector<Remedy> find_remedies(const Graph& graph, const Conflict& conflict);

}  // namespace megartp::launch
