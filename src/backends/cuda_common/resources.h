// Owners of what the driver hands out: context, memory, streams, events, modules, graphs. Move-only; released in the
// destructor, whose errors are ignored. All take the table of functions, so that tests can give their own.
//
// Everything but the Context itself must be made, used and released while the Context is current: see Context::Scope.
// Thread-safety is the driver's: different objects may be used by different threads.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backends/cuda_common/driver.h"

namespace megartp::cuda {

// kDestroy is the member of DriverApi that releases the handle.
template <class Handle, auto kDestroy>
class Owned {
 public:
  Owned() = default;
  Owned(const DriverApi& api, Handle handle) : api_(&api), handle_(handle) {}
  Owned(Owned&& o) noexcept : api_(o.api_), handle_(std::exchange(o.handle_, Handle{})) {}
  Owned& operator=(Owned&& o) noexcept {
    std::swap(api_, o.api_);
    std::swap(handle_, o.handle_);
    return *this;
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;
  ~Owned() {
    if (handle_ != Handle{}) (api_->*kDestroy)(handle_);
  }

  Handle get() const { return handle_; }
  explicit operator bool() const { return handle_ != Handle{}; }

 private:
  const DriverApi* api_ = nullptr;
  Handle handle_{};
};

using Stream = Owned<StreamHandle, &DriverApi::stream_destroy>;
using Event = Owned<EventHandle, &DriverApi::event_destroy>;
using Module = Owned<ModuleHandle, &DriverApi::module_unload>;
using Graph = Owned<GraphHandle, &DriverApi::graph_destroy>;
using GraphExec = Owned<GraphExecHandle, &DriverApi::graph_exec_destroy>;
using DeviceMemory = Owned<DevicePtr, &DriverApi::mem_free>;

// The primary context of a device, which the CUDA runtime (and with it every framework) uses too: addresses, streams
// and events of others in this process can be mixed with ours.
class Context {
 public:
  // Retains it; kNotFound when there is no such device.
  static Result<std::shared_ptr<const Context>> open(const DriverApi& api, int ordinal = 0);
  Context(const DriverApi& api, Device device, ContextHandle handle, DeviceInfo info)
      : api_(api), device_(device), handle_(handle), info_(std::move(info)) {}
  ~Context() { api_.primary_ctx_release(device_); }
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // Makes the context the thread's current one while it lives.
  class Scope {
   public:
    explicit Scope(const Context& context)
        : api_(context.api_), pushed_(api_.ctx_push_current(context.handle_) == kSuccess) {}
    ~Scope() {
      ContextHandle old = nullptr;
      if (pushed_) api_.ctx_pop_current(&old);
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    const DriverApi& api_;
    bool pushed_;
  };

  const DriverApi& api() const { return api_; }
  const DeviceInfo& info() const { return info_; }

 private:
  const DriverApi& api_;
  Device device_;
  ContextHandle handle_;
  DeviceInfo info_;
};

// Streams never synchronise with the legacy default stream. Lower numbers are more urgent.
Result<Stream> make_stream(const DriverApi& api, int priority = 0);
// Without timing an event costs less; only such ones may serve as programmatic events.
Result<Event> make_event(const DriverApi& api, bool with_timing = false);
// `cubin` need not outlive the call.
Result<Module> load_module(const DriverApi& api, std::string_view cubin);
Result<FunctionHandle> get_function(const DriverApi& api, const Module& module, const std::string& symbol);
struct Global {
  DevicePtr address = 0;
  size_t num_bytes = 0;
};
// A variable of the module, which lives as long as the module.
Result<Global> get_global(const DriverApi& api, const Module& module, const std::string& symbol);
Result<Graph> make_graph(const DriverApi& api);
// Node priorities are honoured.
Result<GraphExec> instantiate(const DriverApi& api, GraphHandle graph);

// Device memory of a size, at least 256-byte aligned.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> allocate(const DriverApi& api, size_t num_bytes);
  DevicePtr get() const { return memory_.get(); }
  size_t size() const { return num_bytes_; }

 private:
  DeviceMemory memory_;
  size_t num_bytes_ = 0;
};

// --- edges of graphs

struct GraphEdge {
  NodeHandle from = nullptr;
  NodeHandle to = nullptr;
  EdgeData data;
  friend bool operator==(const GraphEdge&, const GraphEdge&) = default;
};
// One call an edge: drivers from 580.126.20 to 610.57.04 at least apply the first edge's data to all edges of a call.
Status add_edge(const DriverApi& api, GraphHandle graph, const GraphEdge& edge);
// In the driver's order.
Result<std::vector<GraphEdge>> read_edges(const DriverApi& api, GraphHandle graph);
Result<std::vector<NodeHandle>> read_nodes(const DriverApi& api, GraphHandle graph);

}  // namespace megartp::cuda
