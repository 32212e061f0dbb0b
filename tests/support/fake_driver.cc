#include "support/fake_driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace megartp::test {
namespace {

using namespace cuda;  // NOLINT(google-build-using-namespace): half of what stands here is from there

FakeDriver* fake = nullptr;

template <class T, class Handle>
T* real(Handle handle) {
  return reinterpret_cast<T*>(handle);
}

// Device memory is the host's here.
void* host(DevicePtr p) { return reinterpret_cast<void*>(p); }

void add_dependency(std::vector<FakeDependency>& list, const FakeDependency& added) {
  for (const FakeDependency& d : list)
    if (d.node == added.node && d.data == added.data) return;
  list.push_back(added);
}

// --- devices and contexts

DriverStatus device_get_attribute(int* value, int id, Device) {
  switch (id) {
    case kAttrComputeMajor: *value = 9; break;
    case kAttrComputeMinor: *value = 0; break;
    case kAttrMultiprocessors: *value = 132; break;
    case kAttrSmemPerCtaOptin: *value = 232448; break;
    default: *value = 1;
  }
  return kSuccess;
}
DriverStatus get_error_name(DriverStatus, const char** name) {
  *name = "CUDA_ERROR_FAKE";
  return kSuccess;
}
DriverStatus get_error_string(DriverStatus, const char** text) {
  *text = "pretended";
  return kSuccess;
}
DriverStatus device_get_name(char* name, int, Device) {
  std::strcpy(name, "Fake GPU");
  return kSuccess;
}
DriverStatus ctx_get_stream_priority_range(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return kSuccess;
}

// --- memory: that of the host

DriverStatus mem_alloc(DevicePtr* out, size_t bytes) {
  void* p = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(p, 0x5a, bytes);
  fake->buffers.insert(p);
  fake->buffer_bytes[p] = bytes;
  *out = reinterpret_cast<DevicePtr>(p);
  return kSuccess;
}
DriverStatus mem_free(DevicePtr p) {
  fake->buffers.erase(host(p));
  std::free(host(p));
  return kSuccess;
}
DriverStatus copy(uint64_t to, uint64_t from, size_t bytes) {
  std::memcpy(host(to), host(from), bytes);
  return kSuccess;
}

// --- streams, events, capture

template <class T>
DriverStatus make(std::set<void*>& alive, T*& out) {
  out = new T;
  alive.insert(out);
  return kSuccess;
}
template <class T>
DriverStatus release(std::set<void*>& alive, T* object) {
  alive.erase(object);
  delete object;
  return kSuccess;
}

DriverStatus record(FakeEvent* event, FakeStream* stream) {
  event->capture = stream->capture;
  event->dependencies = stream->dependencies;
  return kSuccess;
}
DriverStatus wait(FakeStream* stream, const FakeEvent* event) {
  if (event->capture == nullptr) return kSuccess;
  if (stream->capture != nullptr && stream->capture != event->capture) return kErrorInvalidValue;
  stream->capture = event->capture;
  for (const FakeDependency& d : event->dependencies) add_dependency(stream->dependencies, d);
  return kSuccess;
}

DriverStatus begin_capture(FakeStream* stream) {
  FakeGraph* graph = nullptr;
  make(fake->graphs, graph);
  stream->capture = graph;
  stream->is_origin = true;
  stream->dependencies.clear();
  return kSuccess;
}
DriverStatus end_capture(FakeStream* stream, FakeGraph** graph) {
  if (!stream->is_origin) return kErrorInvalidValue;
  *graph = fake->last_graph = stream->capture;
  // Side streams must have been joined by full dependencies: their last nodes are dependencies of the origin, or come
  // before one that is.
  std::set<const FakeNode*> joined;
  std::vector<const FakeNode*> open;
  for (const FakeDependency& d : stream->dependencies)
    if (d.data == EdgeData{}) open.push_back(d.node);
  while (!open.empty()) {
    const FakeNode* node = open.back();
    open.pop_back();
    if (!joined.insert(node).second) continue;
    for (const FakeEdge& e : (*graph)->edges)
      if (e.to == node) open.push_back(e.from);
  }
  bool is_joined = true;
  for (void* s : fake->streams) {
    auto* side = static_cast<FakeStream*>(s);
    if (side->capture != *graph) continue;
    for (const FakeDependency& d : side->dependencies) is_joined &= joined.contains(d.node);
    *side = FakeStream{};
  }
  return is_joined ? kSuccess : 904;  // CUDA_ERROR_STREAM_CAPTURE_UNJOINED
}

// --- graphs

FakeNode* add_node(FakeGraph* graph, const KernelNodeParams& params) {
  auto node = std::make_unique<FakeNode>();
  node->params = params;
  const auto* function = real<FakeFunction>(params.function);
  node->blob.assign(static_cast<const char*>(params.params[0]), function->param_bytes);
  node->blob_pointer = node->blob.data();
  node->params.params = &node->blob_pointer;
  graph->nodes.push_back(std::move(node));
  return graph->nodes.back().get();
}

DriverStatus set_attribute(FakeNode* node, int id, const LaunchAttributeValue& value) {
  if (id == kLaunchPriority) node->priority = value.priority;
  if (id == kLaunchClusterDims) node->cluster = value.cluster.x;
  if (id == kLaunchCooperative) node->is_cooperative = value.cooperative != 0;
  return id == kLaunchProgrammaticStream ? kErrorInvalidValue : kSuccess;
}

DriverStatus add_edges(FakeGraph* graph, const NodeHandle* from, const NodeHandle* to, const EdgeData* data, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    for (const FakeEdge& e : graph->edges)
      if (e.from == real<FakeNode>(from[i]) && e.to == real<FakeNode>(to[i])) return kErrorInvalidValue;
    // The bug of real drivers: the first edge's data for all.
    graph->edges.push_back({real<FakeNode>(from[i]), real<FakeNode>(to[i]), data == nullptr ? EdgeData{} : data[0]});
  }
  return kSuccess;
}

DriverStatus get_edges(FakeGraph* graph, NodeHandle* from, NodeHandle* to, EdgeData* data, size_t* n) {
  if (from == nullptr) {
    *n = graph->edges.size();
    return kSuccess;
  }
  for (size_t i = 0; i < *n; ++i) {
    from[i] = reinterpret_cast<NodeHandle>(const_cast<FakeNode*>(graph->edges[i].from));
    to[i] = reinterpret_cast<NodeHandle>(const_cast<FakeNode*>(graph->edges[i].to));
    data[i] = fake->has_edge_bug ? EdgeData{} : graph->edges[i].data;
  }
  return kSuccess;
}

DriverStatus get_nodes(FakeGraph* graph, NodeHandle* nodes, size_t* n) {
  if (nodes == nullptr) {
    *n = graph->nodes.size();
    return kSuccess;
  }
  // In an order of its own, as drivers may.
  for (size_t i = 0; i < *n; ++i)
    nodes[i] = reinterpret_cast<NodeHandle>(graph->nodes[graph->nodes.size() - 1 - i].get());
  return kSuccess;
}

DriverStatus launch(const LaunchConfig* config, FakeFunction* function, void** params) {
  auto* stream = real<FakeStream>(config->stream);
  if (stream->capture == nullptr) return kSuccess;
  KernelNodeParams node_params;
  node_params.function = reinterpret_cast<FunctionHandle>(function);
  std::copy_n(config->grid, 3, node_params.grid);
  std::copy_n(config->block, 3, node_params.block);
  node_params.dynamic_smem_bytes = config->dynamic_smem_bytes;
  node_params.params = params;
  FakeNode* node = add_node(stream->capture, node_params);
  bool is_programmatic = false;
  for (unsigned i = 0; i < config->num_attributes; ++i) {
    const LaunchAttribute& a = config->attributes[i];
    if (a.id == kLaunchProgrammaticStream) is_programmatic = a.value.programmatic_stream != 0;
    if (a.id == kLaunchProgrammaticEvent) {
      auto* event = real<FakeEvent>(a.value.programmatic_event.event);
      if ((event->flags & kEventDisableTiming) == 0) return kErrorInvalidValue;
      event->capture = stream->capture;
      const uint8_t port =
          a.value.programmatic_event.trigger_at_block_start != 0 ? kPortLaunchOrder : kPortProgrammatic;
      event->dependencies = {{node, {port, 0, kEdgeProgrammatic, {}}}};
    }
    if (a.id == kLaunchPriority || a.id == kLaunchClusterDims) set_attribute(node, a.id, a.value);
  }
  for (const FakeDependency& d : stream->dependencies) {
    EdgeData data = d.data;
    if (is_programmatic && data == EdgeData{}) data = {kPortProgrammatic, 0, kEdgeProgrammatic, {}};
    for (const FakeEdge& e : stream->capture->edges)
      if (e.from == d.node && e.to == node) return kErrorInvalidValue;
    stream->capture->edges.push_back({d.node, node, data});
  }
  stream->dependencies = {{node, {}}};
  return kSuccess;
}

DriverStatus instantiate(FakeExec** out, FakeGraph* graph) {
  make(fake->execs, *out);
  (*out)->graph = graph;
  for (const auto& node : graph->nodes) (*out)->blobs[node.get()] = node->blob;
  return kSuccess;
}

DriverStatus exec_set_params(FakeExec* exec, const FakeNode* node, const KernelNodeParams* params) {
  exec->blobs[node].assign(static_cast<const char*>(params->params[0]),
                           real<FakeFunction>(params->function)->param_bytes);
  return kSuccess;
}

DriverStatus get_function(FunctionHandle* out, const char* symbol) {
  const auto it = fake->param_bytes.find(symbol);
  if (it == fake->param_bytes.end()) return 500;  // CUDA_ERROR_NOT_FOUND
  fake->functions.push_back(std::make_unique<FakeFunction>(FakeFunction{symbol, it->second, 0}));
  *out = reinterpret_cast<FunctionHandle>(fake->functions.back().get());
  return kSuccess;
}

DriverStatus get_global(DevicePtr* out, size_t* bytes, FakeModule* module, const char* symbol) {
  const auto it = fake->global_bytes.find(symbol);
  if (it == fake->global_bytes.end()) return 500;  // CUDA_ERROR_NOT_FOUND
  std::vector<char>& variable = module->globals[symbol];
  variable.resize(it->second);
  *out = reinterpret_cast<DevicePtr>(variable.data());
  *bytes = it->second;
  return kSuccess;
}

// Where the map was encoded and what for, so that tests can read it.
DriverStatus encode_map(TensorMap* map, int type, uint32_t rank, void* address, const uint64_t* dims,
                        const uint32_t* box, int swizzle) {
  if (reinterpret_cast<uintptr_t>(map) % 64 != 0 || reinterpret_cast<uintptr_t>(address) % 16 != 0)
    return kErrorInvalidValue;
  *map = {};
  map->opaque[0] = reinterpret_cast<uint64_t>(address);
  map->opaque[1] = static_cast<uint64_t>(type) << 32 | rank;
  map->opaque[2] = dims[0];
  map->opaque[3] = box[0];
  map->opaque[4] = static_cast<uint64_t>(swizzle);
  return kSuccess;
}

void fill(DriverApi& api);

}  // namespace

FakeDriver::FakeDriver() {
  fake = this;
  fill(api_);
}
FakeDriver::~FakeDriver() { fake = nullptr; }

bool FakeDriver::enter(const char* call) {
  calls.emplace_back(call);
  const bool fails = fail_at == 0;
  if (fail_at >= 0) --fail_at;
  if (fails) return false;
  return fail_call != call;
}
uint64_t FakeDriver::count(const std::string& call) const {
  return static_cast<uint64_t>(std::count(calls.begin(), calls.end(), call));
}
size_t FakeDriver::num_alive() const {
  return buffers.size() + streams.size() + events.size() + modules.size() + graphs.size() + execs.size() +
         static_cast<size_t>(contexts);
}

namespace {

// A function of the table: records the call, fails when it must, else does `body`. Releases never fail.
#define FAKE(member, symbol, parameters, body)            \
  api.member = [] parameters -> DriverStatus {            \
    if (!fake->enter(#symbol)) return kErrorInvalidValue; \
    body;                                                 \
  };
#define FAKE_RELEASE(member, symbol, parameters, body) \
  api.member = [] parameters -> DriverStatus {         \
    fake->calls.emplace_back(#symbol);                 \
    body;                                              \
  };

void fill_basics(DriverApi& api) {
  api.get_error_name = get_error_name;
  api.get_error_string = get_error_string;
  FAKE(device_get_count, cuDeviceGetCount, (int* n), *n = 1; return kSuccess)
  FAKE(device_get, cuDeviceGet, (Device * d, int), *d = 0; return kSuccess)
  FAKE(device_get_name, cuDeviceGetName, (char* name, int n, Device d), return device_get_name(name, n, d))
  FAKE(device_total_mem, cuDeviceTotalMem, (size_t* n, Device), *n = size_t{1} << 37; return kSuccess)
  FAKE(driver_get_version, cuDriverGetVersion, (int* v), *v = 13000; return kSuccess)
  FAKE(device_get_attribute, cuDeviceGetAttribute, (int* v, int id, Device d), return device_get_attribute(v, id, d))
  FAKE(primary_ctx_retain, cuDevicePrimaryCtxRetain, (ContextHandle * c, Device), ++fake->contexts;
       *c = reinterpret_cast<ContextHandle>(8); return kSuccess)
  FAKE_RELEASE(primary_ctx_release, cuDevicePrimaryCtxRelease, (Device), --fake->contexts; return kSuccess)
  FAKE_RELEASE(ctx_push_current, cuCtxPushCurrent, (ContextHandle), ++fake->pushed; return kSuccess)
  FAKE_RELEASE(ctx_pop_current, cuCtxPopCurrent, (ContextHandle*), --fake->pushed; return kSuccess)
  FAKE(ctx_synchronize, cuCtxSynchronize, (), return kSuccess)
  FAKE(ctx_get_stream_priority_range, cuCtxGetStreamPriorityRange, (int* a, int* b),
       return ctx_get_stream_priority_range(a, b))
  FAKE(mem_alloc, cuMemAlloc, (DevicePtr * p, size_t n), return mem_alloc(p, n))
  FAKE_RELEASE(mem_free, cuMemFree, (DevicePtr p), return mem_free(p))
  FAKE(memcpy_htod, cuMemcpyHtoD, (DevicePtr to, const void* from, size_t n),
       return copy(to, reinterpret_cast<uint64_t>(from), n))
  FAKE(memcpy_dtoh, cuMemcpyDtoH, (void* to, DevicePtr from, size_t n),
       return copy(reinterpret_cast<uint64_t>(to), from, n))
  FAKE(memcpy_htod_async, cuMemcpyHtoDAsync, (DevicePtr to, const void* from, size_t n, StreamHandle),
       return copy(to, reinterpret_cast<uint64_t>(from), n))
  FAKE(memcpy_dtoh_async, cuMemcpyDtoHAsync, (void* to, DevicePtr from, size_t n, StreamHandle),
       return copy(reinterpret_cast<uint64_t>(to), from, n))
  FAKE(memset_d8_async, cuMemsetD8Async, (DevicePtr p, unsigned char v, size_t n, StreamHandle),
       std::memset(host(p), v, n);
       return kSuccess)
}

void fill_streams(DriverApi& api) {
  FAKE(stream_create, cuStreamCreate, (StreamHandle * s, unsigned, int), FakeStream* made = nullptr;
       make(fake->streams, made); *s = reinterpret_cast<StreamHandle>(made); return kSuccess)
  FAKE_RELEASE(stream_destroy, cuStreamDestroy, (StreamHandle s), return release(fake->streams, real<FakeStream>(s)))
  FAKE(stream_synchronize, cuStreamSynchronize, (StreamHandle), return kSuccess)
  FAKE(stream_wait_event, cuStreamWaitEvent, (StreamHandle s, EventHandle e, unsigned),
       return wait(real<FakeStream>(s), real<FakeEvent>(e)))
  FAKE(stream_begin_capture, cuStreamBeginCapture, (StreamHandle s, int), return begin_capture(real<FakeStream>(s)))
  FAKE(stream_end_capture, cuStreamEndCapture, (StreamHandle s, GraphHandle * g),
       return end_capture(real<FakeStream>(s), reinterpret_cast<FakeGraph**>(g)))
  FAKE(event_create, cuEventCreate, (EventHandle * e, unsigned flags), FakeEvent* made = nullptr;
       make(fake->events, made); made->flags = flags; *e = reinterpret_cast<EventHandle>(made); return kSuccess)
  FAKE_RELEASE(event_destroy, cuEventDestroy, (EventHandle e), return release(fake->events, real<FakeEvent>(e)))
  FAKE(event_record, cuEventRecordWithFlags, (EventHandle e, StreamHandle s, unsigned),
       return record(real<FakeEvent>(e), real<FakeStream>(s)))
  FAKE(event_synchronize, cuEventSynchronize, (EventHandle), return kSuccess)
  FAKE(event_elapsed_time, cuEventElapsedTime, (float* ms, EventHandle, EventHandle), *ms = 0.0125F; return kSuccess)
  FAKE(module_load_data, cuModuleLoadData, (ModuleHandle * m, const void*), FakeModule* made = nullptr;
       make(fake->modules, made); *m = reinterpret_cast<ModuleHandle>(made); return kSuccess)
  FAKE_RELEASE(module_unload, cuModuleUnload, (ModuleHandle m), return release(fake->modules, real<FakeModule>(m)))
  FAKE(module_get_function, cuModuleGetFunction, (FunctionHandle * f, ModuleHandle, const char* symbol),
       return get_function(f, symbol))
  FAKE(module_get_global, cuModuleGetGlobal, (DevicePtr * p, size_t* n, ModuleHandle m, const char* symbol),
       return get_global(p, n, real<FakeModule>(m), symbol))
  FAKE(func_set_attribute, cuFuncSetAttribute, (FunctionHandle f, int id, int value),
       if (id == kFuncMaxDynamicSmem) real<FakeFunction>(f)->max_dynamic_smem = value;
       return kSuccess)
  FAKE(max_active_blocks, cuOccupancyMaxActiveBlocksPerMultiprocessor, (int* n, FunctionHandle, int, size_t),
       *n = fake->ctas_per_sm;
       return kSuccess)
  FAKE(launch_kernel, cuLaunchKernelEx, (const LaunchConfig* c, FunctionHandle f, void** p, void**),
       return launch(c, real<FakeFunction>(f), p))
  FAKE(tensor_map_encode, cuTensorMapEncodeTiled,
       (TensorMap * map, int type, uint32_t rank, void* address, const uint64_t* dims, const uint64_t*,
        const uint32_t* box, const uint32_t*, int, int swizzle, int, int),
       return encode_map(map, type, rank, address, dims, box, swizzle))
}

void fill_graphs(DriverApi& api) {
  FAKE(graph_create, cuGraphCreate, (GraphHandle * g, unsigned), FakeGraph* made = nullptr; make(fake->graphs, made);
       fake->last_graph = made; *g = reinterpret_cast<GraphHandle>(made); return kSuccess)
  FAKE_RELEASE(graph_destroy, cuGraphDestroy, (GraphHandle g), return release(fake->graphs, real<FakeGraph>(g)))
  FAKE(graph_add_kernel_node, cuGraphAddKernelNode,
       (NodeHandle * node, GraphHandle g, const NodeHandle*, size_t, const KernelNodeParams* p),
       *node = reinterpret_cast<NodeHandle>(add_node(real<FakeGraph>(g), *p));
       return kSuccess)
  FAKE(graph_kernel_node_set_attribute, cuGraphKernelNodeSetAttribute,
       (NodeHandle n, int id, const LaunchAttributeValue* v), return set_attribute(real<FakeNode>(n), id, *v))
  FAKE(graph_kernel_node_get_params, cuGraphKernelNodeGetParams, (NodeHandle n, KernelNodeParams * p),
       *p = real<FakeNode>(n)->params;
       return kSuccess)
  FAKE(graph_node_get_type, cuGraphNodeGetType, (NodeHandle, int* type), *type = kNodeTypeKernel; return kSuccess)
  FAKE(graph_add_dependencies, cuGraphAddDependencies,
       (GraphHandle g, const NodeHandle* a, const NodeHandle* b, const EdgeData* d, size_t n),
       return add_edges(real<FakeGraph>(g), a, b, d, n))
  FAKE(graph_get_edges, cuGraphGetEdges, (GraphHandle g, NodeHandle * a, NodeHandle * b, EdgeData * d, size_t* n),
       return get_edges(real<FakeGraph>(g), a, b, d, n))
  FAKE(graph_get_nodes, cuGraphGetNodes, (GraphHandle g, NodeHandle * nodes, size_t* n),
       return get_nodes(real<FakeGraph>(g), nodes, n))
  FAKE(graph_instantiate, cuGraphInstantiateWithFlags, (GraphExecHandle * e, GraphHandle g, unsigned long long),
       return instantiate(reinterpret_cast<FakeExec**>(e), real<FakeGraph>(g)))
  FAKE_RELEASE(graph_exec_destroy, cuGraphExecDestroy, (GraphExecHandle e),
               return release(fake->execs, real<FakeExec>(e)))
  FAKE(graph_exec_kernel_node_set_params, cuGraphExecKernelNodeSetParams,
       (GraphExecHandle e, NodeHandle n, const KernelNodeParams* p),
       return exec_set_params(real<FakeExec>(e), real<FakeNode>(n), p))
  FAKE(graph_upload, cuGraphUpload, (GraphExecHandle, StreamHandle), return kSuccess)
  FAKE(graph_launch, cuGraphLaunch, (GraphExecHandle e, StreamHandle), fake->launches.push_back(real<FakeExec>(e));
       return kSuccess)
}

void fill(DriverApi& api) {
  fill_basics(api);
  fill_streams(api);
  fill_graphs(api);
}

}  // namespace
}  // namespace megartp::test
