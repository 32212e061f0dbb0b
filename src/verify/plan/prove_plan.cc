// prove_plan(): structure, limits, counts, order, memory; each step needs the one before.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "plan/plan_structure.h"
#include "verify/plan/conflicts.h"
#include "verify/plan/deadlock.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace verify {
namespace {

// A barrier between fewer is no loss worth a warning.
constexpr uint32_t kSmallBarrier = 8;
// Nor is one where the regions need a quarter of it.
constexpr uint32_t kCoarseFactor = 4;
// 16 GiB of clocks: 30,000,000 tasks on 132 workers.
constexpr uint64_t kMaxClockEntries = uint64_t{1} << 32;

void check_limits(const KernelPlan& plan, const PlanLimits& limits, const ReportFinding& report) {
  const std::string_view who = limits.name.empty() ? "the runner" : std::string_view(limits.name);
  if (limits.max_workers != 0 && plan.num_workers > limits.max_workers)
    report({PlanFault::kOverSubscribe,
            false,
            fmt::format("the plan has {} workers, but {} keeps only {} resident: worker {} could wait for ever for one "
                        "that has not started",
                        plan.num_workers, who, limits.max_workers, limits.max_workers - 1),
            {},
            {}});
  if (limits.max_queue_depth != 0 && plan.queue_depth > limits.max_queue_depth) {
    for (uint32_t w = 0; w < plan.num_workers; ++w) {
      uint32_t depth = plan.queue_depth;
      while (depth > 0 && plan.instruction(w, depth - 1).opcode == abi::kOpcodeNoOp) --depth;
      if (depth <= limits.max_queue_depth) continue;
      report({PlanFault::kQueueOverflow,
              false,
              fmt::format("the queue of worker {} has {} instructions, but a queue of {} holds {}", w, depth, who,
                          limits.max_queue_depth),
              {},
              {}});
      break;
    }
  }
  const uint64_t pages = uint64_t{limits.num_pages} * limits.page_bytes;
  if (limits.smem_bytes != 0 && pages + limits.scratch_bytes > limits.smem_bytes)
    report({PlanFault::kSmemBudget,
            false,
            fmt::format("{} pages of {} bytes and {} bytes of scratch are {} bytes, but a worker of {} has {}",
                        limits.num_pages, limits.page_bytes, limits.scratch_bytes, pages + limits.scratch_bytes, who,
                        limits.smem_bytes),
            {},
            {}});
}

// Returns the events that run ahead: more is added in a run than the next run's thresholds allow for, so that sooner or
// later their waits hold nobody back. That is a fault if anything rests on these waits, which the order will tell;
// until then it is a warning.
std::vector<bool> check_counts(const PlanNodes& nodes, const ReportFinding& report) {
  const KernelPlan& plan = nodes.plan;
  for (uint32_t j = 0; j < nodes.num_groups; ++j) {
    const auto members = nodes.members_of(j);
    if (members.size() == plan.join_counts[j]) continue;
    std::vector<PlanPlace> places;
    if (!members.empty()) places.push_back(nodes.place(members[0]));
    report(
        {PlanFault::kWrongCount,
         false,
         fmt::format("join group {}{} expects {} arrivals, but has {} members", j,
                     members.empty() ? "" : fmt::format(" ({})", places[0].name), plan.join_counts[j], members.size()),
         std::move(places),
         {}});
  }
  std::vector<bool> is_reported(plan.events.size(), false);
  std::vector<bool> has_waiters(plan.events.size(), false);
  for (uint32_t t = 0; t < nodes.num_tasks; ++t) {
    const abi::Instruction& i = nodes.instruction(t);
    for (uint32_t w = 0; w < abi::num_waits(i); ++w) {
      const abi::Wait& wait = i.waits[w];
      has_waiters[wait.event] = true;
      if (wait.threshold <= nodes.signal_sums[wait.event] || is_reported[wait.event]) continue;
      is_reported[wait.event] = true;
      report({PlanFault::kWrongCount,
              false,
              fmt::format("{} waits for event {} to reach {}, but its signals add up to {}", nodes.name(t), wait.event,
                          wait.threshold, nodes.signal_sums[wait.event]),
              {nodes.place(t)},
              {},
              wait.event});
    }
  }
  std::vector<bool> runs_ahead;
  for (uint32_t e = 0; e < plan.events.size(); ++e) {
    // Where nobody waits, a counter may drift.
    if (nodes.signal_sums[e] == plan.events[e].total || !has_waiters[e] || is_reported[e]) continue;
    const bool is_ahead = nodes.signal_sums[e] > plan.events[e].total;
    if (is_ahead) {
      runs_ahead.resize(plan.events.size(), false);
      runs_ahead[e] = true;
    }
    std::vector<PlanPlace> places;
    std::string who = "nobody";
    if (const auto signallers = nodes.signallers_of(e); !signallers.empty()) {
      places.push_back(nodes.place(signallers[0].node));
      who = nodes.name(signallers[0].node) + (signallers.size() > 1 ? " and others" : "");
    }
    report(
        {PlanFault::kStaleEpoch,
         is_ahead,
         fmt::format("event {} (signalled by {}) gets {} in a run, but its total says {}: the thresholds of the next "
                     "run would be off by the difference",
                     e, who, nodes.signal_sums[e], plan.events[e].total),
         std::move(places),
         {},
         e});
  }
  return runs_ahead;
}

// Barriers over a whole row where the neediest reader needs a fraction of it.
void find_coarse_events(const PlanNodes& nodes, const ConflictChecker& checker, const ReportFinding& report) {
  const KernelPlan& plan = nodes.plan;
  std::vector<uint32_t> tasks_of_row(plan.operand_rows.size(), 0);
  std::vector<uint32_t> groups_of_row(plan.operand_rows.size(), 0);
  for (uint32_t t = 0; t < nodes.num_tasks; ++t) ++tasks_of_row[nodes.row(t)];
  for (uint32_t j = 0; j < nodes.num_groups; ++j) ++groups_of_row[nodes.row(nodes.num_tasks + j)];
  std::vector<uint32_t> barrier_of(plan.events.size(), kInvalidId);  // the row all of which signals
  for (uint32_t e = 0; e < plan.events.size(); ++e) {
    const auto signallers = nodes.signallers_of(e);
    if (signallers.size() < kSmallBarrier) continue;
    const uint32_t row = nodes.row(signallers[0].node);
    const uint32_t units = groups_of_row[row] != 0 ? groups_of_row[row] : tasks_of_row[row];
    const bool is_one_row =
        std::ranges::all_of(signallers, [&](const Signaller& s) { return nodes.row(s.node) == row; });
    if (is_one_row && signallers.size() == units) barrier_of[e] = row;
  }
  std::set<std::pair<uint32_t, uint32_t>> reported;
  for (uint32_t t = 0; t < nodes.num_tasks; ++t) {
    const abi::Instruction& i = nodes.instruction(t);
    for (uint32_t w = 0; w < abi::num_waits(i); ++w) {
      const uint32_t row = barrier_of[i.waits[w].event];
      if (row == kInvalidId) continue;
      const auto need = checker.needs().find({row, i.operand_row});
      const auto units = static_cast<uint32_t>(nodes.signallers_of(i.waits[w].event).size());
      if (need == checker.needs().end() || need->second * kCoarseFactor > units || !reported.insert(need->first).second)
        continue;
      report({PlanFault::kGcdTrap,
              true,
              fmt::format("event {} makes {} wait for all {} of {}, but no region that {} reads needs more than {}",
                          i.waits[w].event, nodes.name(t), units, plan.operand_rows[row].name,
                          plan.operand_rows[i.operand_row].name, need->second),
              {nodes.place(t)},
              {},
              i.waits[w].event});
    }
  }
}

size_t count_errors(const PlanProof& proof) {
  return static_cast<size_t>(std::ranges::count(proof.findings, false, &PlanFinding::is_warning));
}

void prove(const KernelPlan& plan, const PlanLimits& limits, const ReportFinding& report, PlanProof& proof) {
  if (Status s = check_plan_structure(plan); !s) {
    report({PlanFault::kMalformed, false, s.error().to_string(), {}, {}});
    return;
  }
  check_limits(plan, limits, report);
  const PlanNodes nodes(plan);
  const MemorySpaces spaces(plan);
  proof.stats.num_tasks = nodes.num_tasks;
  proof.stats.num_events = static_cast<uint32_t>(plan.events.size());
  proof.stats.num_join_groups = nodes.num_groups;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) proof.stats.num_shared_tensors += spaces.is_shared(t) ? 1 : 0;
  const size_t num_errors = count_errors(proof);
  std::vector<bool> runs_ahead = check_counts(nodes, report);
  PlanSegments segments = collect_segments(nodes, spaces, report, proof.stats);
  // Positions and orders mean something only for a plan whose counts are right and that comes to its end.
  if (count_errors(proof) != num_errors) return;
  if (uint64_t{nodes.num_nodes()} * plan.num_workers > kMaxClockEntries)
    return report({PlanFault::kMalformed,
                   false,
                   fmt::format("{} tasks on {} workers are too many to prove", nodes.num_tasks, plan.num_workers),
                   {},
                   {}});
  HappensBefore order(nodes, segments.last_publications);
  const bool is_ordered = order.run();
  proof.stats.num_passes = order.num_passes();
  if (order.is_undecided()) {
    report({PlanFault::kWrongCount,
            false,
            "waits with thresholds below their events' totals depend on each other in too long a chain to be proved",
            {},
            {}});
    return;
  }
  if (!is_ordered) {
    report(explain_deadlock(nodes, order));
    return;
  }
  const bool is_steady = runs_ahead.empty();
  if (!is_steady) {
    // What is left of the order once these waits hold nobody back.
    order = HappensBefore(nodes, segments.last_publications, std::move(runs_ahead));
    if (!order.run()) return report({PlanFault::kStaleEpoch, false, "waits that run ahead cannot be judged", {}, {}});
  }
  ConflictChecker checker(nodes, spaces, order, report, proof.stats);
  for (Segment& s : segments.segments) checker.add(s);
  checker.finish();
  find_coarse_events(nodes, checker, report);
  if (is_steady || count_errors(proof) == num_errors) return;
  for (PlanFinding& f : proof.findings)
    if (f.fault == PlanFault::kStaleEpoch) f.is_warning = false;
  std::ranges::stable_partition(proof.findings, [](const PlanFinding& f) { return f.fault == PlanFault::kStaleEpoch; });
}

}  // namespace
}  // namespace verify

std::string_view to_string(PlanFault fault) {
  switch (fault) {
    case PlanFault::kMalformed: return "malformed";
    case PlanFault::kQueueCycle: return "queue_cycle";
    case PlanFault::kWrongCount: return "wrong_count";
    case PlanFault::kStaleEpoch: return "stale_epoch";
    case PlanFault::kJoinMismatch: return "join_mismatch";
    case PlanFault::kReadBeforeWrite: return "read_before_write";
    case PlanFault::kWarReuse: return "war_reuse";
    case PlanFault::kWawReorder: return "waw_reorder";
    case PlanFault::kAlias: return "alias";
    case PlanFault::kUnwrittenRead: return "unwritten_read";
    case PlanFault::kTailLost: return "tail_lost";
    case PlanFault::kPrefetchMutable: return "prefetch_mutable";
    case PlanFault::kOverSubscribe: return "over_subscribe";
    case PlanFault::kQueueOverflow: return "queue_overflow";
    case PlanFault::kSmemBudget: return "smem_budget";
    case PlanFault::kGcdTrap: return "gcd_trap";
  }
  return "?";
}

PlanLimits plan_limits(const TargetDesc& target) {
  PlanLimits limits;
  limits.name = target.name;
  if (target.arch == "cpu") return limits;
  const TargetDesc mega = mega_target(target);
  limits.max_workers = mega.num_workers;
  limits.smem_bytes = mega.smem_bytes;
  limits.page_bytes = mega.page_bytes;
  return limits;
}

PlanProof prove_plan(const KernelPlan& plan, const PlanLimits& limits) {
  // A broken event breaks everything behind it: a few findings say what thousands would.
  constexpr size_t kMaxFindings = 32;
  PlanProof proof;
  verify::prove(
      plan, limits,
      [&](PlanFinding f) {
        if (proof.findings.size() < kMaxFindings) proof.findings.push_back(std::move(f));
      },
      proof);
  std::ranges::stable_sort(proof.findings, {}, &PlanFinding::is_warning);
  return proof;
}

}  // namespace megartp
