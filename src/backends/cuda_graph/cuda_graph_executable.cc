#include "backends/cuda_graph/cuda_graph_executable.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace megartp::cuda_graph {
namespace {

using launch::EdgeKind;

cuda::EdgeData edge_data(EdgeKind kind) {
  switch (kind) {
    case EdgeKind::kFull: break;
    case EdgeKind::kProgrammatic: return {cuda::kPortProgrammatic, 0, cuda::kEdgeProgrammatic, {}};
    case EdgeKind::kBlockStart: return {cuda::kPortLaunchOrder, 0, cuda::kEdgeProgrammatic, {}};
    case EdgeKind::kLaunchCompletion: return {cuda::kPortLaunchOrder, 0, cuda::kEdgeDefault, {}};
  }
  return {};
}

Result<EdgeKind> edge_kind(const cuda::EdgeData& data) {
  for (const EdgeKind kind :
       {EdgeKind::kFull, EdgeKind::kProgrammatic, EdgeKind::kBlockStart, EdgeKind::kLaunchCompletion})
    if (edge_data(kind) == data) return kind;
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("an edge with port {}, type {} has no name", data.from_port, data.type));
}

Result<std::vector<cuda::TensorUse>> tensor_uses(const LaunchPlan& plan) {
  std::vector<cuda::TensorUse> uses;
  for (TensorId id = 0; id < plan.tensors.size(); ++id) {
    cuda::TensorUse use;
    use.tensor = plan.tensors[id];
    use.is_private = id >= plan.num_graph_tensors;
    uses.push_back(std::move(use));
  }
  for (const LaunchWorkspace& w : plan.workspaces) {
    uses[w.tensor].is_zeroed = w.zeroed;
    uses[w.tensor].words = w.words;
  }
  for (const LaunchKernel& k : plan.kernels) {
    for (const DeviceParam& p : k.kernel.params) {
      if (p.kind != DeviceParam::Kind::kPointer && p.kind != DeviceParam::Kind::kTensorMap) continue;
      if (p.layout == WeightLayout::kCheckpoint) {
        uses[p.tensor].is_used_plain = true;
        continue;
      }
      MEGARTP_TRY(cuda::check_packable(plan.tensors[p.tensor], k.name));
      uses[p.tensor].is_packed = true;
    }
  }
  return uses;
}

}  // namespace

Result<std::unique_ptr<CudaGraphExecutable>> CudaGraphExecutable::create(std::shared_ptr<const LaunchPlan> plan,
                                                                         std::shared_ptr<const LoadedCode> code) {
  if (code->num_kernels() != plan->kernels.size())
    return make_error(ErrorCode::kInternal,
                      fmt::format("code of {} kernels for a plan of {}", code->num_kernels(), plan->kernels.size()));
  const cuda::Context::Scope current(code->context());
  const cuda::DriverApi& api = code->context().api();
  cuda::DeviceTensors tensors = MEGARTP_TRY(cuda::DeviceTensors::create(api, MEGARTP_TRY(tensor_uses(*plan))));
  std::unique_ptr<CudaGraphExecutable> exec(
      new CudaGraphExecutable(std::move(plan), std::move(code), std::move(tensors)));
  for (const LaunchKernel& k : exec->plan_->kernels) exec->params_.emplace_back(k.kernel);
  exec->is_stale_.assign(exec->params_.size(), true);
  MEGARTP_CUDA_TRY(api, ctx_get_stream_priority_range(&exec->least_priority_, &exec->greatest_priority_));
  return exec;
}

CudaGraphExecutable::~CudaGraphExecutable() {
  const cuda::Context::Scope current(code_->context());
  exec_ = {};
  graph_ = {};
  streams_.clear();
  fork_ = {};
  completions_.clear();
  triggers_.clear();
}

// --- the graph

cuda::KernelNodeParams CudaGraphExecutable::node_params(uint32_t kernel) {
  const DeviceKernel& k = plan_->kernels[kernel].kernel;
  cuda::KernelNodeParams params;
  params.function = code_->function(kernel);
  std::copy_n(k.grid.begin(), 3, params.grid);
  params.block[0] = k.block;
  params.dynamic_smem_bytes = k.smem_bytes;
  params.params = params_[kernel].pointers();
  return params;
}

// More urgent is lower.
int CudaGraphExecutable::clamped_priority(uint32_t kernel) const {
  return std::clamp<int>(plan_->kernels[kernel].priority, greatest_priority_, least_priority_);
}

Status CudaGraphExecutable::prepare() {
  const cuda::Context::Scope current(code_->context());
  MEGARTP_TRY(tensors_.check_complete());
  MEGARTP_TRY(refresh());
  if (!exec_) MEGARTP_TRY(build_graph());
  if (!has_streams_) MEGARTP_TRY(make_streams());
  return {};
}

// Writes what has moved into the parameters, and into the graph where there is one.
Status CudaGraphExecutable::refresh() {
  if (!needs_refresh_) return {};
  const std::vector<bool> changed = tensors_.take_changes();
  for (uint32_t k = 0; k < params_.size(); ++k)
    if (KernelParams::uses(plan_->kernels[k].kernel, changed)) is_stale_[k] = true;
  for (uint32_t k = 0; k < params_.size(); ++k) {
    if (!is_stale_[k]) continue;
    MEGARTP_TRY(params_[k].fill(api(), plan_->kernels[k].kernel, tensors_));
    if (exec_) {
      const cuda::KernelNodeParams params = node_params(k);
      MEGARTP_CUDA_TRY(api(), graph_exec_kernel_node_set_params(exec_.get(), nodes_[k], &params));
    }
    is_stale_[k] = false;
  }
  needs_refresh_ = false;
  return {};
}

Status CudaGraphExecutable::add_nodes() {
  nodes_.clear();
  for (uint32_t k = 0; k < params_.size(); ++k) {
    const cuda::KernelNodeParams params = node_params(k);
    cuda::NodeHandle node = nullptr;
    Status ok = cuda::check(api(), api().graph_add_kernel_node(&node, graph_.get(), nullptr, 0, &params),
                            "graph_add_kernel_node(");
    if (!ok) return tl::unexpected(std::move(ok).error().with("kernel", plan_->kernels[k].name));
    nodes_.push_back(node);
    cuda::LaunchAttributeValue value{};
    value.priority = clamped_priority(k);
    MEGARTP_CUDA_TRY(api(), graph_kernel_node_set_attribute(node, cuda::kLaunchPriority, &value));
    const uint32_t cluster = plan_->kernels[k].kernel.cluster;
    if (cluster <= 1) continue;
    value = {};
    value.cluster = {cluster, 1, 1};
    MEGARTP_CUDA_TRY(api(), graph_kernel_node_set_attribute(node, cuda::kLaunchClusterDims, &value));
  }
  return {};
}

Status CudaGraphExecutable::build_graph() {
  graph_ = MEGARTP_TRY(cuda::make_graph(api()));
  MEGARTP_TRY(add_nodes());
  for (const LaunchEdge& e : plan_->edges) {
    Status ok = cuda::add_edge(api(), graph_.get(), {nodes_[e.from], nodes_[e.to], edge_data(e.kind)});
    if (!ok) return tl::unexpected(std::move(ok).error().with("edge", edge_name(*plan_, e)));
  }
  MEGARTP_TRY(check_edges());
  cuda::GraphExec exec = MEGARTP_TRY(cuda::instantiate(api(), graph_.get()));
  // Else the first launch would put it on the device, and allocate there.
  MEGARTP_CUDA_TRY(api(), graph_upload(exec.get(), nullptr));
  MEGARTP_CUDA_TRY(api(), ctx_synchronize());
  exec_ = std::move(exec);
  return {};
}

// Drivers have been seen to store other edges than they were given.
Status CudaGraphExecutable::check_edges() const {
  std::map<std::pair<cuda::NodeHandle, cuda::NodeHandle>, cuda::EdgeData> found;
  for (const cuda::GraphEdge& e : MEGARTP_TRY(cuda::read_edges(api(), graph_.get()))) found[{e.from, e.to}] = e.data;
  for (const LaunchEdge& e : plan_->edges) {
    const auto it = found.find({nodes_[e.from], nodes_[e.to]});
    if (it == found.end() || it->second != edge_data(e.kind))
      return make_error(
          ErrorCode::kDeviceError,
          fmt::format("the driver was given the {} edge {} and {}", launch::to_string(e.kind), edge_name(*plan_, e),
                      it == found.end() ? "lost it" : "stored one of another kind"));
  }
  if (found.size() != plan_->edges.size())
    return make_error(ErrorCode::kDeviceError,
                      fmt::format("the driver was given {} edges and stored {}", plan_->edges.size(), found.size()));
  return {};
}

Status CudaGraphExecutable::run(cuda::StreamHandle stream) {
  if (needs_refresh_ || !exec_) MEGARTP_TRY(prepare());
  const cuda::Context::Scope current(code_->context());
  MEGARTP_CUDA_TRY(api(), graph_launch(exec_.get(), stream));
  return {};
}

// --- reading edges

std::vector<PlanEdge> CudaGraphExecutable::planned_edges() const {
  std::vector<PlanEdge> edges;
  for (const LaunchEdge& e : plan_->edges) edges.push_back({e.from, e.to, e.kind});
  std::ranges::sort(edges);
  return edges;
}

Result<std::vector<PlanEdge>> CudaGraphExecutable::edges_in(cuda::GraphHandle graph) const {
  const cuda::Context::Scope current(code_->context());
  std::map<cuda::NodeHandle, uint32_t> kernel_of;
  std::vector<bool> is_there(params_.size(), false);
  for (const cuda::NodeHandle node : MEGARTP_TRY(cuda::read_nodes(api(), graph))) {
    int type = 0;
    MEGARTP_CUDA_TRY(api(), graph_node_get_type(node, &type));
    if (type != cuda::kNodeTypeKernel) continue;
    cuda::KernelNodeParams node_params;
    MEGARTP_CUDA_TRY(api(), graph_kernel_node_get_params(node, &node_params));
    for (uint32_t k = 0; k < params_.size(); ++k) {
      const auto bytes = params_[k].bytes();
      if (node_params.function != code_->function(k)) continue;
      if (!bytes.empty() &&
          !std::equal(bytes.begin(), bytes.end(), static_cast<const std::byte*>(node_params.params[0])))
        continue;
      if (is_there[k])
        return make_error(ErrorCode::kMismatch,
                          fmt::format("the graph holds kernel '{}' twice", plan_->kernels[k].name));
      is_there[k] = true;
      kernel_of[node] = k;
      break;
    }
  }
  for (uint32_t k = 0; k < params_.size(); ++k)
    if (!is_there[k])
      return make_error(ErrorCode::kMismatch, fmt::format("the graph lacks kernel '{}'", plan_->kernels[k].name));
  std::vector<PlanEdge> edges;
  for (const cuda::GraphEdge& e : MEGARTP_TRY(cuda::read_edges(api(), graph))) {
    const auto from = kernel_of.find(e.from);
    const auto to = kernel_of.find(e.to);
    if (from == kernel_of.end() || to == kernel_of.end()) continue;
    edges.push_back({ from->second, to->second, MEGARTP_TRY(edge_kind(e.data)) });
  }
  std::ranges::sort(edges);
  return edges;
}

}  // namespace megartp::cuda_graph
