// cpu-reference: the ops of the graph one after another, whole, in double precision. The oracle of every other backend.
#include <chrono>

#include "backends/backend.h"
#include "backends/bindings.h"
#include "ops/op_family.h"

namespace megartp {
namespace {

class CpuReference final : public Executable {
 public:
  CpuReference(const OpGraph& graph, ShapeEnv shapes, std::vector<std::vector<int64_t>> dims,
               std::vector<BoundTensor> tensors, AlignedBytes arena)
      : graph_(graph),
        shapes_(std::move(shapes)),
        dims_(std::move(dims)),
        bindings_(std::move(tensors)),
        arena_(std::move(arena)) {}

  Status bind(std::string_view tensor, void* data, size_t num_bytes) override {
    return bindings_.bind(tensor, data, num_bytes);
  }
  void* data(std::string_view tensor) const override { return bindings_.address(tensor); }
  void poison() override { bindings_.poison(std::byte{0xff}); }

  Result<RunStats> run() override {
    MEGARTP_TRY(bindings_.check_complete());
    using Clock = std::chrono::steady_clock;
    RunStats stats;
    const auto start = Clock::now();
    for (const OpInfo& op : graph_.ops()) {
      std::vector<HostTensor> inputs;
      std::vector<HostTensor> outputs;
      for (const TensorId id : op.inputs) inputs.push_back(host_tensor(id));
      for (const TensorId id : op.outputs) outputs.push_back(host_tensor(id));
      const auto op_start = Clock::now();
      Status ok = find_op_family(op.kind)->reference(ReferenceContext{op, shapes_, inputs, outputs});
      if (!ok) return tl::unexpected(std::move(ok).error().with("op", op.name).with("backend", "cpu-reference"));
      const double ns = std::chrono::duration<double, std::nano>(Clock::now() - op_start).count();
      stats.stages.push_back({op.name, 1, ns});
    }
    stats.wall_ns = std::chrono::duration<double, std::nano>(Clock::now() - start).count();
    return stats;
  }

 private:
  HostTensor host_tensor(TensorId id) const {
    const BoundTensor& t = bindings_.tensors()[id];
    return {t.dtype, dims_[id], t.address};
  }

  OpGraph graph_;
  ShapeEnv shapes_;
  std::vector<std::vector<int64_t>> dims_;
  Bindings bindings_;
  AlignedBytes arena_;
};

}  // namespace

Result<std::unique_ptr<Executable>> prepare_cpu_reference(const OpGraph& graph, const ShapeEnv& shapes) {
  MEGARTP_TRY(Status(graph.status()));
  std::vector<std::vector<int64_t>> dims;
  std::vector<BoundTensor> tensors;
  size_t arena_bytes = 0;
  for (const TensorInfo& t : graph.tensors()) {
    auto resolved = shapes.eval(t.shape);
    if (!resolved) return tl::unexpected(std::move(resolved).error().with("tensor", t.name));
    size_t bytes = size_in_bytes(t.dtype);
    for (const int64_t d : *resolved)
      if (d <= 0 || __builtin_mul_overflow(bytes, static_cast<size_t>(d), &bytes))
        return make_error(ErrorCode::kInvalidArgument,
                          "tensor '" + t.name + "' has the impossible shape " + to_string(*resolved));
    const bool external = t.storage != Storage::kActivation;
    tensors.push_back({t.name, t.dtype, t.storage, bytes, external, nullptr});
    dims.push_back(std::move(*resolved));
    if (!external) arena_bytes += (bytes + 63) / 64 * 64;
  }
  for (const OpInfo& op : graph.ops())
    if (find_op_family(op.kind) == nullptr)
      return make_error(ErrorCode::kUnsupported, "op '" + op.name + "' has the unknown kind '" + op.kind + "'");
  AlignedBytes arena(arena_bytes);
  size_t offset = 0;
  for (BoundTensor& t : tensors) {
    if (t.external) continue;
    t.address = arena.get() + offset;
    offset += (t.num_bytes + 63) / 64 * 64;
  }
  return std::make_unique<CpuReference>(graph, shapes, std::move(dims), std::move(tensors), std::move(arena));
}

}  // namespace megartp
