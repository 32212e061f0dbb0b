// The kernel trace: when each CTA of a launch plan entered, had its inputs and ended. Plain data, same layout for host
// and device: device/frame.cuh fills it where kernels are compiled with MEGARTP_TRACE=1, backends/cuda_graph reads it.
//
//   KernelTraceTarget (16 bytes, one a module):  records | num_records | 0
//   KernelTraceRecord (48 bytes, one a CTA):     enter | inputs | done | sm | cta | marks[4]
//
// A CTA writes the record whose index is its linear index in the grid, and nothing when there are not so many; so no
// two write the same one, and none needs an atomic. Times are those of thread 0, in ns of %globaltimer. Little-endian.
#pragma once

#include <cstdint>

namespace megartp::abi {

// The symbol of the target, in constant memory; as it is, without a namespace.
#define MEGARTP_KERNEL_TRACE_SYMBOL megartp_kernel_trace

inline constexpr uint32_t kKernelTraceMarks = 4;

struct alignas(16) KernelTraceTarget {
  uint64_t records;  // address of the kernel's first KernelTraceRecord
  uint32_t num_records;
  uint32_t reserved0;
};
static_assert(sizeof(KernelTraceTarget) == 16);

struct alignas(16) KernelTraceRecord {
  uint64_t enter;
  uint64_t inputs;  // what waits for other kernels is over; 0: it never waited
  uint64_t done;    // 0: not written
  uint32_t sm;
  uint32_t cta;  // linear: the record's own index
  // ns after `enter`, 0: not reached. What a mark means is the kernel's affair: KernelFrame::mark.
  uint32_t marks[kKernelTraceMarks];
};
static_assert(sizeof(KernelTraceRecord) == 48);

}  // namespace megartp::abi
