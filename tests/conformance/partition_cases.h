// Partition graphs with the tasks and events that they must have: chains, forks, joins, model fragments, and graphs on
// which grouping by gcd alone loses dependencies.
//
// The numbers for kGcd are those of MPK's compiler (without its two prelude tasks and three fixed events) where it is
// right. Those for kExact are arithmetic: producer tile i of P covers [i/P, (i+1)/P), and consumer tile j of C needs
// tiles floor(jP/C) to ceil((j+1)P/C) - 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "partition/partition_graph.h"

namespace megartp::test {

// One edge, or several over different tensors, and how events carry it.
struct ExpectedEdge {
  std::string producer;
  std::string consumer;
  std::vector<EventShape> events;  // empty: implied by others
};

struct ExpectedEvents {
  std::optional<uint64_t> events;   // of the whole graph
  std::vector<ExpectedEdge> edges;  // those that matter
  bool one_wait_one_signal = false;
};

struct PartitionCase {
  std::string name;
  PartitionGraph graph;
  uint64_t tasks = 0;
  uint64_t roots = 0;
  uint64_t end_triggers = 0;
  std::optional<ExpectedEvents> gcd;
  std::optional<ExpectedEvents> exact;
};

const std::vector<PartitionCase>& partition_cases();

}  // namespace megartp::test
