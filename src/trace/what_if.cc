#include "trace/what_if.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "plan/packing.h"
#include "trace/dependencies.h"

namespace megartp::trace {
namespace {

double median(std::vector<uint64_t> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return static_cast<double>(*middle);
}

bool is_op(const TraceOp& op, std::string_view name) {
  return op.name == name || (op.name.starts_with(name) && op.name[name.size()] == '.');
}

Result<std::vector<bool>> find_ops(const Trace& trace, std::string_view name) {
  std::vector<bool> found;
  for (const TraceOp& op : trace.ops) found.push_back(is_op(op, name));
  if (std::ranges::find(found, true) != found.end()) return found;
  std::string known;
  for (const TraceOp& op : trace.ops) known += (known.empty() ? "" : ", ") + op.name;
  return make_error(ErrorCode::kInvalidArgument, fmt::format("the trace has no op '{}'; it has {}", name, known));
}

// Waits of the consumer's tasks that only the producer's tasks signal go.
void free_edge(const Trace& trace, const std::vector<bool>& producers, const std::vector<bool>& consumers,
               SimProgram& p) {
  std::vector<bool> is_free(trace.events.size());
  for (size_t e = 0; e < trace.events.size(); ++e)
    is_free[e] = std::ranges::all_of(trace.events[e].signals,
                                     [&](const EventSignal& s) { return producers[trace.tasks[s.task].op]; });
  for (size_t t = 0; t < p.tasks.size(); ++t) {
    if (!consumers[trace.tasks[t].op]) continue;
    for (uint32_t k = 0; k < p.tasks[t].num_waits; ++k) {
      abi::Wait& wait = p.waits[p.tasks[t].first_wait + k];
      if (is_free[wait.event]) wait.threshold = 0;
    }
  }
}

// The task graph as far as packers look at it, task ids as in the plan. They go by the target's costs, not by what was
// measured: so would the real change.
Result<TaskGraph> packing_graph(const Trace& trace, const SimProgram& p) {
  TaskGraph graph;
  graph.name = trace.meta.graph;
  graph.events.resize(trace.events.size());
  graph.tasks.resize(trace.tasks.size());
  for (size_t t = 0; t < trace.tasks.size(); ++t) {
    const TraceTask& from = trace.tasks[t];
    const SimTask& sim = p.tasks[t];
    if (from.id >= graph.tasks.size() || sim.num_waits > abi::kMaxWaits || sim.num_signals > abi::kMaxSignals)
      return make_error(ErrorCode::kInvalidArgument, "only a plan's complete trace can be packed anew");
    Task& task = graph.tasks[from.id];
    task.num_waits = static_cast<uint8_t>(sim.num_waits);
    task.num_signals = static_cast<uint8_t>(sim.num_signals);
    std::copy_n(p.waits.begin() + sim.first_wait, sim.num_waits, task.waits.begin());
    std::copy_n(p.signals.begin() + sim.first_signal, sim.num_signals, task.signals.begin());
    task.opcode = find_opcode(trace.ops[from.op].kind);
    task.bytes = static_cast<float>(from.weight_bytes + from.other_bytes);
    task.flops = static_cast<float>(from.flops);
  }
  return graph;
}

Status pack_anew(const Trace& trace, const WhatIf& change, SimProgram& p) {
  if (!trace.kernel_edges.empty())
    return make_error(ErrorCode::kInvalidArgument, "what-if: kernels of a CUDA graph have no packer and no workers");
  TargetDesc target = MEGARTP_TRY(find_target(trace.meta.target));
  if (trace.meta.backend == "mega") target = mega_target(std::move(target));
  const Packer packer = change.packer ? *change.packer : MEGARTP_TRY(parse_packer(trace.meta.packer));
  const auto workers = change.num_workers != 0 ? change.num_workers : static_cast<uint32_t>(trace.lanes.size());
  const TaskGraph graph = MEGARTP_TRY(packing_graph(trace, p));
  const plan::Schedule schedule = MEGARTP_TRY(plan::make_schedule(graph, target, packer, workers));
  std::vector<uint32_t> index_of(trace.tasks.size());
  for (uint32_t t = 0; t < trace.tasks.size(); ++t) index_of[trace.tasks[t].id] = t;
  p.queue_offsets = schedule.offsets;
  p.queue.clear();
  for (const uint32_t id : schedule.tasks) p.queue.push_back(index_of[id]);
  return {};
}

uint64_t last_done(const Trace& trace) {
  uint64_t last = 0;
  for (const TraceTask& t : trace.tasks) last = std::max(last, t.done_ns);
  return last;
}

}  // namespace

Result<std::pair<std::string, double>> parse_faster(std::string_view text) {
  const size_t at = text.rfind('=');
  double factor = 0;
  if (at != std::string_view::npos && at > 0) {
    const char* end = text.data() + text.size();
    const auto read = std::from_chars(text.data() + at + 1, end, factor);
    if (read.ec == std::errc() && read.ptr == end && factor >= 1e-3 && factor <= 1e6)
      return std::pair(std::string(text.substr(0, at)), factor);
  }
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("'{}' is not OP=FACTOR with a factor from 0.001 to 1000000, as in B0=2", text));
}

Result<std::pair<std::string, std::string>> parse_free_edge(std::string_view text) {
  const size_t at = text.find("->");
  if (at == std::string_view::npos || at == 0 || at + 2 == text.size())
    return make_error(ErrorCode::kInvalidArgument, fmt::format("'{}' is not PRODUCER->CONSUMER, as in A0->B0", text));
  return std::pair(std::string(text.substr(0, at)), std::string(text.substr(at + 2)));
}

double WhatIfResult::replay_error() const {
  return measured_ns == 0 ? 0 : static_cast<double>(replay_ns) / static_cast<double>(measured_ns) - 1;
}

SimProgram replay_program(const Trace& trace) {
  SimProgram p;
  const auto num_tasks = trace.tasks.size();
  p.num_events = static_cast<uint32_t>(trace.events.size());
  p.tasks.resize(num_tasks);
  std::vector<std::vector<abi::Wait>> waits(num_tasks);
  std::vector<std::vector<abi::Signal>> signals(num_tasks);
  for (uint32_t e = 0; e < trace.events.size(); ++e) {
    for (const EventWait& w : trace.events[e].waits) waits[w.task].push_back({e, w.threshold});
    for (const EventSignal& s : trace.events[e].signals) signals[s.task].push_back(abi::make_signal(e, s.increment, 0));
  }
  p.queue_offsets.assign(trace.lanes.size() + 1, 0);
  for (uint32_t t = 0; t < num_tasks; ++t) {
    const TraceTask& from = trace.tasks[t];
    SimTask& task = p.tasks[t];
    task.fixed_ns = static_cast<double>(from.done_ns - from.ready_ns);
    task.first_wait = static_cast<uint32_t>(p.waits.size());
    task.num_waits = static_cast<uint32_t>(waits[t].size());
    p.waits.insert(p.waits.end(), waits[t].begin(), waits[t].end());
    task.first_signal = static_cast<uint32_t>(p.signals.size());
    task.num_signals = static_cast<uint32_t>(signals[t].size());
    p.signals.insert(p.signals.end(), signals[t].begin(), signals[t].end());
    task.join_group = from.join_group;
    if (from.join_group != abi::kNoJoin) {
      if (p.join_counts.size() <= from.join_group) p.join_counts.resize(from.join_group + 1, 0);
      ++p.join_counts[from.join_group];
    }
    p.queue.push_back(t);  // sorted by lane and position
    ++p.queue_offsets[from.lane + 1];
  }
  for (size_t w = 1; w < p.queue_offsets.size(); ++w) p.queue_offsets[w] += p.queue_offsets[w - 1];
  return p;
}

SimCosts replay_costs(const Trace& trace) {
  const Dependencies deps(trace);
  std::vector<uint64_t> starts, gaps, ways;
  for (uint32_t t = 0; t < trace.tasks.size(); ++t) {
    if (deps.waited_for_event(t))
      ways.push_back(deps.lag_ns(t));
    else if (deps.before_on_lane(t) != kNoTraceTask)
      gaps.push_back(deps.lag_ns(t));
    // A worker's first task says when it started; a CTA that others had to let go says nothing of the start.
    const bool was_let_go = !trace.kernel_edges.empty() && deps.binding(t).task != kNoTraceTask;
    const bool is_first = t == 0 || trace.tasks[t - 1].lane != trace.tasks[t].lane;
    if (is_first && !was_let_go) starts.push_back(trace.tasks[t].visible_ns);
  }
  SimCosts costs;
  costs.launch_ns = median(std::move(starts));
  costs.gap_ns = median(std::move(gaps));
  costs.event_ns = median(std::move(ways));
  return costs;
}

Result<WhatIfResult> what_if(const Trace& trace, const WhatIf& change) {
  if (trace.tasks.empty() || trace.meta.num_lost != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("what-if: the trace lacks the records of {} tasks", trace.meta.num_lost));
  SimProgram program = replay_program(trace);
  const SimCosts costs = replay_costs(trace);
  const uint64_t tail = trace.meta.span_ns - last_done(trace);
  WhatIfResult result;
  result.measured_ns = trace.meta.span_ns;
  result.replay_ns = MEGARTP_TRY(simulate(program, costs))
  .span_ns + tail;
  for (const auto& [name, factor] : change.faster) {
    const std::vector<bool> ops = MEGARTP_TRY(find_ops(trace, name));
    for (size_t t = 0; t < program.tasks.size(); ++t)
      if (ops[trace.tasks[t].op]) program.tasks[t].fixed_ns /= factor;
  }
  if (change.packer || change.num_workers != 0) MEGARTP_TRY(pack_anew(trace, change, program));
  for (const auto& [producer, consumer] : change.free_edges)
    free_edge(trace, MEGARTP_TRY(find_ops(trace, producer)), MEGARTP_TRY(find_ops(trace, consumer)), program);
  result.changed_ns = MEGARTP_TRY(simulate(program, costs))
  .span_ns + tail;
  result.predicted_ns = static_cast<double>(result.measured_ns) * static_cast<double>(result.changed_ns) /
                        static_cast<double>(std::max<uint64_t>(1, result.replay_ns));
  return result;
}

}  // namespace megartp::trace
