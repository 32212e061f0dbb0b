// CudaGraphExecutable: a launch plan with code and addresses, as one CUDA graph.
//
//   auto context = MEGARTP_TRY(cuda::Context::open(*MEGARTP_TRY(cuda::driver())));
//   auto code = MEGARTP_TRY(LoadedCode::load(context, *plan));
//   auto exec = MEGARTP_TRY(CudaGraphExecutable::create(plan, code));
//   MEGARTP_TRY(exec->upload("x", host_bytes));           // or bind("x", device_address, num_bytes)
//   MEGARTP_TRY(exec->allocate_unbound());                // outputs and states that nobody bound
//   MEGARTP_TRY(exec->prepare());
//   MEGARTP_TRY(exec->run(stream));                       // one cuGraphLaunch
//
// cuda_common/device_executable.h has the rest.
#pragma once

#include <memory>
#include <vector>

#include "backends/cuda_common/device_executable.h"
#include "backends/cuda_graph/kernel_params.h"
#include "backends/cuda_graph/loaded_code.h"
#include "backends/cuda_graph/stream_plan.h"

namespace megartp::cuda_graph {

// An edge of a built or captured graph in the plan's terms.
struct PlanEdge {
  uint32_t from = 0, to = 0;  // kernels
  launch::EdgeKind kind = launch::EdgeKind::kFull;
  friend auto operator<=>(const PlanEdge&, const PlanEdge&) = default;
};

class CudaGraphExecutable final : public cuda::DeviceExecutable {
 public:
  // Allocates activations and workspaces. The plan's and the code's kernels must be the same ones.
  static Result<std::unique_ptr<CudaGraphExecutable>> create(std::shared_ptr<const LaunchPlan> plan,
                                                             std::shared_ptr<const LoadedCode> code);
  ~CudaGraphExecutable() override;

  // --- running
  // Builds the graph when it is not built yet: a node a kernel, an edge a call, all edges read back and compared.
  // Writes changed addresses into it. kInvalidArgument while a tensor that is used has no address.
  Status prepare() override;
  // Enqueues one run. Prepares first when something changed since the last one; that costs host time, and is no
  // allocation and no synchronisation once the graph is built.
  Status run(cuda::StreamHandle stream) override;
  // The same kernels as launches on streams of ours that fork from `stream` and join it: for a caller who captures
  // `stream` into a graph of their own, or without a capture as they are. Programmatic edges become programmatic
  // events. Needs a prepare() before; allocates nothing.
  Status launch_on_streams(cuda::StreamHandle stream);

  // The edges between this plan's kernels in a graph that launch_on_streams was captured into (or in our own), sorted.
  // Kernels are known by function and parameters, not by position; other nodes are passed over. kMismatch when a kernel
  // is missing or there twice.
  Result<std::vector<PlanEdge>> edges_in(cuda::GraphHandle graph) const;
  // The plan's, sorted.
  std::vector<PlanEdge> planned_edges() const;

  const LaunchPlan& plan() const { return *plan_; }
  const LoadedCode& code() const { return *code_; }
  cuda::GraphHandle graph() const { return graph_.get(); }  // null before prepare()

 private:
  CudaGraphExecutable(std::shared_ptr<const LaunchPlan> plan, std::shared_ptr<const LoadedCode> code,
                      cuda::DeviceTensors tensors)
      : DeviceExecutable(code->shared_context(), std::move(tensors)), plan_(std::move(plan)), code_(std::move(code)) {}

  cuda::KernelNodeParams node_params(uint32_t kernel);
  int clamped_priority(uint32_t kernel) const;
  Status refresh();
  Status build_graph();
  Status add_nodes();
  Status check_edges() const;
  Status make_streams();
  Status launch_step(const StreamStep& step);

  std::shared_ptr<const LaunchPlan> plan_;
  std::shared_ptr<const LoadedCode> code_;
  std::vector<KernelParams> params_;  // of each kernel
  int least_priority_ = 0, greatest_priority_ = 0;
  cuda::Graph graph_;
  std::vector<cuda::NodeHandle> nodes_;
  cuda::GraphExec exec_;
  std::vector<bool> is_stale_;  // kernels whose parameters hold an old address
  // For launch_on_streams.
  bool has_streams_ = false;
  StreamPlan streams_plan_;
  std::vector<cuda::Stream> streams_;
  cuda::Event fork_;
  std::vector<cuda::Event> completions_, triggers_;  // of each kernel
};

}  // namespace megartp::cuda_graph
