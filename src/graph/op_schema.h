// OpSchema: what the graph needs to know of an op family, and the registry that finds it by name.
//
// Called by OpGraph while it records and by the JSON reader. Families implement it (src/ops/*); the registry's
// definition is generated from the folders under src/ops, so that the graph layer names no family.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/op_graph.h"

namespace megartp {

struct OutputSpec {
  std::string name;  // "residual", "q", ...
  DType dtype = DType::kF32;
  Shape shape;
  bool is_partial = false;  // see TensorInfo
};

struct InferResult {
  std::vector<OutputSpec> outputs;
  std::vector<uint32_t> updates;  // positions of inputs that the op also writes
};

struct InferContext {
  std::string_view op_name;
  std::span<const TensorInfo> inputs;
  const Attrs& attrs;
  std::string_view op_kind = {};
};

// One accepted attribute: schemas reject unknown names and wrong types with its list.
struct AttrSpec {
  std::string_view name;
  AttrValue default_value;
  std::string_view doc;
};

class OpSchema {
 public:
  virtual ~OpSchema() = default;
  virtual std::string_view kind() const = 0;
  // One sentence for `megartp ops`.
  virtual std::string_view doc() const = 0;
  virtual std::span<const std::string_view> input_names() const = 0;
  virtual std::span<const AttrSpec> attr_specs() const = 0;
  // Checks input dtypes and shapes (errors name op, tensor, expected and actual shape) and returns the outputs. The
  // graph has already checked the number of inputs and the attributes' names and types.
  virtual Result<InferResult> infer(const InferContext& context) const = 0;
};

// All families, in opcode order.
std::span<const OpSchema* const> op_schemas();
const OpSchema* find_op_schema(std::string_view kind);

// Helper for schemas: "op 'B0' (qkv_a): tensor 'x' has shape [M, 512], expected [M, 6144]".
Error shape_error(const InferContext& context, uint32_t input_idx, std::string_view expected);
// Checks dtype and rank, then each dim against `expected` (a Dim with symbol "*" accepts anything).
Status expect_tensor(const InferContext& context, uint32_t input_idx, DType dtype, const Shape& expected);
// The constant value of dim `dim_idx` of an input, or an error that says that it must not be symbolic.
Result<int64_t> const_dim(const InferContext& context, uint32_t input_idx, uint32_t dim_idx);

}  // namespace megartp
