// build_stages: asks every op's family for its stages.
#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "lowering/passes.h"

namespace megartp::lowering {
namespace {

class GraphLowerContext final : public LowerContext {
 public:
  GraphLowerContext(const OpGraph& graph, OpId op, TaskGraph& out) : op_(graph.ops()[op]), out_(out) {}
  const OpInfo& op() const override { return op_; }
  const ConcreteTensor& tensor(TensorId id) const override { return out_.tensors[id]; }
  const ShapeEnv& shapes() const override { return out_.shapes; }
  FinalizerMode finalizer() const override { return out_.finalizer; }
  bool any_shape() const override { return out_.any_shape; }
  uint32_t num_sms() const override { return out_.num_sms; }
  TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool is_partial) override {
    out_.tensors.push_back(
        {fmt::format("{}.{}", op_.name, name), dtype, std::move(dims), Storage::kActivation, is_partial});
    return static_cast<TensorId>(out_.tensors.size() - 1);
  }

 private:
  const OpInfo& op_;
  TaskGraph& out_;
};

}  // namespace

struct StageAppender::SpecTable {
  std::map<std::vector<uint32_t>, uint32_t> ids;
};

StageAppender::StageAppender(TaskGraph& graph) : graph_(graph), specs_(std::make_unique<SpecTable>()) {
  for (uint32_t i = 0; i < graph.specs.size(); ++i) specs_->ids.emplace(graph.specs[i], i);
}
StageAppender::~StageAppender() = default;

Status StageAppender::append(OpId op, std::unique_ptr<Stage> stage) {
  const auto fail = [&](ErrorCode code, const std::string& what) {
    return make_error(code, fmt::format("op '{}': stage '{}' {}", graph_.op_names[op], stage->name, what));
  };
  if (stage->slots.size() > abi::kOperandSlots)
    return fail(ErrorCode::kOutOfResources,
                fmt::format("has {} operands, a row holds {}", stage->slots.size(), abi::kOperandSlots));
  for (const TensorId t : stage->slots)
    if (t != kInvalidId && t >= graph_.tensors.size())
      return fail(ErrorCode::kInternal, "has an operand that does not exist");
  if (stage->num_tiles == 0) return fail(ErrorCode::kInternal, "has no tiles");
  if (stage->opcode == abi::kOpcodeNoOp) return fail(ErrorCode::kInternal, "has no opcode");
  if ((stage->num_join_groups == 0) != (stage->num_final_tiles == 0))
    return fail(ErrorCode::kInternal, "must have both join groups and final tiles, or neither");
  std::vector<uint32_t> spec{stage->opcode};
  spec.insert(spec.end(), stage->spec.begin(), stage->spec.end());
  const auto [it, is_new] = specs_->ids.try_emplace(std::move(spec), static_cast<uint32_t>(graph_.specs.size()));
  if (is_new) graph_.specs.push_back(it->first);
  TaskStage task_stage;
  task_stage.stage = std::move(stage);
  task_stage.op = op;
  task_stage.spec_id = it->second;
  graph_.stages.push_back(std::move(task_stage));
  return {};
}

Status build_stages(const OpGraph& graph, TaskGraph& out) {
  StageAppender appender(out);
  const auto& ops = graph.ops();
  std::map<std::string_view, const OpFamily*> families;
  for (OpId id = 0; id < ops.size(); ++id) {
    const auto [it, is_new] = families.try_emplace(ops[id].kind, nullptr);
    if (is_new) it->second = find_op_family(ops[id].kind);
    if (it->second == nullptr)
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("op '{}': no family for kind '{}'", ops[id].name, ops[id].kind));
    GraphLowerContext context(graph, id, out);
    auto stages = it->second->lower(context);
    if (!stages) return tl::unexpected(std::move(stages).error().with("op", ops[id].name));
    for (auto& stage : *stages) MEGARTP_TRY(appender.append(id, std::move(stage)));
  }
  return {};
}

}  // namespace megartp::lowering
