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
#include "megartp/error.h"
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

// How finely consumers wait for producers.
enum class EventMode : uint8_t {
  kExact,  // a task waits for exactly the units whose regions it needs
  kAuto,   // exact, made coarser where the cost model says that it pays
  kGcd,    // one wait and one signal a task where a sound grouping of that kind exists (MPK's gcd and lcm rules)
  kWhole,  // every edge is a barrier
};
std::string_view to_string(EventMode mode);
Result<EventMode> parse_event_mode(std::string_view name);  // "exact", "auto", "gcd", "whole"

// `count` events, each with so many signalling units and waiting tasks.
struct EventShape {
  uint32_t triggers = 0;
  uint32_t consumers = 0;
  uint32_t count = 0;
  friend bool operator==(const EventShape&, const EventShape&) = default;
};

// All that one stage must wait for of an earlier one over one tensor.
struct StageEdge {
  uint32_t producer_stage = 0;
  uint32_t consumer_stage = 0;
  TensorId tensor = kInvalidId;
  HazardKind hazard = HazardKind::kRaw;  // the first of RAW, WAR, WAW that the edge has
  uint8_t hazards = 0;                   // bit 1 << HazardKind for each that it has
  EdgePolicy policy = EdgePolicy::kWhole;
  bool is_implied = false;  // no event carries it: other waits of the same tasks already order it
  uint32_t num_events = 0;  // distinct events that carry it
  std::vector<EventShape> events;
  // Estimates of EventCosts for the pair of stages, in microseconds of their span (0 for an implied edge): what events
  // of each granularity cost, less what they save. `block` producer units count as one; 0: all of them.
  uint32_t block = 1;
  double exact_us = 0;
  double chosen_us = 0;
  double whole_us = 0;
};

// A unit is what an event counts: a tile of a plain stage, a final tile of a fused one; numbers are local to the stage.
struct UnitInterval {
  uint32_t begin = 0;
  uint32_t end = 0;
  friend bool operator==(const UnitInterval&, const UnitInterval&) = default;
};

// The units of one stage that an event counts when they send `publication`.
// Relay tasks may carry the signals of some of them, or (an event without parts) be all that signals.
struct EventPart {
  uint32_t stage = 0;
  uint32_t publication = 0;
  uint32_t first_interval = 0;  // into TaskGraph::unit_intervals
  uint32_t num_intervals = 0;   // sorted, disjoint, non-adjacent
};

struct Event {
  uint32_t producer_stage = 0;  // whose tasks signal it, all with this publication; kInvalidId: several
  uint32_t publication = 0;
  uint32_t threshold = 0;      // = total signals of one run
  uint32_t num_consumers = 0;  // tasks that wait for it
  uint32_t first_part = 0;     // into TaskGraph::event_parts
  uint32_t num_parts = 0;
};

struct Task {
  uint32_t stage = 0;
  uint32_t tile = 0;
  uint32_t opcode = 0;                 // the stage's
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
  std::vector<EventPart> event_parts;
  std::vector<UnitInterval> unit_intervals;
  std::vector<uint32_t> join_counts;  // arrivals per join counter
  std::vector<StageEdge> edges;
  ShapeEnv shapes;
  FinalizerMode finalizer = FinalizerMode::kFused;
  bool any_shape = false;
  uint32_t num_sms = 0;
  EventMode event_mode = EventMode::kExact;
};

// A stage of relay tasks: they do no work, wait for events and signal others where a task would need more waits or
// signals than an instruction holds.
inline bool is_relay(const TaskStage& stage) { return stage.stage->opcode == abi::kOpcodeRelay; }

}  // namespace megartp
