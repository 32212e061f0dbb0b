// Kernels of all ops in program order, and their workspaces.
#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "graph/text.h"
#include "launch/launch_passes.h"
#include "lowering/passes.h"

namespace megartp::launching {
namespace {

class OpContext final : public DeviceContext {
 public:
  OpContext(const OpInfo& op, LaunchPlan& plan) : op_(op), plan_(plan) {}
  const OpInfo& op() const override { return op_; }
  const ConcreteTensor& tensor(TensorId id) const override { return plan_.tensors[id]; }
  const ShapeEnv& shapes() const override { return plan_.shapes; }
  const DeviceTarget& target() const override { return plan_.target; }
  TensorId add_constant(std::string_view name, std::vector<uint32_t> words) override {
    const TensorId id = add_workspace(name, DType::kI32, {static_cast<int64_t>(words.size())}, false);
    plan_.workspaces.back().words = std::move(words);
    return id;
  }
  TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool zeroed) override {
    const auto id = static_cast<TensorId>(plan_.tensors.size());
    ConcreteTensor t;
    t.name = fmt::format("{}.{}", op_.name, name);
    t.dtype = dtype;
    t.dims = std::move(dims);
    plan_.tensors.push_back(std::move(t));
    plan_.workspaces.push_back({id, zeroed, {}});
    return id;
  }

 private:
  const OpInfo& op_;
  LaunchPlan& plan_;
};

tl::unexpected<Error> bad_kernel(const OpInfo& op, const DeviceKernel& kernel, std::string_view what) {
  return make_error(ErrorCode::kInternal,
                    fmt::format("device family '{}', op '{}': kernel '{}' {}", op.kind, op.name, kernel.name, what));
}

// Families are ours, but a slip in one must not become a race: what the passes rely on is checked.
Status check_kernel(const LaunchPlan& plan, const OpInfo& op, const DeviceKernel& kernel) {
  if (kernel.name.empty()) return bad_kernel(op, kernel, "has no name");
  if (kernel.block == 0 || std::ranges::find(kernel.grid, 0U) != kernel.grid.end())
    return bad_kernel(op, kernel, "has an empty grid or block");
  if (kernel.smem_bytes > plan.target.smem_per_cta)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("op '{}': kernel '{}' needs {} bytes of shared memory, the target has {}", op.name,
                                  kernel.name, kernel.smem_bytes, plan.target.smem_per_cta));
  for (const DeviceParam& p : kernel.params) {
    const bool is_address = p.kind == DeviceParam::Kind::kPointer || p.kind == DeviceParam::Kind::kTensorMap;
    if (is_address && p.tensor >= plan.tensors.size())
      return bad_kernel(op, kernel, fmt::format("has parameter '{}' without a tensor", p.name));
  }
  for (const DeviceAccess& a : kernel.accesses) {
    if (a.param >= kernel.params.size() || kernel.params[a.param].tensor >= plan.tensors.size())
      return bad_kernel(op, kernel, fmt::format("has an access to parameter {}, which is no tensor", a.param));
    const TensorId id = kernel.params[a.param].tensor;
    if (!a.is_write) continue;
    if (id >= plan.num_graph_tensors) {
      const auto w = std::ranges::find(plan.workspaces, id, &LaunchWorkspace::tensor);
      if (!w->words.empty())
        return bad_kernel(op, kernel, fmt::format("writes the constant '{}'", plan.tensors[id].name));
      continue;
    }
    const Storage storage = plan.tensors[id].storage;
    if (storage == Storage::kWeight || storage == Storage::kRuntimeArg)
      return bad_kernel(op, kernel,
                        fmt::format("writes tensor '{}' of class {}", plan.tensors[id].name, to_string(storage)));
  }
  return {};
}

Status check_workspaces(const OpInfo& op, const LaunchPlan& plan, size_t first) {
  for (size_t id = first; id < plan.tensors.size(); ++id) {
    const ConcreteTensor& t = plan.tensors[id];
    if (t.dims.empty() || std::ranges::any_of(t.dims, [](int64_t d) { return d <= 0; }))
      return make_error(ErrorCode::kInternal, fmt::format("device family '{}': workspace '{}' has shape {}", op.kind,
                                                          t.name, to_string(t.dims)));
  }
  return {};
}

// Only data that a kernel declares is ordered, so every output and update of the op must be declared.
Status check_outputs(const OpInfo& op, const LaunchPlan& plan, size_t first) {
  std::set<TensorId> written;
  for (size_t k = first; k < plan.kernels.size(); ++k)
    for (const DeviceAccess& a : plan.kernels[k].kernel.accesses)
      if (a.is_write) written.insert(plan.kernels[k].kernel.params[a.param].tensor);
  for (const std::vector<TensorId>* list : {&op.outputs, &op.updates})
    for (const TensorId id : *list)
      if (!written.contains(id))
        return make_error(ErrorCode::kInternal, fmt::format("device family '{}', op '{}': no kernel writes tensor '{}'",
                                                            op.kind, op.name, plan.tensors[id].name));
  return {};
}

Status collect_op(const OpGraph& graph, OpId id, const LaunchOptions& options, LaunchPlan& plan) {
  const OpInfo& op = graph.ops()[id];
  const DeviceFamily* family = options.find_family ? options.find_family(op.kind) : find_device_family(op.kind);
  if (family == nullptr)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("op '{}': family '{}' has no device code", op.name, op.kind));
  const size_t first_tensor = plan.tensors.size();
  const size_t first_kernel = plan.kernels.size();
  OpContext context(op, plan);
  auto kernels = family->kernels(context);
  if (!kernels) return tl::unexpected(std::move(kernels).error().with("op", op.name));
  MEGARTP_TRY(check_workspaces(op, plan, first_tensor));
  for (DeviceKernel& kernel : *kernels) {
    MEGARTP_TRY(check_kernel(plan, op, kernel));
    if (find_kernel(plan, kernel.name)) return bad_kernel(op, kernel, "has the name of another one");
    LaunchKernel k;
    k.name = kernel.name;
    k.op = id;
    k.kernel = std::move(kernel);
    plan.kernels.push_back(std::move(k));
  }
  return check_outputs(op, plan, first_kernel);
}

}  // namespace

Status collect_kernels(const OpGraph& graph, const ShapeEnv& shapes, const LaunchOptions& options, LaunchPlan& plan) {
  TaskGraph resolved;
  MEGARTP_TRY(lowering::resolve_tensors(graph, shapes, resolved));
  plan.tensors = std::move(resolved.tensors);
  plan.num_graph_tensors = static_cast<uint32_t>(plan.tensors.size());
  for (const std::string& name : options.only_ops)
    if (std::ranges::find(graph.ops(), name, &OpInfo::name) == graph.ops().end())
      return make_error(ErrorCode::kInvalidArgument, fmt::format("the graph has no op {}", quote_name(name)));
  const auto is_wanted = [&](const OpInfo& op) {
    return options.only_ops.empty() || std::ranges::find(options.only_ops, op.name) != options.only_ops.end();
  };
  for (OpId id = 0; id < graph.ops().size(); ++id)
    if (is_wanted(graph.ops()[id])) MEGARTP_TRY(collect_op(graph, id, options, plan));
  return {};
}

}  // namespace megartp::launching
