// The part of the CUDA driver's binary interface that we use, declared from its documentation: handles, constants and
// structs as of CUDA 12.3, which later versions keep. No toolkit is needed to build; where one is installed,
// driver_abi_test.cc compares every size, offset and value with its cuda.h.
#pragma once

#include <cstddef>
#include <cstdint>

namespace megartp::cuda {

using DevicePtr = uint64_t;
using Device = int;
// Opaque; a different type each, so that they cannot be mixed up.
using ContextHandle = struct ContextTag*;
using ModuleHandle = struct ModuleTag*;
using FunctionHandle = struct FunctionTag*;
using StreamHandle = struct StreamTag*;
using EventHandle = struct EventTag*;
using GraphHandle = struct GraphTag*;
using GraphExecHandle = struct GraphExecTag*;
using NodeHandle = struct NodeTag*;

using DriverStatus = int;  // CUresult
inline constexpr DriverStatus kSuccess = 0;
inline constexpr DriverStatus kErrorInvalidValue = 1;
inline constexpr DriverStatus kErrorOutOfMemory = 2;
inline constexpr DriverStatus kErrorNoDevice = 100;
inline constexpr DriverStatus kErrorNoBinaryForGpu = 209;
inline constexpr DriverStatus kErrorNotReady = 600;
inline constexpr DriverStatus kErrorLaunchTimeout = 702;
inline constexpr DriverStatus kErrorSystemDriverMismatch = 803;

// CUdevice_attribute
inline constexpr int kAttrMultiprocessors = 16;
inline constexpr int kAttrClockKhz = 13;
inline constexpr int kAttrMemoryClockKhz = 36;
inline constexpr int kAttrMemoryBusBits = 37;
inline constexpr int kAttrL2Bytes = 38;
inline constexpr int kAttrComputeMajor = 75;
inline constexpr int kAttrComputeMinor = 76;
inline constexpr int kAttrSmemPerSm = 81;
inline constexpr int kAttrRegistersPerSm = 82;
inline constexpr int kAttrSmemPerCtaOptin = 97;

// CUfunction_attribute
inline constexpr int kFuncStaticSmem = 1;
inline constexpr int kFuncLocalBytes = 3;
inline constexpr int kFuncRegisters = 4;
inline constexpr int kFuncMaxDynamicSmem = 8;
inline constexpr int kFuncSmemCarveout = 9;

// Flags of streams, events, instantiation, capture.
inline constexpr unsigned kStreamNonBlocking = 1;
inline constexpr unsigned kEventDefault = 0;
inline constexpr unsigned kEventDisableTiming = 2;
inline constexpr unsigned long long kInstantiateUseNodePriority = 8;
inline constexpr int kCaptureGlobal = 0;
inline constexpr int kCaptureThreadLocal = 1;
inline constexpr int kCaptureRelaxed = 2;
inline constexpr int kCaptureStatusNone = 0;
inline constexpr int kCaptureStatusActive = 1;
inline constexpr int kNodeTypeKernel = 0;

// An edge of a graph. All zero: the upstream node is complete and its memory visible.
struct EdgeData {
  uint8_t from_port = 0;
  uint8_t to_port = 0;
  uint8_t type = 0;
  uint8_t reserved[5] = {};
  friend bool operator==(const EdgeData&, const EdgeData&) = default;
};
inline constexpr uint8_t kPortDefault = 0;
inline constexpr uint8_t kPortProgrammatic = 1;
inline constexpr uint8_t kPortLaunchOrder = 2;
inline constexpr uint8_t kEdgeDefault = 0;
inline constexpr uint8_t kEdgeProgrammatic = 1;

struct KernelNodeParams {  // CUDA_KERNEL_NODE_PARAMS_v2
  FunctionHandle function = nullptr;
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned dynamic_smem_bytes = 0;
  void** params = nullptr;
  void** extra = nullptr;
  void* kernel = nullptr;
  ContextHandle context = nullptr;
};

// CUlaunchAttributeID, which nodes and launches share.
inline constexpr int kLaunchCooperative = 2;
inline constexpr int kLaunchClusterDims = 4;
inline constexpr int kLaunchProgrammaticStream = 6;
inline constexpr int kLaunchProgrammaticEvent = 7;
inline constexpr int kLaunchPriority = 8;

union LaunchAttributeValue {
  uint8_t pad[64];
  uint64_t align;
  struct {
    unsigned x, y, z;
  } cluster;
  int cooperative;
  int programmatic_stream;
  struct {
    EventHandle event;
    int flags;
    int trigger_at_block_start;
  } programmatic_event;
  int priority;
};
struct LaunchAttribute {
  int id = 0;
  uint32_t pad = 0;
  LaunchAttributeValue value = {};
};
struct LaunchConfig {
  unsigned grid[3] = {1, 1, 1};
  unsigned block[3] = {1, 1, 1};
  unsigned dynamic_smem_bytes = 0;
  StreamHandle stream = nullptr;
  LaunchAttribute* attributes = nullptr;
  unsigned num_attributes = 0;
};

struct alignas(64) TensorMap {
  uint64_t opaque[16] = {};
};
// CUtensorMapDataType, ...Swizzle, ...L2promotion
inline constexpr int kMapUint8 = 0;
inline constexpr int kMapFloat32 = 7;
inline constexpr int kMapBFloat16 = 9;
inline constexpr int kSwizzleNone = 0;
inline constexpr int kSwizzle32 = 1;
inline constexpr int kSwizzle64 = 2;
inline constexpr int kSwizzle128 = 3;
inline constexpr int kL2PromotionNone = 0;
inline constexpr int kL2Promotion256 = 3;

// X(member, exported symbol, parameters): every driver function that we call. The suffix is the version of the
// interface that the structs above belong to.
#define MEGARTP_DRIVER_FUNCTIONS(X)                                                                                  \
  X(init, cuInit, (unsigned))                                                                                        \
  X(driver_get_version, cuDriverGetVersion, (int*))                                                                  \
  X(get_error_name, cuGetErrorName, (DriverStatus, const char**))                                                    \
  X(get_error_string, cuGetErrorString, (DriverStatus, const char**))                                                \
  X(device_get_count, cuDeviceGetCount, (int*))                                                                      \
  X(device_get, cuDeviceGet, (Device*, int))                                                                         \
  X(device_get_name, cuDeviceGetName, (char*, int, Device))                                                          \
  X(device_total_mem, cuDeviceTotalMem_v2, (size_t*, Device))                                                        \
  X(device_get_attribute, cuDeviceGetAttribute, (int*, int, Device))                                                 \
  X(primary_ctx_retain, cuDevicePrimaryCtxRetain, (ContextHandle*, Device))                                          \
  X(primary_ctx_release, cuDevicePrimaryCtxRelease_v2, (Device))                                                     \
  X(ctx_push_current, cuCtxPushCurrent_v2, (ContextHandle))                                                          \
  X(ctx_pop_current, cuCtxPopCurrent_v2, (ContextHandle*))                                                           \
  X(ctx_synchronize, cuCtxSynchronize, ())                                                                           \
  X(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, (int*, int*))                                        \
  X(mem_alloc, cuMemAlloc_v2, (DevicePtr*, size_t))                                                                  \
  X(mem_free, cuMemFree_v2, (DevicePtr))                                                                             \
  X(mem_host_alloc, cuMemHostAlloc, (void**, size_t, unsigned))                                                      \
  X(mem_free_host, cuMemFreeHost, (void*))                                                                           \
  X(memcpy_htod, cuMemcpyHtoD_v2, (DevicePtr, const void*, size_t))                                                  \
  X(memcpy_dtoh, cuMemcpyDtoH_v2, (void*, DevicePtr, size_t))                                                        \
  X(memcpy_htod_async, cuMemcpyHtoDAsync_v2, (DevicePtr, const void*, size_t, StreamHandle))                         \
  X(memcpy_dtoh_async, cuMemcpyDtoHAsync_v2, (void*, DevicePtr, size_t, StreamHandle))                               \
  X(memcpy_dtod_async, cuMemcpyDtoDAsync_v2, (DevicePtr, DevicePtr, size_t, StreamHandle))                           \
  X(memset_d8_async, cuMemsetD8Async, (DevicePtr, unsigned char, size_t, StreamHandle))                              \
  X(stream_create, cuStreamCreateWithPriority, (StreamHandle*, unsigned, int))                                       \
  X(stream_destroy, cuStreamDestroy_v2, (StreamHandle))                                                              \
  X(stream_synchronize, cuStreamSynchronize, (StreamHandle))                                                         \
  X(stream_query, cuStreamQuery, (StreamHandle))                                                                     \
  X(stream_wait_event, cuStreamWaitEvent, (StreamHandle, EventHandle, unsigned))                                     \
  X(stream_begin_capture, cuStreamBeginCapture_v2, (StreamHandle, int))                                              \
  X(stream_end_capture, cuStreamEndCapture, (StreamHandle, GraphHandle*))                                            \
  X(stream_get_capture_info, cuStreamGetCaptureInfo_v3,                                                              \
    (StreamHandle, int*, uint64_t*, GraphHandle*, const NodeHandle**, const EdgeData**, size_t*))                    \
  X(event_create, cuEventCreate, (EventHandle*, unsigned))                                                           \
  X(event_destroy, cuEventDestroy_v2, (EventHandle))                                                                 \
  X(event_record, cuEventRecordWithFlags, (EventHandle, StreamHandle, unsigned))                                     \
  X(event_synchronize, cuEventSynchronize, (EventHandle))                                                            \
  X(event_elapsed_time, cuEventElapsedTime, (float*, EventHandle, EventHandle))                                      \
  X(module_load_data, cuModuleLoadData, (ModuleHandle*, const void*))                                                \
  X(module_unload, cuModuleUnload, (ModuleHandle))                                                                   \
  X(module_get_function, cuModuleGetFunction, (FunctionHandle*, ModuleHandle, const char*))                          \
  X(func_get_attribute, cuFuncGetAttribute, (int*, int, FunctionHandle))                                             \
  X(func_set_attribute, cuFuncSetAttribute, (FunctionHandle, int, int))                                              \
  X(max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int*, FunctionHandle, int, size_t))             \
  X(launch_kernel, cuLaunchKernelEx, (const LaunchConfig*, FunctionHandle, void**, void**))                          \
  X(tensor_map_encode, cuTensorMapEncodeTiled,                                                                       \
    (TensorMap*, int, uint32_t, void*, const uint64_t*, const uint64_t*, const uint32_t*, const uint32_t*, int, int, \
     int, int))                                                                                                      \
  X(graph_create, cuGraphCreate, (GraphHandle*, unsigned))                                                           \
  X(graph_destroy, cuGraphDestroy, (GraphHandle))                                                                    \
  X(graph_add_kernel_node, cuGraphAddKernelNode_v2,                                                                  \
    (NodeHandle*, GraphHandle, const NodeHandle*, size_t, const KernelNodeParams*))                                  \
  X(graph_kernel_node_set_attribute, cuGraphKernelNodeSetAttribute, (NodeHandle, int, const LaunchAttributeValue*))  \
  X(graph_kernel_node_get_params, cuGraphKernelNodeGetParams_v2, (NodeHandle, KernelNodeParams*))                    \
  X(graph_node_get_type, cuGraphNodeGetType, (NodeHandle, int*))                                                     \
  X(graph_add_dependencies, cuGraphAddDependencies_v2,                                                               \
    (GraphHandle, const NodeHandle*, const NodeHandle*, const EdgeData*, size_t))                                    \
  X(graph_get_edges, cuGraphGetEdges_v2, (GraphHandle, NodeHandle*, NodeHandle*, EdgeData*, size_t*))                \
  X(graph_get_nodes, cuGraphGetNodes, (GraphHandle, NodeHandle*, size_t*))                                           \
  X(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExecHandle*, GraphHandle, unsigned long long))             \
  X(graph_exec_destroy, cuGraphExecDestroy, (GraphExecHandle))                                                       \
  X(graph_exec_kernel_node_set_params, cuGraphExecKernelNodeSetParams_v2,                                            \
    (GraphExecHandle, NodeHandle, const KernelNodeParams*))                                                          \
  X(graph_upload, cuGraphUpload, (GraphExecHandle, StreamHandle))                                                    \
  X(graph_launch, cuGraphLaunch, (GraphExecHandle, StreamHandle))

// One pointer a function. Tests fill in their own.
struct DriverApi {
#define MEGARTP_DRIVER_MEMBER(member, symbol, parameters) DriverStatus(*member) parameters = nullptr;
  MEGARTP_DRIVER_FUNCTIONS(MEGARTP_DRIVER_MEMBER)
#undef MEGARTP_DRIVER_MEMBER
};

}  // namespace megartp::cuda
