// Launches on streams: what a program of launches, event records and waits orders, as edges.
//
// The rules are those that stream capture follows; docs/launch-graphs.md lists them. A program that is not captured
// obeys the same order, and runs on from one replay into the next: its replays are unrolled.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "verify/launch/launch_finding.h"

namespace megartp::launch {

enum class StreamOpKind : uint8_t { kLaunch, kRecord, kWait };

struct StreamOp {
  StreamOpKind kind = StreamOpKind::kLaunch;
  uint32_t stream = 0;
  uint32_t node = 0;             // launches: of the program's nodes
  uint32_t event = 0;            // records and waits
  bool is_programmatic = false;  // launches: the attribute for programmatic stream serialization
  std::optional<uint32_t> programmatic_event;
  bool at_block_start = false;  // of the programmatic event
  std::optional<uint32_t> launch_completion_event;
};

struct Program {
  Device device;
  std::vector<Buffer> buffers;
  std::vector<Node> nodes;  // may be launched several times
  std::vector<std::string> streams, events;
  std::vector<StreamOp> ops;  // in the order in which the host issues them, which is the reference order
  bool is_captured = true;    // the first stream is the one that captures
  uint32_t num_replays = 2;   // unrolled when not captured
  uint32_t replay_streams = 1;
};

// A graph whose nodes are launches ("gemm", "gemm#2", "gemm (replay 2)"), and what the conversion itself found.
struct LoweredProgram {
  Graph graph;
  std::vector<Finding> findings;
};
Result<LoweredProgram> lower_program(const Program& program);

}  // namespace megartp::launch
