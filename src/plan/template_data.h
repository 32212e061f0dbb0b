// What a plan template keeps (TemplateData) and what an instance of it keeps (InstanceState). Internal to plan/.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "plan/plan_template.h"
#include "plan/template_order.h"

namespace megartp::plan {

// A dim of a graph tensor that is a symbol, rounded up to a multiple.
struct DimUse {
  TensorId tensor = kInvalidId;
  uint32_t dim = 0;
  int64_t align = 1;
};
struct SymbolUse {
  std::string name;
  int64_t largest = 0;
  std::vector<DimUse> dims;
  std::vector<OpId> ops;  // that touch one of those tensors
};

struct TemplateOp {
  const OpFamily* family = nullptr;
  uint32_t first_stage = 0;
  uint32_t num_stages = 0;
  TensorId first_workspace = kInvalidId;
  uint32_t num_workspaces = 0;
  bool reads_shapes = false;  // its stages depend on more than dims: on requests
};

struct TemplateStage {
  OpId op = kInvalidId;
  uint32_t first_task = 0;
  uint32_t first_group = 0;  // global join counter
  StageCounts counts;
  // Fused: of the groups before g (one more entry than groups), how many tiles and the end of the last one.
  std::vector<uint32_t> tiles_before_group, end_before_group;
};

// Waits and signals of a task, as events of the largest shape. Tasks that have the same share one; of a fused stage,
// only tiles of one join group do.
struct TemplateLinks {
  uint32_t stage = 0;
  uint32_t group = abi::kNoJoin;  // global join counter
  uint32_t num_waits = 0;
  uint32_t num_signals = 0;
  std::array<uint32_t, abi::kMaxWaits> wait_events{};
  std::array<uint32_t, abi::kMaxSignals> signal_events{};
  std::array<uint32_t, abi::kMaxSignals> publications{};
  friend auto operator<=>(const TemplateLinks&, const TemplateLinks&) = default;
};
// The same, as a shape's instructions have them.
struct InstanceLinks {
  std::array<abi::Wait, abi::kMaxWaits> waits{};
  std::array<abi::Signal, abi::kMaxSignals> signals{};
  uint32_t num_waits = 0;
  uint32_t num_signals = 0;
};

// The first tile of a stage that waits for an event.
struct Consumer {
  uint32_t stage = 0;
  uint32_t first_tile = 0;
};

struct TemplateData {
  explicit TemplateData(OpGraph g) : graph(std::move(g)) {}

  OpGraph graph;
  ShapeEnv largest;
  FinalizerMode finalizer = FinalizerMode::kFused;
  uint32_t num_sms = 0;
  std::vector<SymbolUse> symbols;  // sorted by name
  std::vector<TemplateOp> ops;
  std::vector<TemplateStage> stages;
  KernelPlan plan;  // of the largest shape, without instructions
  std::vector<TemplateLinks> links;
  std::vector<uint32_t> links_of_task;         // by task of the largest shape
  std::vector<uint32_t> group_of_task;         // local to the stage, or kNoJoin
  std::vector<uint32_t> queue_offsets, queue;  // CSR worker -> tasks, in queue order
  std::vector<EventPart> event_parts;
  std::vector<UnitInterval> unit_intervals;
  std::vector<uint32_t> part_offsets;      // CSR event -> parts
  std::vector<uint32_t> consumer_offsets;  // CSR event -> consumers
  std::vector<Consumer> consumers;
  // Final tiles, ascending, that signal i of join group g counts: list g * kMaxSignals + i.
  std::vector<uint32_t> signal_offsets, signal_finals;
  OrderCheck order;
  std::shared_ptr<const InstanceState> prototype;  // instance of the largest shape
};

struct InstanceStage {
  StageCounts counts;
  uint32_t first_task = 0;
  uint32_t first_group = 0;
  uint32_t spec_id = 0;
  std::vector<uint32_t> spec;
};
struct Payload {
  std::array<uint32_t, abi::kMaxPayload> words{};
  uint32_t count = 0;
};

struct InstanceState {
  KernelPlan plan;
  // The rest belongs to plan.shapes while is_current; an error in the middle of a change ends that.
  bool is_current = false;
  std::vector<int64_t> symbols;  // values, in the order of TemplateData::symbols
  std::vector<ConcreteTensor> tensors;
  std::vector<InstanceStage> stages;
  std::vector<Payload> payloads;  // by task of the largest shape
  std::vector<uint32_t> slot;     // by task of the largest shape: where its instruction stands
  // Scratch, kept for its memory.
  std::vector<int64_t> new_symbols;
  std::vector<uint8_t> op_changed;
  std::vector<uint32_t> changed_stages;
  std::vector<TensorId> changed_tensors;
  std::vector<StageCounts> counts;
  std::vector<uint32_t> totals;  // by event of the largest shape
  std::vector<uint8_t> has_consumer;
  std::vector<uint32_t> event_id;    // new number
  std::vector<InstanceLinks> links;  // by TemplateData::links
  std::vector<uint32_t> queue_lengths;
  OrderCheck::Scratch order;
  TileDesc tile;
};

// Gives `state` the plan of `shapes`.
Result<Replan> instantiate(const TemplateData& data, InstanceState& state, const ShapeEnv& shapes);
// While a template is made: fills first_workspace, num_workspaces, reads_shapes of every op on the way.
Status learn_ops(TemplateData& data, InstanceState& state);

}  // namespace megartp::plan
