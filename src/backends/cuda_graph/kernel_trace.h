// When every CTA of one replay entered, had its inputs and ended, in kernels compiled with MEGARTP_TRACE=1.
//
//   codegen::CompileOptions options;
//   options.more_options.emplace_back(kKernelTraceDefine);
//   auto code = MEGARTP_TRY(LoadedCode::load(context, *plan, options, {.has_module_per_kernel = true}));
//   auto tracer = MEGARTP_TRY(KernelTracer::create(plan, code));
//   ... make an executable, warm up ...
//   MEGARTP_TRY(tracer.clear());
//   MEGARTP_TRY(exec->run(stream));
//   const KernelTrace trace = MEGARTP_TRY(tracer.read());
//
// One buffer holds a region of records for every kernel of the plan, one record for every CTA (abi/kernel_trace.h).
// Where its region lies stands in a variable of the kernel's module, so kernels that are the same code need a module
// each: the cubin is then loaded once a kernel. Executables that share the code share the records: one run at a time
// between clear() and read().
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "abi/kernel_trace.h"
#include "backends/cuda_graph/loaded_code.h"
#include "backends/raw_trace.h"

namespace megartp::cuda_graph {

inline constexpr std::string_view kKernelTraceDefine = "-DMEGARTP_TRACE=1";

// Nanoseconds after KernelTrace::begin_ns, as thread 0 of the CTA read the clock.
struct CtaRecord {
  uint64_t enter_ns = 0;
  uint64_t inputs_ns = 0;  // enter_ns when it waits for nothing
  uint64_t done_ns = 0;
  uint32_t sm = 0;
  std::array<uint64_t, abi::kKernelTraceMarks> marks_ns{};  // 0: not reached; what they mean is the kernel's affair
  friend bool operator==(const CtaRecord&, const CtaRecord&) = default;
};
struct TracedKernel {
  std::string name;
  std::vector<CtaRecord> ctas;  // by linear index in the grid
};
struct KernelTrace {
  uint64_t begin_ns = 0;              // when the first CTA entered, by the GPU's %globaltimer
  std::vector<TracedKernel> kernels;  // as in the plan
};

// Records of all kernels, one region behind the other (RawTrace::ctas), as the device wrote them. kMismatch naming
// kernel and CTA when a record is missing, lies at another CTA's place or its times run backwards.
Result<KernelTrace> decode_kernel_trace(const LaunchPlan& plan, std::span<const abi::KernelTraceRecord> records);

struct TimeRange {
  uint64_t first_ns = 0, last_ns = 0;
};
struct KernelSummary {
  std::string name;
  size_t num_ctas = 0;
  size_t num_sms = 0;  // that CTAs ran on
  TimeRange enter, inputs, done;
};
std::vector<KernelSummary> summarize(const KernelTrace& trace);

// A line a kernel: CTAs, SMs, and first to last in microseconds.
std::string to_table(const KernelTrace& trace);
// A line a CTA, in nanoseconds.
std::string to_csv(const KernelTrace& trace);

class KernelTracer {
 public:
  // Allocates the records and tells every module where its kernel's are. kInvalidArgument when the code was not
  // compiled with kKernelTraceDefine or kernels share a module.
  static Result<KernelTracer> create(std::shared_ptr<const LaunchPlan> plan, std::shared_ptr<const LoadedCode> code);
  ~KernelTracer();
  KernelTracer(KernelTracer&&) = default;
  KernelTracer& operator=(KernelTracer&&) = delete;

  // All wait for everything that the context does.
  Status clear();
  // As they are. The run begins when its first CTA enters and is over when the last one ends.
  Result<RawTrace> read_raw() const;
  Result<KernelTrace> read() const;

 private:
  KernelTracer(std::shared_ptr<const LaunchPlan> plan, std::shared_ptr<const LoadedCode> code)
      : plan_(std::move(plan)), code_(std::move(code)) {}
  Status set_target(uint32_t kernel, uint64_t first_record, uint32_t num_records);

  std::shared_ptr<const LaunchPlan> plan_;
  std::shared_ptr<const LoadedCode> code_;
  cuda::DeviceBuffer records_;
};

}  // namespace megartp::cuda_graph
