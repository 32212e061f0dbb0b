#include "graph/op_schema.h"

#include "graph/text.h"

namespace megartp {

const OpSchema* find_op_schema(std::string_view kind) {
  for (const OpSchema* s : op_schemas())
    if (s->kind() == kind) return s;
  return nullptr;
}

namespace {
std::string op_label(const InferContext& context) {
  std::string label = "op " + quote_name(context.op_name);
  if (!context.op_kind.empty()) label += " (" + std::string(context.op_kind) + ")";
  return label;
}
}  // namespace

Error shape_error(const InferContext& context, uint32_t input_idx, std::string_view expected) {
  const TensorInfo& t = context.inputs[input_idx];
  return Error{ErrorCode::kInvalidArgument,
               op_label(context) + ": tensor " + quote_name(t.name) + " has shape " + to_string(t.shape) +
                   ", expected " + std::string(expected),
               {}};
}

Status expect_tensor(const InferContext& context, uint32_t input_idx, DType dtype, const Shape& expected) {
  const TensorInfo& t = context.inputs[input_idx];
  if (t.dtype != dtype)
    return make_error(ErrorCode::kInvalidArgument, op_label(context) + ": tensor " + quote_name(t.name) +
                                                       " has dtype " + std::string(to_string(t.dtype)) + ", expected " +
                                                       std::string(to_string(dtype)));
  bool same = t.shape.size() == expected.size();
  for (size_t d = 0; same && d < expected.size(); ++d) same = expected[d].symbol == "*" || expected[d] == t.shape[d];
  if (!same) return tl::unexpected(shape_error(context, input_idx, to_string(expected)));
  return {};
}

Result<int64_t> const_dim(const InferContext& context, uint32_t input_idx, uint32_t dim_idx) {
  const TensorInfo& t = context.inputs[input_idx];
  if (dim_idx >= t.shape.size() || !t.shape[dim_idx].is_const())
    return tl::unexpected(shape_error(context, input_idx, "a constant dimension " + std::to_string(dim_idx)));
  return t.shape[dim_idx].value;
}

}  // namespace megartp
