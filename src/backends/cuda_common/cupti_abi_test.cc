// Our declarations of CUPTI's interface against a toolkit's headers, where they are installed.
#include "backends/cuda_common/cupti_abi.h"

#include <cstddef>
#include <utility>

#include <gtest/gtest.h>

#if MEGARTP_HAVE_CUDA_HEADERS && __has_include(<cupti.h>)
#include <cupti.h>

namespace megartp::cuda {
namespace {

static_assert(sizeof(CuptiStatus) == sizeof(CUptiResult));
static_assert(kCuptiSuccess == CUPTI_SUCCESS);
static_assert(kCuptiMaxLimitReached == CUPTI_ERROR_MAX_LIMIT_REACHED);
static_assert(kActivityConcurrentKernel == CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
static_assert(kActivityGraphTrace == CUPTI_ACTIVITY_KIND_GRAPH_TRACE);
static_assert(kActivityFlushForced == CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
static_assert(kActivityAlignment == ACTIVITY_RECORD_ALIGNMENT);
static_assert(sizeof(ActivityRecord) == sizeof(CUpti_Activity));

#define SAME_MEMBER(Theirs, Ours, a, b)                     \
  static_assert(offsetof(Ours, a) == offsetof(Theirs, b) && \
                sizeof(std::declval<Ours>().a) == sizeof(std::declval<Theirs>().b))
// The front that all versions of the record share, so that the library may be older or newer than the headers.
template <class Theirs>
constexpr bool is_kernel_record() {
  static_assert(sizeof(KernelActivity) <= sizeof(Theirs));
  SAME_MEMBER(Theirs, KernelActivity, kind, kind);
  SAME_MEMBER(Theirs, KernelActivity, start, start);
  SAME_MEMBER(Theirs, KernelActivity, end, end);
  SAME_MEMBER(Theirs, KernelActivity, completed, completed);
  SAME_MEMBER(Theirs, KernelActivity, device, deviceId);
  SAME_MEMBER(Theirs, KernelActivity, stream, streamId);
  static_assert(offsetof(KernelActivity, grid) == offsetof(Theirs, gridX));
  static_assert(offsetof(KernelActivity, block) == offsetof(Theirs, blockX));
  SAME_MEMBER(Theirs, KernelActivity, correlation, correlationId);
  SAME_MEMBER(Theirs, KernelActivity, name, name);
  SAME_MEMBER(Theirs, KernelActivity, graph_node, graphNodeId);
  SAME_MEMBER(Theirs, KernelActivity, graph, graphId);
  return true;
}
template <class Theirs>
constexpr bool is_graph_record() {
  static_assert(sizeof(GraphActivity) <= sizeof(Theirs));
  SAME_MEMBER(Theirs, GraphActivity, kind, kind);
  SAME_MEMBER(Theirs, GraphActivity, correlation, correlationId);
  SAME_MEMBER(Theirs, GraphActivity, start, start);
  SAME_MEMBER(Theirs, GraphActivity, end, end);
  return true;
}
static_assert(is_kernel_record<CUpti_ActivityKernel9>());
static_assert(is_graph_record<CUpti_ActivityGraphTrace2>());
#if CUPTI_API_VERSION >= 130000
static_assert(is_kernel_record<CUpti_ActivityKernel10>());
static_assert(is_kernel_record<CUpti_ActivityKernel6>());
static_assert(is_graph_record<CUpti_ActivityGraphTrace>());
#endif

// As the driver's: number and size of parameters.
template <class F>
struct Parameters;
template <class R, class... A>
struct Parameters<R (*)(A...)> {
  static constexpr size_t total = (sizeof(A) + ... + 0);
  static constexpr size_t count = sizeof...(A);
};
#define SAME_CALL(member, theirs)                                                                          \
  static_assert(Parameters<decltype(CuptiApi::member)>::count == Parameters<decltype(&theirs)>::count &&   \
                    Parameters<decltype(CuptiApi::member)>::total == Parameters<decltype(&theirs)>::total, \
                #theirs)
SAME_CALL(get_version, cuptiGetVersion);
SAME_CALL(get_result_string, cuptiGetResultString);
SAME_CALL(register_callbacks, cuptiActivityRegisterCallbacks);
SAME_CALL(enable, cuptiActivityEnable);
SAME_CALL(disable, cuptiActivityDisable);
SAME_CALL(flush_all, cuptiActivityFlushAll);
SAME_CALL(get_next_record, cuptiActivityGetNextRecord);
SAME_CALL(get_num_dropped, cuptiActivityGetNumDroppedRecords);

TEST(CuptiAbi, IsThatOfTheToolkit) { EXPECT_GT(CUPTI_API_VERSION, 0); }

}  // namespace
}  // namespace megartp::cuda
#else
TEST(CuptiAbi, IsThatOfTheToolkit) { GTEST_SKIP() << "no CUPTI headers on this machine"; }
#endif
