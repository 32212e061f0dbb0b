#include "verify/sass/sass_scan.h"

#include <algorithm>

#include <fmt/format.h>

#include "verify/sass/sass_flow.h"
#include "verify/sass/sass_order.h"

namespace megartp::sass {
namespace {

uint32_t offset_of(uint32_t instruction) { return instruction * kInstructionBytes; }

// The copy engine reads shared memory (stores of tiles) or global memory (loads of tiles).
bool engine_reads_shared(const Instruction& in) {
  switch (in.kind()) {
    case OpKind::kTensorStore:
    case OpKind::kTensorReduce: return true;
    case OpKind::kBulkCopy:
    case OpKind::kBulkReduce: return in.field(74, 1) != 0;
    default: return false;
  }
}
bool engine_reads_global(const Instruction& in) {
  if (in.kind() == OpKind::kTensorLoad) return true;
  return in.kind() == OpKind::kBulkCopy && in.field(74, 1) == 0;
}

class KernelScanner {
 public:
  KernelScanner(const CubinKernel& kernel, std::span<const uint32_t> scalars)
      : kernel_(kernel), flow_(kernel), trace_(kernel, flow_, scalars), order_(flow_, trace_) {}

  KernelScan run() {
    scan_.kernel = kernel_.name;
    scan_.num_instructions = flow_.num_instructions();
    scan_.num_registers = kernel_.num_registers;
    scan_.frame_bytes = kernel_.frame_bytes;
    scan_.static_smem_bytes = kernel_.static_smem_bytes;
    scan_.max_threads = kernel_.max_threads;
    scan_.params = kernel_.params;
    scan_.is_traced = trace_.is_complete();
    for (const uint32_t i : flow_.unknown_flow()) scan_.unknown_flow.push_back(offset_of(i));
    for (uint32_t i = 0; i < flow_.num_instructions(); ++i)
      if (flow_.is_reachable(i)) look_at(i);
    for (const uint32_t i : flow_.unfollowed_calls()) add_opaque(i, "a call that is not followed");
    for (const uint32_t offset : scan_.unknown_flow)
      add_opaque(offset / kInstructionBytes, "a jump to an unknown place");
    std::sort(scan_.opaque.begin(), scan_.opaque.end(),
              [](const OpaqueSite& a, const OpaqueSite& b) { return a.offset < b.offset; });
    judge_coverage();
    check_exits();
    return std::move(scan_);
  }

 private:
  void look_at(uint32_t i) {
    const Instruction& in = flow_.code()[i];
    if (const auto access = in.global_access()) add_access(i, *access);
    add_unfenced(i);
    switch (in.kind()) {
      case OpKind::kUnknown: return add_opaque(i, "an unknown instruction");
      case OpKind::kGraphics: return add_opaque(i, "an instruction that no compute kernel holds");
      case OpKind::kLocal: ++scan_.num_local_accesses; return;
      case OpKind::kGridWait: scan_.waits.push_back({offset_of(i), in.is_guarded()}); return;
      case OpKind::kGridTrigger:
        scan_.triggers.push_back({offset_of(i), order_.order(i), (order_.state(i) & kMayHaveWaited) != 0});
        return;
      case OpKind::kExit:
        if ((order_.state(i) & kWaited) == 0) scan_.unwaited_exits.push_back({offset_of(i), path_to(i)});
        return;
      default: return;
    }
  }

  void add_access(uint32_t i, const GlobalAccess& access) {
    const Instruction& in = flow_.code()[i];
    AccessSite site;
    site.offset = offset_of(i);
    site.text = in.text();
    site.opcode_name = in.name();
    site.op = in.kind();
    site.access = access;
    site.base = trace_.base(i);
    site.order = order_.order(i);
    site.may_follow_trigger = (order_.state(i) & kMayHaveTriggered) != 0;
    if (site.order != Order::kAfterWait) site.path = path_to(i);
    scan_.accesses.push_back(std::move(site));
  }

  void add_opaque(uint32_t i, std::string_view what) {
    const Order order = order_.order(i);
    if (order != Order::kAfterWait) scan_.opaque.push_back({offset_of(i), flow_.code()[i].text(), what, order});
  }

  void add_unfenced(uint32_t i) {
    const Instruction& in = flow_.code()[i];
    for (const bool global : {false, true}) {
      const uint8_t bit = global ? kMayHoldGlobalStore : kMayHoldSharedStore;
      if (!(global ? engine_reads_global(in) : engine_reads_shared(in)) || (order_.state(i) & bit) == 0) continue;
      const uint32_t store = order_.unfenced_store_before(i, global);
      if (store == UINT32_MAX) continue;
      scan_.unfenced.push_back({offset_of(store), offset_of(i), flow_.code()[store].text(), in.text(), global});
    }
  }

  // Searching a path takes a walk over the graph; a kernel with thousands of sites before the wait gets no more after
  // the first ones.
  Path path_to(uint32_t i) {
    constexpr uint32_t kMaxPaths = 256;
    return num_paths_++ < kMaxPaths ? order_.path_without_wait(i) : Path{};
  }

  void judge_coverage() {
    if (scan_.waits.empty()) {
      scan_.coverage = WaitCoverage::kNone;
    } else if (scan_.unwaited_exits.empty() && scan_.unknown_flow.empty()) {
      scan_.coverage = WaitCoverage::kAllThreads;
    } else {
      scan_.coverage = order_.some_thread_waits() ? WaitCoverage::kSomeThreads : WaitCoverage::kSomePaths;
    }
  }

  // ptxas lists the exits; a decoder that finds others has misread something.
  void check_exits() {
    for (const uint32_t offset : kernel_.exit_offsets) {
      const uint32_t i = offset / kInstructionBytes;
      if (offset % kInstructionBytes != 0 || i >= flow_.num_instructions() || flow_.code()[i].kind() != OpKind::kExit)
        scan_.notes.push_back(fmt::format("the cubin lists an exit at {:#06x}, where the code has none", offset));
    }
  }

  const CubinKernel& kernel_;
  FlowGraph flow_;
  Trace trace_;
  OrderAnalysis order_;
  KernelScan scan_;
  uint32_t num_paths_ = 0;
};

}  // namespace

std::string_view to_string(WaitCoverage coverage) {
  switch (coverage) {
    case WaitCoverage::kNone: return "none";
    case WaitCoverage::kSomePaths: return "some-paths";
    case WaitCoverage::kSomeThreads: return "some-threads";
    case WaitCoverage::kAllThreads: return "all-threads";
  }
  return "?";
}

std::string_view to_string(Order order) {
  switch (order) {
    case Order::kBeforeWait: return "before-wait";
    case Order::kAfterMbarrier: return "after-mbarrier";
    case Order::kAfterBarrier: return "after-barrier";
    case Order::kAfterWait: return "after-wait";
  }
  return "?";
}

KernelScan scan_kernel(const CubinKernel& kernel, std::span<const uint32_t> scalars) {
  return KernelScanner(kernel, scalars).run();
}

std::vector<KernelScan> scan_cubin(const Cubin& cubin) {
  std::vector<KernelScan> scans;
  for (const CubinKernel& kernel : cubin.kernels) scans.push_back(scan_kernel(kernel));
  return scans;
}

}  // namespace megartp::sass
