// pack(): TaskGraph -> KernelPlan.
#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/math.h"
#include "plan/packing.h"
#include "plan/plan_limits.h"

namespace megartp {
namespace {

PlanOperandRow operand_row(const TaskGraph& graph, const TaskStage& stage) {
  PlanOperandRow row{stage.stage->name, graph.op_names[stage.op], stage.stage->opcode, stage.stage->slots};
  row.tensors.resize(abi::kOperandSlots, kInvalidId);
  return row;
}

abi::Instruction encode(const TaskGraph& graph, uint32_t task_id) {
  const Task& task = graph.tasks[task_id];
  const TaskStage& stage = graph.stages[task.stage];
  abi::Instruction i{};
  i.opcode = stage.stage->opcode;
  i.spec_id = stage.spec_id;
  i.counts = abi::make_counts(task.num_waits, task.num_signals, task.num_payload);
  i.operand_row = task.stage;
  i.task_id = task_id;
  i.join_counter = task.join_group;
  i.join_count = task.join_group == abi::kNoJoin ? 0 : graph.join_counts[task.join_group];
  std::copy_n(task.waits.begin(), task.num_waits, i.waits);
  std::copy_n(task.signals.begin(), task.num_signals, i.signals);
  std::copy_n(task.payload.begin(), task.num_payload, i.payload);
  return i;
}

Status encode_queues(const TaskGraph& graph, const plan::Schedule& schedule, KernelPlan& out) {
  for (uint32_t w = 0; w < out.num_workers; ++w)
    out.queue_depth = std::max(out.queue_depth, schedule.offsets[w + 1] - schedule.offsets[w]);
  if (out.queue_depth > kMaxQueueDepth || uint64_t{out.queue_depth} * out.num_workers > kMaxPlanInstructions)
    return make_error(ErrorCode::kOutOfResources, fmt::format("{} workers x {} instructions is more than a plan holds",
                                                              out.num_workers, out.queue_depth));
  out.instructions.assign(size_t{out.num_workers} * out.queue_depth, make_noop());
  for (uint32_t w = 0; w < out.num_workers; ++w) {
    abi::Instruction* slot = out.instructions.data() + size_t{w} * out.queue_depth;
    for (uint32_t i = schedule.offsets[w]; i < schedule.offsets[w + 1]; ++i) *slot++ = encode(graph, schedule.tasks[i]);
  }
  return {};
}

}  // namespace

std::string_view to_string(Packer packer) {
  switch (packer) {
    case Packer::kRoundRobin: return "round-robin";
    case Packer::kCriticalPath: return "critical-path";
    case Packer::kLongestTail: return "longest-tail";
    case Packer::kInsertion: return "insertion";
  }
  return "?";
}

Result<Packer> parse_packer(std::string_view name) {
  std::vector<std::string_view> known;
  for (const Packer p : kPackers) {
    if (to_string(p) == name) return p;
    known.push_back(to_string(p));
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("unknown packer '{}'; known: {}", name, fmt::join(known, ", ")));
}

namespace plan {

Result<uint64_t> place_tensors(std::span<PlanTensor> tensors) {
  uint64_t end = 0;
  for (PlanTensor& t : tensors) {
    if (t.storage != Storage::kActivation) continue;
    t.arena_offset = end;
    if (t.num_bytes > kMaxWorkspaceBytes - end)
      return make_error(ErrorCode::kOutOfResources,
                        fmt::format("tensor '{}' of {} bytes does not fit into the workspace", t.name, t.num_bytes));
    end = round_up(end + t.num_bytes, kArenaAlignment);
  }
  return end;
}

}  // namespace plan

Result<KernelPlan> pack(const TaskGraph& tasks, const TargetDesc& target, const PackOptions& options) {
  KernelPlan out;
  out.graph_name = tasks.name;
  out.target = target.name;
  out.packer = to_string(options.packer);
  out.finalizer = tasks.finalizer == FinalizerMode::kFused ? "fused" : "tasks";
  out.shapes = tasks.shapes;
  out.num_tasks = static_cast<uint32_t>(tasks.tasks.size());
  out.num_workers = options.num_workers != 0 ? options.num_workers : target.num_workers;
  if (out.num_tasks == 0)
    return make_error(ErrorCode::kInvalidArgument, fmt::format("graph '{}' has no tasks", tasks.name));
  if (out.num_workers == 0 || out.num_workers > kMaxWorkers)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("{} workers; from 1 to {} are possible", out.num_workers, kMaxWorkers));
  {
    const plan::Schedule schedule = MEGARTP_TRY(plan::make_schedule(tasks, target, options.packer, out.num_workers));
    MEGARTP_TRY(encode_queues(tasks, schedule, out));
  }
  out.events.reserve(tasks.events.size());
  for (const Event& e : tasks.events) out.events.push_back({e.threshold, e.producer_stage, e.publication});
  out.join_counts = tasks.join_counts;
  out.specs.reserve(tasks.specs.size());
  for (const auto& spec : tasks.specs) out.specs.push_back({spec[0], {spec.begin() + 1, spec.end()}});
  out.operand_rows.reserve(tasks.stages.size());
  for (const TaskStage& stage : tasks.stages) out.operand_rows.push_back(operand_row(tasks, stage));
  out.tensors.reserve(tasks.tensors.size());
  for (const ConcreteTensor& t : tasks.tensors) {
    uint64_t bytes = size_in_bytes(t.dtype);
    for (const int64_t d : t.dims) bytes *= static_cast<uint64_t>(d);  // lowering has checked the product
    out.tensors.push_back({t.name, t.dtype, t.dims, t.storage, kExternal, bytes});
  }
  out.workspace_bytes = MEGARTP_TRY(plan::place_tensors(out.tensors));
  return out;
}

}  // namespace megartp
