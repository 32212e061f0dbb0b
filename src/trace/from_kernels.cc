#include "trace/from_kernels.h"

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trace/raw_clock.h"

namespace megartp::trace {
namespace {

template <class... Args>
tl::unexpected<Error> bad_cta(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kInvalidArgument, "CTA records: " + fmt::format(format, std::forward<Args>(args)...));
}

uint64_t num_ctas(const LaunchKernel& k) { return uint64_t{k.kernel.grid[0]} * k.kernel.grid[1] * k.kernel.grid[2]; }

// "ops/qkv_a/device/qkv_a.cuh" -> "qkv_a"
std::string family_of(const LaunchKernel& k) {
  std::string_view name = k.kernel.header;
  name.remove_prefix(name.find_last_of('/') + 1);  // npos + 1 is 0
  return std::string(name.substr(0, name.find('.')));
}

struct PlacedCta {
  const abi::KernelTraceRecord* record;
  uint32_t kernel = 0;
  uint32_t part = 0;  // which of the SM's lanes
  uint64_t inputs() const { return record->inputs == 0 ? record->enter : record->inputs; }
};

// Gives every CTA the lane of its SM that was left last when it enters, so that the CTA before it on the lane is the
// one whose end can have made room for it; sorted by (sm, part, enter) afterwards.
void place_ctas(std::vector<PlacedCta>& ctas) {
  std::ranges::sort(ctas, {}, [](const PlacedCta& c) {
    return std::tuple(c.record->sm, c.record->enter, c.record->done, c.kernel, c.record->cta);
  });
  std::vector<uint64_t> free;  // of the SM at hand
  for (size_t i = 0; i < ctas.size(); ++i) {
    const abi::KernelTraceRecord& r = *ctas[i].record;
    if (i == 0 || ctas[i - 1].record->sm != r.sm) free.clear();
    size_t lane = free.size();
    for (size_t l = 0; l < free.size(); ++l)
      if (free[l] <= r.enter && (lane == free.size() || free[l] > free[lane])) lane = l;
    ctas[i].part = static_cast<uint32_t>(lane);
    if (lane == free.size())
      free.push_back(r.done);
    else
      free[lane] = r.done;
  }
  std::ranges::stable_sort(ctas, {}, [](const PlacedCta& c) { return std::tuple(c.record->sm, c.part); });
}

// The records that are there, each checked; a CTA without one is lost.
Result<std::vector<PlacedCta>> find_ctas(const LaunchPlan& plan, const RawTrace& raw, const RawClock& clock) {
  if (!clock.is_valid()) return bad_cta("the run is from {} to {} ticks of {} ns", raw.begin, raw.end, raw.ns_per_tick);
  uint64_t total = 0;
  for (const LaunchKernel& k : plan.kernels) total += num_ctas(k);
  if (raw.ctas.size() != total) return bad_cta("{} for a plan of {} CTAs", raw.ctas.size(), total);
  std::vector<PlacedCta> ctas;
  const abi::KernelTraceRecord* next = raw.ctas.data();
  for (uint32_t k = 0; k < plan.kernels.size(); ++k)
    for (uint64_t cta = 0; cta < num_ctas(plan.kernels[k]); ++cta, ++next) {
      if (next->done == 0) continue;
      const PlacedCta placed{next, k};
      if (next->cta != cta)
        return bad_cta("CTA {} of {} has the record of CTA {}", cta, plan.kernels[k].name, next->cta);
      if (!clock.ns(next->enter) || !clock.ns(next->done) || next->enter > placed.inputs() ||
          placed.inputs() > next->done)
        return bad_cta("CTA {} of {}: enter {}, inputs {}, done {} in a run from {} to {}", cta, plan.kernels[k].name,
                       next->enter, next->inputs, next->done, raw.begin, raw.end);
      ctas.push_back(placed);
    }
  return ctas;
}

void add_cta_tasks(const LaunchPlan& plan, const std::vector<PlacedCta>& ctas, const RawClock& clock, Trace& trace) {
  std::map<std::string, uint32_t> texts;
  for (size_t i = 0; i < ctas.size(); ++i) {
    const abi::KernelTraceRecord& r = *ctas[i].record;
    const bool is_new_lane = i == 0 || ctas[i - 1].record->sm != r.sm || ctas[i - 1].part != ctas[i].part;
    if (is_new_lane) {
      const std::string part = ctas[i].part == 0 ? "" : fmt::format(" ({})", ctas[i].part + 1);
      trace.lanes.push_back({fmt::format("SM {}{}", r.sm, part), r.sm});
    }
    const LaunchKernel& kernel = plan.kernels[ctas[i].kernel];
    const auto [text, is_new] = texts.emplace(fmt::format("CTA {}", r.cta), static_cast<uint32_t>(trace.texts.size()));
    if (is_new) trace.texts.push_back(text->first);
    TraceTask task;
    task.id = r.cta;
    task.lane = static_cast<uint32_t>(trace.lanes.size() - 1);
    task.position = is_new_lane ? 0 : trace.tasks.back().position + 1;
    task.op = ctas[i].kernel;
    task.tile = text->second;
    task.visible_ns = *clock.ns(r.enter);
    task.ready_ns = *clock.ns(ctas[i].inputs());
    task.done_ns = *clock.ns(r.done);
    task.weight_bytes = kernel.kernel.weight_bytes / num_ctas(kernel);
    task.other_bytes = kernel.kernel.other_bytes / num_ctas(kernel);
    task.flops = kernel.kernel.flops / num_ctas(kernel);
    trace.tasks.push_back(task);
  }
}

Status add_cta_roles(const RawTrace& raw, const RawClock& clock, Trace& trace) {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> task_of;  // kernel, CTA
  if (!raw.roles.empty())
    for (uint32_t t = 0; t < trace.tasks.size(); ++t) task_of[{trace.tasks[t].op, trace.tasks[t].id}] = t;
  for (const abi::TraceRoleRecord& r : raw.roles) {
    const auto task = task_of.find({r.worker, r.slot});
    const auto begin = clock.ns(r.begin), end = clock.ns(r.end);
    if (task == task_of.end() || r.role == 0 || r.role >= abi::kTraceRoles || !begin || !end || *begin > *end)
      return bad_cta("role {} of kernel {}, CTA {} from {} to {}", r.role, r.worker, r.slot, r.begin, r.end);
    trace.roles.push_back({task->second, r.role, *begin, *end});
  }
  std::ranges::stable_sort(trace.roles, {}, [](const RoleInterval& r) { return std::tuple(r.task, r.begin_ns); });
  return {};
}

void add_kernel_events(const LaunchPlan& plan, Trace& trace) {
  std::vector<std::vector<uint32_t>> ctas_of(plan.kernels.size());
  for (uint32_t t = 0; t < trace.tasks.size(); ++t) ctas_of[trace.tasks[t].op].push_back(t);
  for (uint32_t k = 0; k < plan.kernels.size(); ++k) {
    std::vector<uint32_t> waiters;
    for (const LaunchEdge& e : plan.edges)
      if (e.from == k) waiters.insert(waiters.end(), ctas_of[e.to].begin(), ctas_of[e.to].end());
    if (waiters.empty()) continue;
    std::ranges::sort(waiters);
    TraceEvent event{plan.kernels[k].name + " done", {}, {}};
    for (const uint32_t t : ctas_of[k]) event.signals.push_back({t, 1});
    for (const uint32_t t : waiters) event.waits.push_back({t, static_cast<uint32_t>(num_ctas(plan.kernels[k]))});
    trace.events.push_back(std::move(event));
  }
}

}  // namespace

Result<Trace> trace_of_launch(const LaunchPlan& plan, const RawTrace& raw, TraceMeta meta) {
  const RawClock clock(raw);
  std::vector<PlacedCta> ctas = MEGARTP_TRY(find_ctas(plan, raw, clock));
  if (ctas.empty()) return bad_cta("there are none");
  Trace trace;
  trace.meta = std::move(meta);
  if (trace.meta.backend.empty()) trace.meta.backend = to_string(plan.mode);
  if (trace.meta.name.empty()) trace.meta.name = trace.meta.backend;
  trace.meta.graph = plan.name;
  for (const auto& [name, value] : plan.shapes.symbols) trace.meta.shapes.emplace_back(name, value);
  trace.meta.clock_domain = raw.clock_domain;
  trace.meta.clock_resolution_ns = raw.resolution_ns;
  trace.meta.begin_ns = clock.begin_ns();
  trace.meta.span_ns = clock.span_ns();
  trace.meta.num_lost = std::max<uint64_t>(raw.num_lost, raw.ctas.size() - ctas.size());
  for (const LaunchKernel& k : plan.kernels) trace.ops.push_back({k.name, family_of(k)});
  for (const LaunchEdge& e : plan.edges) trace.kernel_edges.push_back({e.from, e.to, std::string(to_string(e.level))});
  place_ctas(ctas);
  add_cta_tasks(plan, ctas, clock, trace);
  MEGARTP_TRY(add_cta_roles(raw, clock, trace));
  add_kernel_events(plan, trace);
  MEGARTP_TRY(check_trace(trace));
  return trace;
}

Result<Trace> trace_of_simulation(const LaunchPlan& plan, const LaunchSimResult& result, TraceMeta meta) {
  RawTrace raw;
  raw.clock_domain = "simulated";
  raw.end = result.span_ns;
  raw.ctas = result.records;
  for (const LaunchSimPart& part : result.parts)
    raw.roles.push_back({part.kernel, part.cta, part.is_read ? abi::kTraceRoleWeights : abi::kTraceRoleCompute, 0,
                         part.begin_ns, part.end_ns});
  meta.backend = "simulated";
  meta.timed_ns = result.timed_us * 1e3;
  return trace_of_launch(plan, raw, std::move(meta));
}

}  // namespace megartp::trace
