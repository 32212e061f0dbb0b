// A CUDA driver that only pretends: memory is the host's, graphs are lists, kernels do nothing. It records what it is
// asked, follows the rules of stream capture, and fails where it is told to.
//
// There is one at a time, because the functions of a driver's table have no object: make a FakeDriver, use api(), read
// what it recorded. Streams that capture add nodes with the edges that a driver gives them (measured on an H200, driver
// 580: specs of programmatic events and of programmatic stream serialisation).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "backends/cuda_common/driver_abi.h"

namespace megartp::test {

struct FakeFunction {
  std::string symbol;
  size_t param_bytes = 0;
  int max_dynamic_smem = 0;
};

struct FakeNode {
  cuda::KernelNodeParams params;
  std::string blob;              // the bytes of the one parameter
  void* blob_pointer = nullptr;  // what params.params[0] is when it is read back
  int priority = 0;
  unsigned cluster = 1;
  bool is_cooperative = false;
};

struct FakeEdge {
  const FakeNode* from = nullptr;
  const FakeNode* to = nullptr;
  cuda::EdgeData data;
};

struct FakeGraph {
  std::vector<std::unique_ptr<FakeNode>> nodes;
  std::vector<FakeEdge> edges;
};

struct FakeExec {
  FakeGraph* graph = nullptr;
  std::map<const FakeNode*, std::string> blobs;  // as instantiated or set since
};

// What a launch on a capturing stream would depend on.
struct FakeDependency {
  FakeNode* node = nullptr;
  cuda::EdgeData data;
};
struct FakeStream {
  FakeGraph* capture = nullptr;
  bool is_origin = false;
  std::vector<FakeDependency> dependencies;
};
struct FakeEvent {
  unsigned flags = 0;
  FakeGraph* capture = nullptr;
  std::vector<FakeDependency> dependencies;
};

class FakeDriver {
 public:
  FakeDriver();
  ~FakeDriver();
  FakeDriver(const FakeDriver&) = delete;
  FakeDriver& operator=(const FakeDriver&) = delete;
  const cuda::DriverApi& api() const { return api_; }

  // --- what to pretend
  std::map<std::string, size_t> param_bytes;  // by symbol; others are not found
  int64_t fail_at = -1;                       // this call, counted from now, returns kErrorInvalidValue
  std::string fail_call;                      // every call of this name fails
  int ctas_per_sm = 1;                        // of every kernel, as the occupancy calculator says
  bool has_edge_bug = false;                  // edges read back as full ones

  // --- what happened
  std::vector<std::string> calls;  // names of the exported functions, in order; error names apart
  std::vector<FakeExec*> launches;
  uint64_t count(const std::string& call) const;
  // Everything that was made and not released: buffers, streams, events, modules, graphs, execs, contexts.
  size_t num_alive() const;
  FakeGraph* last_graph = nullptr;  // the last one made or captured

  // --- used by the functions of the table
  std::set<void*> buffers, streams, events, modules, graphs, execs;
  std::map<void*, size_t> buffer_bytes;
  std::vector<std::unique_ptr<FakeFunction>> functions;
  int contexts = 0, pushed = 0;
  // False when the call is to fail.
  bool enter(const char* call);

 private:
  cuda::DriverApi api_;
};

}  // namespace megartp::test
