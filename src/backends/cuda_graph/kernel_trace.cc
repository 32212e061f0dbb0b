#include "backends/cuda_graph/kernel_trace.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "backends/cuda_common/global_timer.h"

namespace megartp::cuda_graph {
namespace {

#define MEGARTP_TEXT_OF(x) #x
#define MEGARTP_TEXT(x) MEGARTP_TEXT_OF(x)
constexpr const char* kSymbol = MEGARTP_TEXT(MEGARTP_KERNEL_TRACE_SYMBOL);
#undef MEGARTP_TEXT
#undef MEGARTP_TEXT_OF

uint64_t num_ctas(const LaunchKernel& k) { return uint64_t{k.kernel.grid[0]} * k.kernel.grid[1] * k.kernel.grid[2]; }

uint64_t num_ctas(const LaunchPlan& plan) {
  uint64_t sum = 0;
  for (const LaunchKernel& k : plan.kernels) sum += num_ctas(k);
  return sum;
}

Status check_record(const abi::KernelTraceRecord& r, const std::string& kernel, uint64_t cta) {
  const auto bad = [&](std::string what) {
    return make_error(ErrorCode::kMismatch, fmt::format("kernel trace: CTA {} of '{}' {}", cta, kernel, what));
  };
  if (r.done == 0) return bad("wrote no record");
  if (r.cta != cta) return bad(fmt::format("has the record of CTA {}", r.cta));
  if (r.enter > r.done || (r.inputs != 0 && (r.inputs < r.enter || r.inputs > r.done)))
    return bad(fmt::format("entered at {}, had its inputs at {} and ended at {}", r.enter, r.inputs, r.done));
  return {};
}

CtaRecord relative(const abi::KernelTraceRecord& r, uint64_t begin_ns) {
  CtaRecord c;
  c.enter_ns = r.enter - begin_ns;
  c.inputs_ns = (r.inputs == 0 ? r.enter : r.inputs) - begin_ns;
  c.done_ns = r.done - begin_ns;
  c.sm = r.sm;
  for (size_t i = 0; i < c.marks_ns.size(); ++i) c.marks_ns[i] = r.marks[i] == 0 ? 0 : c.enter_ns + r.marks[i];
  return c;
}

TimeRange range_of(const std::vector<CtaRecord>& ctas, uint64_t CtaRecord::* time) {
  if (ctas.empty()) return {};
  const auto [first, last] = std::ranges::minmax_element(ctas, {}, time);
  return {(*first).*time, (*last).*time};
}

std::string to_text(const TimeRange& r) {
  const auto us = [](uint64_t ns) { return fmt::format("{:.1f}", static_cast<double>(ns) / 1e3); };
  return us(r.first_ns) == us(r.last_ns) ? us(r.first_ns) : fmt::format("{} to {}", us(r.first_ns), us(r.last_ns));
}

}  // namespace

Result<KernelTrace> decode_kernel_trace(const LaunchPlan& plan, std::span<const abi::KernelTraceRecord> records) {
  if (records.size() != num_ctas(plan))
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("kernel trace: {} records for a plan of {} CTAs", records.size(), num_ctas(plan)));
  KernelTrace trace;
  trace.begin_ns = std::numeric_limits<uint64_t>::max();
  auto next = records.begin();
  for (const LaunchKernel& k : plan.kernels)
    for (uint64_t cta = 0; cta < num_ctas(k); ++cta, ++next) {
      MEGARTP_TRY(check_record(*next, k.name, cta));
      trace.begin_ns = std::min(trace.begin_ns, next->enter);
    }
  if (records.empty()) trace.begin_ns = 0;
  next = records.begin();
  for (const LaunchKernel& k : plan.kernels) {
    TracedKernel& kernel = trace.kernels.emplace_back();
    kernel.name = k.name;
    for (uint64_t cta = 0; cta < num_ctas(k); ++cta) kernel.ctas.push_back(relative(*next++, trace.begin_ns));
  }
  return trace;
}

std::vector<KernelSummary> summarize(const KernelTrace& trace) {
  std::vector<KernelSummary> list;
  for (const TracedKernel& k : trace.kernels) {
    std::set<uint32_t> sms;
    for (const CtaRecord& c : k.ctas) sms.insert(c.sm);
    list.push_back({k.name, k.ctas.size(), sms.size(), range_of(k.ctas, &CtaRecord::enter_ns),
                    range_of(k.ctas, &CtaRecord::inputs_ns), range_of(k.ctas, &CtaRecord::done_ns)});
  }
  return list;
}

std::string to_table(const KernelTrace& trace) {
  std::vector<std::array<std::string, 6>> lines{{"kernel", "CTAs", "SMs", "enter us", "inputs ready us", "done us"}};
  for (const KernelSummary& s : summarize(trace))
    lines.push_back({s.name, std::to_string(s.num_ctas), std::to_string(s.num_sms), to_text(s.enter), to_text(s.inputs),
                     to_text(s.done)});
  std::array<size_t, 6> widths{};
  for (const auto& line : lines)
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  std::string out;
  for (const auto& line : lines) {
    out += fmt::format("{:<{}}", line[0], widths[0]);
    for (size_t c = 1; c < line.size(); ++c) out += fmt::format("  {:>{}}", line[c], widths[c]);
    out += '\n';
  }
  return out;
}

std::string to_csv(const KernelTrace& trace) {
  std::string out = "kernel,cta,sm,enter_ns,inputs_ns,done_ns";
  for (uint32_t i = 0; i < abi::kKernelTraceMarks; ++i) out += fmt::format(",mark{}_ns", i);
  out += '\n';
  // Kernels are named after ops and parts: letters, digits, '.', '_'.
  for (const TracedKernel& k : trace.kernels)
    for (size_t cta = 0; cta < k.ctas.size(); ++cta) {
      const CtaRecord& c = k.ctas[cta];
      out += fmt::format("{},{},{},{},{},{}", k.name, cta, c.sm, c.enter_ns, c.inputs_ns, c.done_ns);
      for (const uint64_t mark : c.marks_ns) out += mark == 0 ? "," : fmt::format(",{}", mark);
      out += '\n';
    }
  return out;
}

Result<KernelTracer> KernelTracer::create(std::shared_ptr<const LaunchPlan> plan,
                                          std::shared_ptr<const LoadedCode> code) {
  if (code->num_kernels() != plan->kernels.size())
    return make_error(ErrorCode::kInternal,
                      fmt::format("code of {} kernels for a plan of {}", code->num_kernels(), plan->kernels.size()));
  std::set<cuda::ModuleHandle> modules;
  for (uint32_t k = 0; k < plan->kernels.size(); ++k)
    if (!modules.insert(code->module(k).get()).second)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("kernel trace: kernel '{}' shares its module with another one: load the code with "
                                    "a module per kernel",
                                    plan->kernels[k].name));
  const cuda::Context::Scope current(code->context());
  KernelTracer tracer(std::move(plan), std::move(code));
  const cuda::DriverApi& api = tracer.code_->context().api();
  const uint64_t num_bytes = std::max<uint64_t>(1, num_ctas(*tracer.plan_)) * sizeof(abi::KernelTraceRecord);
  tracer.records_ = MEGARTP_TRY(cuda::DeviceBuffer::allocate(api, num_bytes));
  uint64_t first = 0;
  for (uint32_t k = 0; k < tracer.plan_->kernels.size(); ++k) {
    const uint64_t count = num_ctas(tracer.plan_->kernels[k]);
    if (count > std::numeric_limits<uint32_t>::max())
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("kernel trace: kernel '{}' has {} CTAs", tracer.plan_->kernels[k].name, count));
    MEGARTP_TRY(tracer.set_target(k, first, static_cast<uint32_t>(count)));
    first += count;
  }
  MEGARTP_TRY(tracer.clear());
  return tracer;
}

Status KernelTracer::set_target(uint32_t kernel, uint64_t first_record, uint32_t num_records) {
  const cuda::DriverApi& api = code_->context().api();
  const std::string& name = plan_->kernels[kernel].name;
  const auto global = cuda::get_global(api, code_->module(kernel), kSymbol);
  if (!global)
    return make_error(ErrorCode::kInvalidArgument, fmt::format("kernel trace: kernel '{}' was compiled without {}: {}",
                                                               name, kKernelTraceDefine, global.error().message));
  if (global->num_bytes != sizeof(abi::KernelTraceTarget))
    return make_error(ErrorCode::kInternal,
                      fmt::format("kernel trace: '{}' of kernel '{}' has {} bytes, not {}", kSymbol, name,
                                  global->num_bytes, sizeof(abi::KernelTraceTarget)));
  const abi::KernelTraceTarget target{records_.get() + first_record * sizeof(abi::KernelTraceRecord), num_records, 0};
  MEGARTP_CUDA_TRY(api, memcpy_htod(global->address, &target, sizeof(target)));
  return {};
}

KernelTracer::~KernelTracer() {
  if (!code_) return;  // moved from
  const cuda::Context::Scope current(code_->context());
  // The code may live on and run again.
  for (uint32_t k = 0; k < plan_->kernels.size(); ++k) (void)set_target(k, 0, 0);
  const cuda::DeviceBuffer gone = std::move(records_);
}

Status KernelTracer::clear() {
  const cuda::Context::Scope current(code_->context());
  const cuda::DriverApi& api = code_->context().api();
  MEGARTP_CUDA_TRY(api, ctx_synchronize());
  MEGARTP_CUDA_TRY(api, memset_d8_async(records_.get(), 0, records_.size(), nullptr));
  MEGARTP_CUDA_TRY(api, ctx_synchronize());
  return {};
}

Result<RawTrace> KernelTracer::read_raw() const {
  const cuda::Context::Scope current(code_->context());
  const cuda::DriverApi& api = code_->context().api();
  MEGARTP_CUDA_TRY(api, ctx_synchronize());
  RawTrace raw;
  raw.clock_domain = cuda::kGlobalTimer;
  raw.ctas.resize(num_ctas(*plan_));
  if (!raw.ctas.empty())
    MEGARTP_CUDA_TRY(api, memcpy_dtoh(raw.ctas.data(), records_.get(), raw.ctas.size() * sizeof(raw.ctas[0])));
  raw.begin = std::numeric_limits<uint64_t>::max();
  std::vector<uint64_t> times;
  for (const abi::KernelTraceRecord& r : raw.ctas) {
    if (r.done == 0) continue;
    raw.begin = std::min(raw.begin, r.enter);
    raw.end = std::max(raw.end, r.done);
    times.insert(times.end(), {r.enter, r.inputs == 0 ? r.enter : r.inputs, r.done});
  }
  raw.begin = std::min(raw.begin, raw.end);
  raw.resolution_ns = static_cast<double>(cuda::smallest_step_ns(std::move(times)));
  return raw;
}

Result<KernelTrace> KernelTracer::read() const { return decode_kernel_trace(*plan_, MEGARTP_TRY(read_raw()).ctas); }

}  // namespace megartp::cuda_graph
