// The part of CUPTI's binary interface that we use: records of the kernels and graphs that ran, with the device's
// clock. Declared from its documentation as of CUDA 12; later versions append to the records only. No toolkit is needed
// to build; where one is installed, cupti_abi_test.cc compares every size, offset and value with its headers.
#pragma once

#include <cstddef>
#include <cstdint>

#include "backends/cuda_common/driver_abi.h"

namespace megartp::cuda {

using CuptiStatus = int;  // CUptiResult
inline constexpr CuptiStatus kCuptiSuccess = 0;
inline constexpr CuptiStatus kCuptiMaxLimitReached = 12;  // no more records in a buffer

// CUpti_ActivityKind
inline constexpr int kActivityConcurrentKernel = 10;
inline constexpr int kActivityGraphTrace = 51;

inline constexpr uint32_t kActivityFlushForced = 1;
inline constexpr size_t kActivityAlignment = 8;  // of buffers and records

// What all records begin with.
struct alignas(kActivityAlignment) ActivityRecord {
  int kind = 0;
};
// The front of CUpti_ActivityKernel5 to ...Kernel10. Times are ns, 0 when unknown.
struct KernelActivity {
  int kind = 0;
  uint32_t ignored_config = 0;
  uint64_t ignored_partition = 0;
  uint64_t start = 0;
  uint64_t end = 0;
  uint64_t completed = 0;
  uint32_t device = 0;
  uint32_t context = 0;
  uint32_t stream = 0;
  int32_t grid[3] = {};
  int32_t block[3] = {};
  int32_t static_smem_bytes = 0;
  int32_t dynamic_smem_bytes = 0;
  uint32_t local_bytes_per_thread = 0;
  uint32_t local_bytes = 0;
  uint32_t correlation = 0;  // of the call that launched it: one for all kernels of a graph launch
  int64_t grid_id = 0;
  const char* name = nullptr;
  void* reserved = nullptr;
  uint64_t queued = 0;
  uint64_t submitted = 0;
  uint32_t ignored_launch = 0;
  uint32_t smem_executed_bytes = 0;
  uint64_t graph_node = 0;
  int ignored_smem_limit = 0;
  uint32_t graph = 0;  // of the executable graph; 0 for a kernel outside of graphs
};
// The front of CUpti_ActivityGraphTrace and ...GraphTrace2.
struct GraphActivity {
  int kind = 0;
  uint32_t correlation = 0;
  uint64_t start = 0;
  uint64_t end = 0;
};

using BufferRequested = void (*)(uint8_t** buffer, size_t* num_bytes, size_t* max_num_records);
using BufferCompleted = void (*)(ContextHandle context, uint32_t stream, uint8_t* buffer, size_t num_bytes,
                                 size_t num_valid_bytes);

// X(member, exported symbol, parameters)
#define MEGARTP_CUPTI_FUNCTIONS(X)                                                          \
  X(get_version, cuptiGetVersion, (uint32_t*))                                              \
  X(get_result_string, cuptiGetResultString, (CuptiStatus, const char**))                   \
  X(register_callbacks, cuptiActivityRegisterCallbacks, (BufferRequested, BufferCompleted)) \
  X(enable, cuptiActivityEnable, (int))                                                     \
  X(disable, cuptiActivityDisable, (int))                                                   \
  X(flush_all, cuptiActivityFlushAll, (uint32_t))                                           \
  X(get_next_record, cuptiActivityGetNextRecord, (uint8_t*, size_t, ActivityRecord**))      \
  X(get_num_dropped, cuptiActivityGetNumDroppedRecords, (ContextHandle, uint32_t, size_t*))

// One pointer a function. Tests fill in their own.
struct CuptiApi {
#define MEGARTP_CUPTI_MEMBER(member, symbol, parameters) CuptiStatus(*member) parameters = nullptr;
  MEGARTP_CUPTI_FUNCTIONS(MEGARTP_CUPTI_MEMBER)
#undef MEGARTP_CUPTI_MEMBER
};

}  // namespace megartp::cuda
