#include "backends/cuda_common/resources.h"

namespace megartp::cuda {

Result<std::shared_ptr<const Context>> Context::open(const DriverApi& api, int ordinal) {
  DeviceInfo info = MEGARTP_TRY(device_info(api, ordinal));
  Device device = 0;
  MEGARTP_CUDA_TRY(api, device_get(&device, ordinal));
  ContextHandle handle = nullptr;
  MEGARTP_CUDA_TRY(api, primary_ctx_retain(&handle, device));
  return std::make_shared<const Context>(api, device, handle, std::move(info));
}

Result<Stream> make_stream(const DriverApi& api, int priority) {
  StreamHandle handle = nullptr;
  MEGARTP_CUDA_TRY(api, stream_create(&handle, kStreamNonBlocking, priority));
  return Stream(api, handle);
}

Result<Event> make_event(const DriverApi& api, bool with_timing) {
  EventHandle handle = nullptr;
  MEGARTP_CUDA_TRY(api, event_create(&handle, with_timing ? kEventDefault : kEventDisableTiming));
  return Event(api, handle);
}

Result<Module> load_module(const DriverApi& api, std::string_view cubin) {
  ModuleHandle handle = nullptr;
  // A cubin is an ELF file, which carries its own size.
  MEGARTP_CUDA_TRY(api, module_load_data(&handle, cubin.data()));
  return Module(api, handle);
}

Result<FunctionHandle> get_function(const DriverApi& api, const Module& module, const std::string& symbol) {
  FunctionHandle function = nullptr;
  Status ok = check(api, api.module_get_function(&function, module.get(), symbol.c_str()), "module_get_function(");
  if (!ok) return tl::unexpected(std::move(ok).error().with("symbol", symbol));
  return function;
}

Result<Global> get_global(const DriverApi& api, const Module& module, const std::string& symbol) {
  Global global;
  Status ok = check(api, api.module_get_global(&global.address, &global.num_bytes, module.get(), symbol.c_str()),
                    "module_get_global(");
  if (!ok) return tl::unexpected(std::move(ok).error().with("symbol", symbol));
  return global;
}

Result<Graph> make_graph(const DriverApi& api) {
  GraphHandle handle = nullptr;
  MEGARTP_CUDA_TRY(api, graph_create(&handle, 0));
  return Graph(api, handle);
}

Result<GraphExec> instantiate(const DriverApi& api, GraphHandle graph) {
  GraphExecHandle handle = nullptr;
  MEGARTP_CUDA_TRY(api, graph_instantiate(&handle, graph, kInstantiateUseNodePriority));
  return GraphExec(api, handle);
}

Result<DeviceBuffer> DeviceBuffer::allocate(const DriverApi& api, size_t num_bytes) {
  DeviceBuffer buffer;
  if (num_bytes == 0) return buffer;
  DevicePtr address = 0;
  Status ok = check(api, api.mem_alloc(&address, num_bytes), "mem_alloc(");
  if (!ok) return tl::unexpected(std::move(ok).error().with("bytes", std::to_string(num_bytes)));
  buffer.memory_ = DeviceMemory(api, address);
  buffer.num_bytes_ = num_bytes;
  return buffer;
}

Status add_edge(const DriverApi& api, GraphHandle graph, const GraphEdge& edge) {
  MEGARTP_CUDA_TRY(api, graph_add_dependencies(graph, &edge.from, &edge.to, &edge.data, 1));
  return {};
}

Result<std::vector<GraphEdge>> read_edges(const DriverApi& api, GraphHandle graph) {
  size_t count = 0;
  MEGARTP_CUDA_TRY(api, graph_get_edges(graph, nullptr, nullptr, nullptr, &count));
  std::vector<NodeHandle> from(count);
  std::vector<NodeHandle> to(count);
  std::vector<EdgeData> data(count);
  if (count > 0) MEGARTP_CUDA_TRY(api, graph_get_edges(graph, from.data(), to.data(), data.data(), &count));
  std::vector<GraphEdge> edges;
  edges.reserve(count);
  for (size_t i = 0; i < count; ++i) edges.push_back({from[i], to[i], data[i]});
  return edges;
}

Result<std::vector<NodeHandle>> read_nodes(const DriverApi& api, GraphHandle graph) {
  size_t count = 0;
  MEGARTP_CUDA_TRY(api, graph_get_nodes(graph, nullptr, &count));
  std::vector<NodeHandle> nodes(count);
  if (count > 0) MEGARTP_CUDA_TRY(api, graph_get_nodes(graph, nodes.data(), &count));
  return nodes;
}

}  // namespace megartp::cuda
