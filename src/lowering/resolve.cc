// resolve_tensors: symbols become numbers.
#include <limits>

#include <fmt/format.h>

#include "lowering/passes.h"

namespace megartp::lowering {
namespace {

constexpr int64_t kMaxDim = std::numeric_limits<int32_t>::max();

Result<std::vector<int64_t>> resolve_dims(const TensorInfo& tensor, const ShapeEnv& shapes) {
  std::vector<int64_t> dims;
  dims.reserve(tensor.shape.size());
  int64_t bytes = static_cast<int64_t>(size_in_bytes(tensor.dtype));
  for (const Dim& dim : tensor.shape) {
    Result<int64_t> value = shapes.eval(dim);
    if (!value)
      return tl::unexpected(
          std::move(value).error().with("tensor", tensor.name).with("shape", to_string(tensor.shape)));
    if (*value <= 0 || *value > kMaxDim)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("tensor '{}' has shape {} with {} = {}; every dimension must be from 1 to {}",
                                    tensor.name, to_string(tensor.shape), to_string(dim), *value, kMaxDim));
    if (__builtin_mul_overflow(bytes, *value, &bytes))
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("tensor '{}' of shape {} is too large", tensor.name, to_string(tensor.shape)));
    dims.push_back(*value);
  }
  return dims;
}

}  // namespace

Status resolve_tensors(const OpGraph& graph, const ShapeEnv& shapes, TaskGraph& out) {
  out.name = graph.name();
  out.shapes = shapes;
  out.tensors.reserve(graph.tensors().size());
  for (const TensorInfo& tensor : graph.tensors())
    out.tensors.push_back({
      tensor.name, tensor.dtype, MEGARTP_TRY(resolve_dims(tensor, shapes))
      , tensor.storage, tensor.is_partial
    });
  for (const OpInfo& op : graph.ops()) {
    out.op_names.push_back(op.name);
    out.op_kinds.push_back(op.kind);
  }
  return {};
}

}  // namespace megartp::lowering
