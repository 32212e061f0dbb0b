// TaskGraph: tiles as tasks, and the events between them.
//
// Task ids are contiguous per stage, in stage order (a topological order of the graph's program order). Regions are not
// stored: ask Stage::tile() again.
//
// A task sends its publications in ascending order, and the last one when it is over: an event on a publication
// therefore implies the lower ones of the same units, and one on the stage's last publication also implies that their
// reads are done.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "abi/instruction.h"
#include "ops/op_family.h"

namespace megartp {

// How consumers depend on producers over one tensor, kept for explanation.
enum class EdgePolicy : uint8_t {
  kWhole,       // every consumer waits for the whole producer (fallback: always correct)
  kTileEqual,   // one producer tile writes exactly what the consumer reads
  kTileCover,   // several producer tiles together cover what the consumer reads
  kTileReduce,  // several producer tiles give addends of what the consumer reads
};
std::string_view to_string(EdgePolicy policy);
enum class HazardKind : uint8_t { kRaw, kWar, kWaw };
std::string_view to_string(HazardKind kind);

struct StageEdge {
  uint32_t producer_stage = 0;
  uint32_t consumer_stage = 0;
  TensorId tensor = kInvalidId;
  HazardKind hazard = HazardKind::kRaw;
  EdgePolicy policy = EdgePolicy::kWhole;
  uint32_t num_events = 0;  // distinct events that carry it
};

struct Event {
  uint32_t producer_stage = 0;
  uint32_t publication = 0;
  uint32_t threshold = 0;      // = total signals of one run
  uint32_t num_consumers = 0;  // tasks that wait for it
};

struct Task {
  uint32_t stage = 0;
  uint32_t tile = 0;
  uint32_t join_group = abi::kNoJoin;  // global join counter id
  uint8_t num_waits = 0;
  uint8_t num_signals = 0;
  uint8_t num_payload = 0;
  std::array<abi::Wait, abi::kMaxWaits> waits{};
  std::array<abi::Signal, abi::kMaxSignals> signals{};
  std::array<uint32_t, abi::kMaxPayload> payload{};
  // Of the tile, for cost models: bytes moved (weights included), floating-point operations.
  float bytes = 0;
  float flops = 0;
};

struct TaskStage {
  std::unique_ptr<Stage> stage;
  OpId op = kInvalidId;
  uint32_t first_task = 0;
  uint32_t spec_id = 0;
};

struct TaskGraph {
  std::string name;
  std::vector<ConcreteTensor> tensors;  // graph tensors first, with the same ids; then workspaces
  std::vector<std::string> op_names;
  std::vector<std::string> op_kinds;
  std::vector<TaskStage> stages;
  std::vector<std::vector<uint32_t>> specs;  // deduplicated (opcode first, then the family's words)
  std::vector<Task> tasks;
  std::vector<Event> events;
  std::vector<uint32_t> join_counts;  // arrivals per join counter
  std::vector<StageEdge> edges;
  ShapeEnv shapes;
  FinalizerMode finalizer = FinalizerMode::kFused;
};

}  // namespace megartp
