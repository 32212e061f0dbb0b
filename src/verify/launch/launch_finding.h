// What the launch prover reports: findings by rule, with the interleaving that breaks the rule, and proofs of edges.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "verify/launch/launch_order.h"

namespace megartp::launch {

// The rules of docs/launch-graphs.md, by number.
enum class Rule : uint8_t {
  kR1 = 1,  // a kernel with a programmatic in-edge waits
  kR2,      // overlapping accesses are ordered
  kR3,      // what is read before the wait is visible by then
  kR4,      // a trigger before the wait widens the window
  kR5,      // "after the wait" holds in the accessing thread
  kR6,      // fence and trigger instead of completion: fences and proxies
  kR7,      // programmatic edges join kernels only
  kR8,      // forks and joins
  kR9,      // replays
  kR10,     // progress
  kR11,     // workspaces and counters
  kR12,     // the code does what the contract says
  kR13,     // the edge is of use
  kR14,     // lines read before and after the wait
};
std::string to_string(Rule rule);

enum class Severity : uint8_t { kError, kWarning };

enum class StepKind : uint8_t {
  kStart,
  kEarlyFenced,  // accesses before the wait that precede the trigger
  kEarly,        // other accesses before the wait
  kWait,
  kSkipWait,  // of a kernel that waits on some paths only
  kPostFenced,
  kPost,
  kTrigger,
  kExit,
  kComplete,
};
// One step of an interleaving, done by every CTA of the node (the last one by one CTA). Steps that need no word have an
// empty text.
struct Step {
  uint32_t node = 0;
  StepKind kind = StepKind::kStart;
  std::string text;
};

struct Finding {
  Rule rule = Rule::kR2;
  Severity severity = Severity::kError;
  std::vector<uint32_t> nodes;
  std::optional<uint32_t> edge;
  std::optional<Conflict> conflict;  // of the rules about accesses; its bytes are of the buffer of the accesses
  std::string message;
  std::vector<Step> steps;            // the counter-example
  std::vector<std::string> remedies;  // each alone settles this finding
};

struct EdgeProof {
  uint32_t edge = 0;
  bool holds = true;
  std::string text;  // "programmatic, because ..."
};

struct Proof {
  std::vector<Finding> findings;
  std::vector<EdgeProof> edges;
  uint64_t num_conflicts = 0;  // overlapping pairs that were looked at
  uint64_t num_left_out = 0;   // findings beyond the limit
  bool is_ok() const;          // no error among the findings
};

}  // namespace megartp::launch
