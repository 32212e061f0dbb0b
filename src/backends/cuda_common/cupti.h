// CUPTI, NVIDIA's tracing library, loaded when first asked for, and what its records say about graph launches.
//
// Used by the benchmarks. Tracing changes what is traced: graphs that are instantiated while it is enabled run with
// time stamps between their kernels, so their other timings do not count.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backends/cuda_common/cupti_abi.h"
#include "megartp/error.h"

namespace megartp::cuda {

// Found as NVRTC is (MEGARTP_CUPTI names the library or its folder), loaded once for the process. kUnsupported with the
// places that were looked at.
Result<const CuptiApi*> cupti();

enum class ActivitySource : uint8_t {
  kKernels,  // a record a kernel: from the first kernel's start to the last one's end
  kGraphs,   // a record a graph launch
};

// One launch of a graph, on the device's clock.
struct LaunchSpan {
  uint64_t start_ns = 0, end_ns = 0;
  uint32_t num_kernels = 0;  // records; 0 for kGraphs
  friend bool operator==(const LaunchSpan&, const LaunchSpan&) = default;
  double us() const { return static_cast<double>(end_ns - start_ns) * 1e-3; }
};

// Records from its start to finish(). One at a time in a process, with a current context.
class ActivityTrace {
 public:
  // kInternal while another one records.
  static Result<std::unique_ptr<ActivityTrace>> start(const CuptiApi& api, ActivitySource source);
  ~ActivityTrace();
  ActivityTrace(const ActivityTrace&) = delete;
  ActivityTrace& operator=(const ActivityTrace&) = delete;

  // Stops, and returns the launches of graphs in the order of their starts. The caller has synchronised with all of
  // them. kDeviceError when records were dropped.
  Result<std::vector<LaunchSpan>> finish();

 private:
  ActivityTrace(const CuptiApi& api, ActivitySource source) : api_(api), source_(source) {}
  int kind() const;
  static void on_request(uint8_t** buffer, size_t* num_bytes, size_t* max_num_records);
  static void on_complete(ContextHandle context, uint32_t stream, uint8_t* buffer, size_t num_bytes,
                          size_t num_valid_bytes);
  void read(uint8_t* buffer, size_t num_valid_bytes);

  struct Shared;
  static Shared& shared();
  const CuptiApi& api_;
  ActivitySource source_;
  bool is_enabled_ = false;
};

}  // namespace megartp::cuda
