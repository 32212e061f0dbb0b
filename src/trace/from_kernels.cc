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
  const abi::CtaTraceRecord* record;
  uint32_t part = 0;  // which of the SM's lanes
};

// Gives every CTA the first lane of its SM that is free when it enters; sorted by (sm, part, enter) afterwards.
void place_ctas(std::vector<PlacedCta>& ctas) {
  std::ranges::sort(ctas, {}, [](const PlacedCta& c) {
    return std::tuple(c.record->sm, c.record->enter, c.record->done, c.record->kernel, c.record->cta);
  });
  std::vector<uint64_t> free;  // of the SM at hand
  for (size_t i = 0; i < ctas.size(); ++i) {
    const abi::CtaTraceRecord& r = *ctas[i].record;
    if (i == 0 || ctas[i - 1].record->sm != r.sm) free.clear();
    const auto lane = std::ranges::find_if(free, [&r](uint64_t end) { return end <= r.enter; });
    ctas[i].part = static_cast<uint32_t>(lane - free.begin());
    if (lane == free.end())
      free.push_back(r.done);
    else
      *lane = r.done;
  }
  std::ranges::stable_sort(ctas, {}, [](const PlacedCta& c) { return std::tuple(c.record->sm, c.part); });
}

Status check_ctas(const LaunchPlan& plan, const RawTrace& raw, const RawClock& clock) {
  if (!clock.is_valid()) return bad_cta("the run is from {} to {} ticks of {} ns", raw.begin, raw.end, raw.ns_per_tick);
  std::vector<std::vector<bool>> seen(plan.kernels.size());
  for (const abi::CtaTraceRecord& r : raw.ctas) {
    if (r.kernel >= plan.kernels.size()) return bad_cta("kernel {} of {}", r.kernel, plan.kernels.size());
    const LaunchKernel& kernel = plan.kernels[r.kernel];
    if (r.cta >= num_ctas(kernel)) return bad_cta("CTA {} of {} of {}", r.cta, num_ctas(kernel), kernel.name);
    seen[r.kernel].resize(num_ctas(kernel));
    if (seen[r.kernel][r.cta]) return bad_cta("CTA {} of {} comes twice", r.cta, kernel.name);
    seen[r.kernel][r.cta] = true;
    if (!clock.ns(r.enter) || !clock.ns(r.done) || r.enter > r.inputs || r.inputs > r.done)
      return bad_cta("CTA {} of {}: enter {}, inputs {}, done {} in a run from {} to {}", r.cta, kernel.name, r.enter,
                     r.inputs, r.done, raw.begin, raw.end);
  }
  return {};
}

void add_cta_tasks(const LaunchPlan& plan, const RawTrace& raw, const RawClock& clock, Trace& trace) {
  std::vector<PlacedCta> ctas;
  for (const abi::CtaTraceRecord& r : raw.ctas) ctas.push_back({&r});
  place_ctas(ctas);
  std::map<std::string, uint32_t> texts;
  for (size_t i = 0; i < ctas.size(); ++i) {
    const abi::CtaTraceRecord& r = *ctas[i].record;
    const bool is_new_lane = i == 0 || ctas[i - 1].record->sm != r.sm || ctas[i - 1].part != ctas[i].part;
    if (is_new_lane) {
      const std::string part = ctas[i].part == 0 ? "" : fmt::format(" ({})", ctas[i].part + 1);
      trace.lanes.push_back({fmt::format("SM {}{}", r.sm, part), r.sm});
    }
    const LaunchKernel& kernel = plan.kernels[r.kernel];
    const auto [text, is_new] = texts.emplace(fmt::format("CTA {}", r.cta), static_cast<uint32_t>(trace.texts.size()));
    if (is_new) trace.texts.push_back(text->first);
    TraceTask task;
    task.id = r.cta;
    task.lane = static_cast<uint32_t>(trace.lanes.size() - 1);
    task.position = is_new_lane ? 0 : trace.tasks.back().position + 1;
    task.op = r.kernel;
    task.tile = text->second;
    task.visible_ns = *clock.ns(r.enter);
    task.ready_ns = *clock.ns(r.inputs);
    task.done_ns = *clock.ns(r.done);
    task.weight_bytes = kernel.kernel.weight_bytes / num_ctas(kernel);
    task.other_bytes = kernel.kernel.other_bytes / num_ctas(kernel);
    task.flops = kernel.kernel.flops / num_ctas(kernel);
    trace.tasks.push_back(task);
  }
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
  MEGARTP_TRY(check_ctas(plan, raw, clock));
  Trace trace;
  trace.meta = std::move(meta);
  trace.meta.backend = to_string(plan.mode);
  if (trace.meta.name.empty()) trace.meta.name = trace.meta.backend;
  trace.meta.graph = plan.name;
  for (const auto& [name, value] : plan.shapes.symbols) trace.meta.shapes.emplace_back(name, value);
  trace.meta.clock_domain = raw.clock_domain;
  trace.meta.clock_resolution_ns = raw.resolution_ns;
  trace.meta.begin_ns = clock.begin_ns();
  trace.meta.span_ns = clock.span_ns();
  uint64_t total = 0;
  for (const LaunchKernel& k : plan.kernels) {
    trace.ops.push_back({k.name, family_of(k)});
    total += num_ctas(k);
  }
  trace.meta.num_lost = std::max(raw.num_lost, total - raw.ctas.size());
  for (const LaunchEdge& e : plan.edges) trace.kernel_edges.push_back({e.from, e.to, std::string(to_string(e.level))});
  add_cta_tasks(plan, raw, clock, trace);
  if (trace.lanes.empty()) return bad_cta("there are none");
  add_kernel_events(plan, trace);
  MEGARTP_TRY(check_trace(trace));
  return trace;
}

}  // namespace megartp::trace
