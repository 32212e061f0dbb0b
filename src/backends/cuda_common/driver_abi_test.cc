// Our declarations of the driver's interface against a toolkit's cuda.h, where one is installed.
#include "backends/cuda_common/driver_abi.h"

#include <gtest/gtest.h>

#if MEGARTP_HAVE_CUDA_HEADERS
#include <cuda.h>

namespace megartp::cuda {
namespace {

#define SAME_SIZE(ours, theirs) static_assert(sizeof(ours) == sizeof(theirs))
#define SAME_PLACE(ours, a, theirs, b) static_assert(offsetof(ours, a) == offsetof(theirs, b))

SAME_SIZE(DevicePtr, CUdeviceptr);
SAME_SIZE(Device, CUdevice);
SAME_SIZE(DriverStatus, CUresult);

SAME_SIZE(EdgeData, CUgraphEdgeData);
SAME_PLACE(EdgeData, from_port, CUgraphEdgeData, from_port);
SAME_PLACE(EdgeData, to_port, CUgraphEdgeData, to_port);
SAME_PLACE(EdgeData, type, CUgraphEdgeData, type);

SAME_SIZE(KernelNodeParams, CUDA_KERNEL_NODE_PARAMS_v2);
SAME_PLACE(KernelNodeParams, function, CUDA_KERNEL_NODE_PARAMS_v2, func);
SAME_PLACE(KernelNodeParams, grid, CUDA_KERNEL_NODE_PARAMS_v2, gridDimX);
SAME_PLACE(KernelNodeParams, block, CUDA_KERNEL_NODE_PARAMS_v2, blockDimX);
SAME_PLACE(KernelNodeParams, dynamic_smem_bytes, CUDA_KERNEL_NODE_PARAMS_v2, sharedMemBytes);
SAME_PLACE(KernelNodeParams, params, CUDA_KERNEL_NODE_PARAMS_v2, kernelParams);
SAME_PLACE(KernelNodeParams, extra, CUDA_KERNEL_NODE_PARAMS_v2, extra);
SAME_PLACE(KernelNodeParams, kernel, CUDA_KERNEL_NODE_PARAMS_v2, kern);
SAME_PLACE(KernelNodeParams, context, CUDA_KERNEL_NODE_PARAMS_v2, ctx);

SAME_SIZE(LaunchAttributeValue, CUlaunchAttributeValue);
static_assert(alignof(LaunchAttributeValue) == alignof(CUlaunchAttributeValue));
SAME_PLACE(LaunchAttributeValue, programmatic_event.event, CUlaunchAttributeValue, programmaticEvent.event);
SAME_PLACE(LaunchAttributeValue, programmatic_event.flags, CUlaunchAttributeValue, programmaticEvent.flags);
SAME_PLACE(LaunchAttributeValue, programmatic_event.trigger_at_block_start, CUlaunchAttributeValue,
           programmaticEvent.triggerAtBlockStart);
SAME_PLACE(LaunchAttributeValue, cluster.z, CUlaunchAttributeValue, clusterDim.z);
SAME_SIZE(LaunchAttribute, CUlaunchAttribute);
SAME_PLACE(LaunchAttribute, id, CUlaunchAttribute, id);
SAME_PLACE(LaunchAttribute, value, CUlaunchAttribute, value);
SAME_SIZE(LaunchConfig, CUlaunchConfig);
SAME_PLACE(LaunchConfig, grid, CUlaunchConfig, gridDimX);
SAME_PLACE(LaunchConfig, block, CUlaunchConfig, blockDimX);
SAME_PLACE(LaunchConfig, dynamic_smem_bytes, CUlaunchConfig, sharedMemBytes);
SAME_PLACE(LaunchConfig, stream, CUlaunchConfig, hStream);
SAME_PLACE(LaunchConfig, attributes, CUlaunchConfig, attrs);
SAME_PLACE(LaunchConfig, num_attributes, CUlaunchConfig, numAttrs);
SAME_SIZE(TensorMap, CUtensorMap);

#define SAME_VALUE(ours, theirs) static_assert(static_cast<long long>(ours) == static_cast<long long>(theirs))
SAME_VALUE(kSuccess, CUDA_SUCCESS);
SAME_VALUE(kErrorInvalidValue, CUDA_ERROR_INVALID_VALUE);
SAME_VALUE(kErrorOutOfMemory, CUDA_ERROR_OUT_OF_MEMORY);
SAME_VALUE(kErrorNoDevice, CUDA_ERROR_NO_DEVICE);
SAME_VALUE(kErrorNoBinaryForGpu, CUDA_ERROR_NO_BINARY_FOR_GPU);
SAME_VALUE(kErrorNotReady, CUDA_ERROR_NOT_READY);
SAME_VALUE(kErrorLaunchTimeout, CUDA_ERROR_LAUNCH_TIMEOUT);
SAME_VALUE(kErrorSystemDriverMismatch, CUDA_ERROR_SYSTEM_DRIVER_MISMATCH);
SAME_VALUE(kAttrMultiprocessors, CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
SAME_VALUE(kAttrClockKhz, CU_DEVICE_ATTRIBUTE_CLOCK_RATE);
SAME_VALUE(kAttrMemoryClockKhz, CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE);
SAME_VALUE(kAttrMemoryBusBits, CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH);
SAME_VALUE(kAttrL2Bytes, CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
SAME_VALUE(kAttrComputeMajor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
SAME_VALUE(kAttrComputeMinor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
SAME_VALUE(kAttrSmemPerSm, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR);
SAME_VALUE(kAttrRegistersPerSm, CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR);
SAME_VALUE(kAttrSmemPerCtaOptin, CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
SAME_VALUE(kFuncStaticSmem, CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
SAME_VALUE(kFuncLocalBytes, CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
SAME_VALUE(kFuncRegisters, CU_FUNC_ATTRIBUTE_NUM_REGS);
SAME_VALUE(kFuncMaxDynamicSmem, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
SAME_VALUE(kFuncSmemCarveout, CU_FUNC_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT);
SAME_VALUE(kStreamNonBlocking, CU_STREAM_NON_BLOCKING);
SAME_VALUE(kEventDisableTiming, CU_EVENT_DISABLE_TIMING);
SAME_VALUE(kInstantiateUseNodePriority, CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY);
SAME_VALUE(kCaptureThreadLocal, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
SAME_VALUE(kCaptureRelaxed, CU_STREAM_CAPTURE_MODE_RELAXED);
SAME_VALUE(kCaptureStatusActive, CU_STREAM_CAPTURE_STATUS_ACTIVE);
SAME_VALUE(kNodeTypeKernel, CU_GRAPH_NODE_TYPE_KERNEL);
SAME_VALUE(kPortProgrammatic, CU_GRAPH_KERNEL_NODE_PORT_PROGRAMMATIC);
SAME_VALUE(kPortLaunchOrder, CU_GRAPH_KERNEL_NODE_PORT_LAUNCH_ORDER);
SAME_VALUE(kEdgeProgrammatic, CU_GRAPH_DEPENDENCY_TYPE_PROGRAMMATIC);
SAME_VALUE(kLaunchCooperative, CU_LAUNCH_ATTRIBUTE_COOPERATIVE);
SAME_VALUE(kLaunchClusterDims, CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
SAME_VALUE(kLaunchProgrammaticStream, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
SAME_VALUE(kLaunchProgrammaticEvent, CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_EVENT);
SAME_VALUE(kLaunchPriority, CU_LAUNCH_ATTRIBUTE_PRIORITY);
SAME_VALUE(kMapUint8, CU_TENSOR_MAP_DATA_TYPE_UINT8);
SAME_VALUE(kMapFloat32, CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
SAME_VALUE(kMapBFloat16, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
SAME_VALUE(kSwizzle32, CU_TENSOR_MAP_SWIZZLE_32B);
SAME_VALUE(kSwizzle64, CU_TENSOR_MAP_SWIZZLE_64B);
SAME_VALUE(kSwizzle128, CU_TENSOR_MAP_SWIZZLE_128B);
SAME_VALUE(kL2Promotion256, CU_TENSOR_MAP_L2_PROMOTION_L2_256B);

// The number of parameters and the size of each: a handle or pointer is as good as another.
template <class F>
struct Signature;
template <class R, class... A>
struct Signature<R (*)(A...)> {
  static constexpr size_t count = sizeof...(A);
  static constexpr std::array<size_t, sizeof...(A) + 1> sizes{sizeof(A)..., 0};
  static constexpr std::array<bool, sizeof...(A) + 1> pointers{std::is_pointer_v<A>..., false};
};
template <class Ours, class Theirs>
constexpr bool same_signature() {
  return Signature<Ours>::count == Signature<Theirs>::count && Signature<Ours>::sizes == Signature<Theirs>::sizes &&
         Signature<Ours>::pointers == Signature<Theirs>::pointers;
}
// cuda.h names the newest version; two of ours are older ones of the same shape.
#define SAME_SIGNATURE(member, theirs) \
  static_assert(same_signature<decltype(DriverApi::member), decltype(&theirs)>(), #theirs)
SAME_SIGNATURE(init, cuInit);
SAME_SIGNATURE(device_get_attribute, cuDeviceGetAttribute);
SAME_SIGNATURE(device_total_mem, cuDeviceTotalMem);
SAME_SIGNATURE(primary_ctx_retain, cuDevicePrimaryCtxRetain);
SAME_SIGNATURE(primary_ctx_release, cuDevicePrimaryCtxRelease);
SAME_SIGNATURE(ctx_push_current, cuCtxPushCurrent);
SAME_SIGNATURE(ctx_pop_current, cuCtxPopCurrent);
SAME_SIGNATURE(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange);
SAME_SIGNATURE(mem_alloc, cuMemAlloc);
SAME_SIGNATURE(mem_free, cuMemFree);
SAME_SIGNATURE(mem_host_alloc, cuMemHostAlloc);
SAME_SIGNATURE(memcpy_htod, cuMemcpyHtoD);
SAME_SIGNATURE(memcpy_dtoh, cuMemcpyDtoH);
SAME_SIGNATURE(memcpy_htod_async, cuMemcpyHtoDAsync);
SAME_SIGNATURE(memcpy_dtoh_async, cuMemcpyDtoHAsync);
SAME_SIGNATURE(memcpy_dtod_async, cuMemcpyDtoDAsync);
SAME_SIGNATURE(memset_d8_async, cuMemsetD8Async);
SAME_SIGNATURE(stream_create, cuStreamCreateWithPriority);
SAME_SIGNATURE(stream_wait_event, cuStreamWaitEvent);
SAME_SIGNATURE(stream_begin_capture, cuStreamBeginCapture);
SAME_SIGNATURE(stream_end_capture, cuStreamEndCapture);
SAME_SIGNATURE(stream_get_capture_info, cuStreamGetCaptureInfo);
SAME_SIGNATURE(event_create, cuEventCreate);
SAME_SIGNATURE(event_record, cuEventRecordWithFlags);
SAME_SIGNATURE(event_elapsed_time, cuEventElapsedTime);
SAME_SIGNATURE(module_load_data, cuModuleLoadData);
SAME_SIGNATURE(module_get_function, cuModuleGetFunction);
SAME_SIGNATURE(func_get_attribute, cuFuncGetAttribute);
SAME_SIGNATURE(func_set_attribute, cuFuncSetAttribute);
SAME_SIGNATURE(max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor);
SAME_SIGNATURE(launch_kernel, cuLaunchKernelEx);
SAME_SIGNATURE(tensor_map_encode, cuTensorMapEncodeTiled);
SAME_SIGNATURE(graph_add_kernel_node, cuGraphAddKernelNode);
SAME_SIGNATURE(graph_kernel_node_set_attribute, cuGraphKernelNodeSetAttribute);
SAME_SIGNATURE(graph_kernel_node_get_params, cuGraphKernelNodeGetParams);
SAME_SIGNATURE(graph_node_get_type, cuGraphNodeGetType);
SAME_SIGNATURE(graph_add_dependencies, cuGraphAddDependencies);
SAME_SIGNATURE(graph_get_edges, cuGraphGetEdges);
SAME_SIGNATURE(graph_get_nodes, cuGraphGetNodes);
SAME_SIGNATURE(graph_instantiate, cuGraphInstantiate);
SAME_SIGNATURE(graph_exec_kernel_node_set_params, cuGraphExecKernelNodeSetParams);
SAME_SIGNATURE(graph_launch, cuGraphLaunch);

// What this file checks, it checks when it is compiled.
TEST(DriverAbi, IsThatOfTheToolkit) { EXPECT_GE(CUDA_VERSION, 12030); }

}  // namespace
}  // namespace megartp::cuda
#else
TEST(DriverAbi, IsThatOfTheToolkit) { GTEST_SKIP() << "no CUDA toolkit on this machine"; }
#endif
