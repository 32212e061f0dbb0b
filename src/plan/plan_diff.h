// What differs between two plans (`megartp plan diff`): shapes, sizes, ops, tensors, specs, and where tasks went.
//
// Things are matched by name: operand rows (stages), tensors; specs by opcode and order; tasks by their number within
// their row. Values are kept as numbers or text, so that a printer or a JSON writer needs to know nothing of plans.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <variant>
#include <vector>

#include "plan/kernel_plan.h"

namespace megartp {

// How often each value occurs: {1: 84} = 84 tasks with one wait.
using Histogram = std::map<uint64_t, uint64_t>;
std::string to_string(const Histogram& histogram);  // "84 x 1, 16 x 2"; long ones are cut

using DiffValue = std::variant<std::monostate, uint64_t, std::string, Histogram>;  // monostate: there is none
std::string to_string(const DiffValue& value);                                     // "-" for none

struct FieldDiff {
  std::string field;
  DiffValue a, b;
};

enum class Presence : uint8_t { kBoth, kOnlyA, kOnlyB };

// A row, tensor or opcode that is not the same in both. In one plan only: its fields have one value.
struct ItemDiff {
  std::string name;
  Presence presence = Presence::kBoth;
  std::vector<FieldDiff> fields;
};

// Tasks of a row that both plans have. A task that went to another worker is not counted as moved within one.
struct PlacementDiff {
  std::string name;
  uint32_t num_tasks = 0;  // compared: those that both have
  uint32_t num_other_worker = 0;
  uint32_t num_other_slot = 0;      // same worker
  uint32_t num_other_contents = 0;  // its words differ: payload, ids of events, thresholds, increments, join counter
};

struct PlanDiff {
  std::vector<FieldDiff> header;  // names, shapes, workers, queues, counts
  std::vector<ItemDiff> ops;
  std::vector<ItemDiff> tensors;
  std::vector<ItemDiff> specs;
  std::vector<PlacementDiff> placement;  // rows where some count is not zero
  bool is_identical = false;             // as files: not one byte differs
};

// Both plans must have passed check_plan. O(n log n) in instructions.
PlanDiff diff_plans(const KernelPlan& a, const KernelPlan& b);

}  // namespace megartp
