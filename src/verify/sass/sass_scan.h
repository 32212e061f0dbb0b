// The scan of one compiled kernel: where it waits for its predecessors, where it lets its successors start, and which
// accesses to global memory may run before the wait.
//
// Called by `megartp verify cubin` and by compare_with_contract (kernel_contract.h). "May" and "every path" are over
// the flow graph, so a finding can be about a path that the data never take; docs/sass-scan.md says what is proved and
// what is not.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "verify/sass/cubin.h"
#include "verify/sass/sass_decode.h"
#include "verify/sass/sass_trace.h"

namespace megartp::sass {

// Whether the kernel waits.
enum class WaitCoverage : uint8_t {
  kNone,         // there is no wait
  kSomePaths,    // a CTA may end without a thread that waited
  kSomeThreads,  // in every CTA some thread waits, chosen by its index
  kAllThreads,   // every thread, on every path to its exit
};
std::string_view to_string(WaitCoverage coverage);

// What precedes an instruction on every path to it.
enum class Order : uint8_t {
  kBeforeWait,     // on some path neither of the following
  kAfterMbarrier,  // a wait for an mbarrier that a thread arrives at, or a copy completes, after the grid wait
  kAfterBarrier,   // a barrier that, in every CTA, some thread reaches only after the grid wait
  kAfterWait,      // the thread's own grid wait
};
std::string_view to_string(Order order);

struct WaitSite {
  uint32_t offset = 0;
  bool is_guarded = false;
};
struct TriggerSite {
  uint32_t offset = 0;
  Order order = Order::kBeforeWait;
  bool some_path_waited = false;  // with kBeforeWait: but not all
};

// The way from the entry to an instruction, as the offsets where it does not go to the next instruction, and their
// targets.
struct Jump {
  uint32_t from = 0;
  uint32_t to = 0;
};
using Path = std::vector<Jump>;

struct AccessSite {
  uint32_t offset = 0;
  std::string text;
  std::string_view opcode_name;
  OpKind op = OpKind::kUnknown;
  GlobalAccess access;
  AddressBase base;
  Order order = Order::kBeforeWait;
  bool may_follow_trigger = false;
  Path path;  // one without a wait; empty when kAfterWait
};

// An instruction before the wait of which nothing can be said.
struct OpaqueSite {
  uint32_t offset = 0;
  std::string text;
  std::string_view what;  // "an unknown instruction", "a call that is not followed", ...
  Order order = Order::kBeforeWait;
};

// An ordinary store and an access of the copy engine that may follow it with no proxy fence between.
struct UnfencedCopy {
  uint32_t store_offset = 0;
  uint32_t copy_offset = 0;
  std::string store_text, copy_text;
  bool is_global = false;  // else shared memory
};

struct UnwaitedExit {
  uint32_t offset = 0;
  Path path;
};

struct KernelScan {
  std::string kernel;
  uint32_t num_instructions = 0;
  uint32_t num_registers = 0;
  uint32_t frame_bytes = 0;
  uint32_t num_local_accesses = 0;  // LDL, STL: spills or local arrays
  uint32_t static_smem_bytes = 0;
  uint64_t max_threads = 0;
  std::vector<KernelParam> params;

  WaitCoverage coverage = WaitCoverage::kNone;
  std::vector<WaitSite> waits;
  std::vector<UnwaitedExit> unwaited_exits;
  std::vector<TriggerSite> triggers;
  std::vector<AccessSite> accesses;  // to global memory, by offset; prefetches too
  std::vector<OpaqueSite> opaque;    // reachable ones that are not kAfterWait
  std::vector<UnfencedCopy> unfenced;
  std::vector<uint32_t> unknown_flow;  // offsets whose successors are unknown
  bool is_traced = false;              // false: every base is unknown
  std::vector<std::string> notes;      // where the file contradicts itself
};

// `scalars`: byte offsets, in the parameter block, of 32-bit words that are known to be no half of a pointer. Where a
// struct is one parameter, nothing else tells its lengths and strides from its pointers.
KernelScan scan_kernel(const CubinKernel& kernel, std::span<const uint32_t> scalars = {});
std::vector<KernelScan> scan_cubin(const Cubin& cubin);

}  // namespace megartp::sass
