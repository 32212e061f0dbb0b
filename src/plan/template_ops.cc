#include "plan/template_ops.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::plan {
namespace {

// The state's tensors, with the workspaces that the template's lowering made.
class InstanceContext final : public LowerContext {
 public:
  InstanceContext(const TemplateData& data, InstanceState& state, const ShapeEnv& shapes, OpId op)
      : data_(data), state_(state), shapes_(shapes), op_(op), next_workspace_(data.ops[op].first_workspace) {}
  const OpInfo& op() const override { return data_.graph.ops()[op_]; }
  const ConcreteTensor& tensor(TensorId id) const override { return state_.tensors[id]; }
  const ShapeEnv& shapes() const override {
    reads_shapes_ = true;
    return shapes_;
  }
  FinalizerMode finalizer() const override { return data_.finalizer; }
  bool any_shape() const override { return true; }
  uint32_t num_sms() const override { return data_.num_sms; }
  TensorId add_workspace(std::string_view, DType, std::vector<int64_t> dims, bool) override {
    const TensorId id = next_workspace_++;
    if (id >= state_.tensors.size()) return kInvalidId;  // more than the template knows: lower_op reports it
    state_.tensors[id].dims = std::move(dims);
    state_.changed_tensors.push_back(id);
    return id;
  }
  bool reads_shapes() const { return reads_shapes_; }
  uint32_t num_workspaces() const { return next_workspace_ - data_.ops[op_].first_workspace; }

 private:
  const TemplateData& data_;
  InstanceState& state_;
  const ShapeEnv& shapes_;
  OpId op_;
  TensorId next_workspace_;
  mutable bool reads_shapes_ = false;
};

tl::unexpected<Error> broken(const TemplateData& data, OpId op, std::string_view what) {
  return make_error(ErrorCode::kInternal, fmt::format("op '{}': a smaller shape {}, against the clipping contract",
                                                      data.graph.ops()[op].name, what));
}

Status check_counts(const TemplateData& data, uint32_t stage_idx, const Stage& stage, bool reads_shapes) {
  const TemplateStage& largest = data.stages[stage_idx];
  const StageCounts counts{stage.num_tiles, stage.num_join_groups, stage.num_final_tiles};
  if (counts.tiles > largest.counts.tiles && reads_shapes)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("op '{}' needs {} tiles for these requests, the plan template has {}",
                                  data.graph.ops()[largest.op].name, counts.tiles, largest.counts.tiles));
  if (counts.tiles == 0 || counts.tiles > largest.counts.tiles || counts.groups > largest.counts.groups ||
      counts.finals > largest.counts.finals || (counts.groups == 0) != (largest.counts.groups == 0))
    return broken(data, largest.op, "has other tiles");
  if (counts.groups != 0 && (largest.tiles_before_group[counts.groups] != counts.tiles ||
                             largest.end_before_group[counts.groups] != counts.tiles))
    return broken(data, largest.op, "has a join group in part");
  return {};
}

Status update_stage(const TemplateData& data, InstanceState& state, uint32_t stage_idx, const Stage& stage,
                    Changes& changes) {
  const TemplateStage& largest = data.stages[stage_idx];
  InstanceStage& mine = state.stages[stage_idx];
  const StageCounts counts{stage.num_tiles, stage.num_join_groups, stage.num_final_tiles};
  changes.counts = changes.counts || counts != mine.counts;
  mine.counts = counts;
  if (stage.spec != mine.spec) {
    changes.specs = true;
    mine.spec = stage.spec;
  }
  state.tile.wants_regions = false;
  state.tile.wants_costs = false;
  for (uint32_t t = 0; t < counts.tiles; ++t) {
    const uint32_t task = largest.first_task + t;
    Payload& payload = state.payloads[task];
    state.tile.clear();
    stage.tile(t, state.tile);
    if (state.tile.join_group != data.group_of_task[task]) return broken(data, largest.op, "has other join groups");
    changes.payload_sizes = changes.payload_sizes || payload.count != state.tile.num_payload;
    payload.words = state.tile.payload;
    payload.count = state.tile.num_payload;
  }
  state.changed_stages.push_back(stage_idx);
  return {};
}

Status lower_op(const TemplateData& data, InstanceState& state, OpId op, InstanceContext& context, Changes& changes) {
  const TemplateOp& mine = data.ops[op];
  auto stages = mine.family->lower(context);
  if (!stages) return tl::unexpected(std::move(stages).error().with("op", data.graph.ops()[op].name));
  if (stages->size() != mine.num_stages) return broken(data, op, "has other stages");
  for (uint32_t i = 0; i < mine.num_stages; ++i)
    MEGARTP_TRY(check_counts(data, mine.first_stage + i, *(*stages)[i], context.reads_shapes()));
  for (uint32_t i = 0; i < mine.num_stages; ++i)
    MEGARTP_TRY(update_stage(data, state, mine.first_stage + i, *(*stages)[i], changes));
  return {};
}

}  // namespace

Status read_symbols(const TemplateData& data, const ShapeEnv& shapes, InstanceState& state) {
  state.new_symbols.clear();
  auto it = shapes.symbols.begin();
  for (const SymbolUse& symbol : data.symbols) {  // both are sorted by name
    while (it != shapes.symbols.end() && it->first < symbol.name) ++it;
    if (it == shapes.symbols.end() || it->first != symbol.name)
      return make_error(ErrorCode::kInvalidArgument, fmt::format("symbol '{}' has no value", symbol.name));
    if (it->second < 1)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{} = {}: every dimension must be at least 1", symbol.name, it->second));
    if (it->second > symbol.largest)
      return make_error(ErrorCode::kInvalidArgument,
                        fmt::format("{} = {} does not fit the plan template of graph '{}', which was made for {} up "
                                    "to {}",
                                    symbol.name, it->second, data.graph.name(), symbol.name, symbol.largest));
    state.new_symbols.push_back(it->second);
  }
  return {};
}

void apply_symbols(const TemplateData& data, InstanceState& state) {
  for (size_t i = 0; i < data.symbols.size(); ++i) {
    if (state.is_current && state.symbols[i] == state.new_symbols[i]) continue;
    state.symbols[i] = state.new_symbols[i];
    for (const DimUse& use : data.symbols[i].dims) {
      const int64_t value = (state.symbols[i] + use.align - 1) / use.align * use.align;
      state.tensors[use.tensor].dims[use.dim] = value;
      state.changed_tensors.push_back(use.tensor);
    }
    for (const OpId op : data.symbols[i].ops) state.op_changed[op] = 1;
  }
}

Result<Changes> lower_changed_ops(const TemplateData& data, const ShapeEnv& shapes, InstanceState& state) {
  Changes changes;
  for (OpId op = 0; op < data.ops.size(); ++op) {
    if (state.op_changed[op] == 0) continue;
    InstanceContext context(data, state, shapes, op);
    MEGARTP_TRY(lower_op(data, state, op, context, changes));
    if (context.num_workspaces() != data.ops[op].num_workspaces) return broken(data, op, "has other workspaces");
  }
  return changes;
}

Status learn_ops(TemplateData& data, InstanceState& state) {
  auto next_workspace = static_cast<TensorId>(data.graph.tensors().size());
  Changes changes;
  for (OpId op = 0; op < data.ops.size(); ++op) {
    data.ops[op].first_workspace = next_workspace;
    InstanceContext context(data, state, data.largest, op);
    MEGARTP_TRY(lower_op(data, state, op, context, changes));
    data.ops[op].reads_shapes = context.reads_shapes();
    data.ops[op].num_workspaces = context.num_workspaces();
    next_workspace += context.num_workspaces();
  }
  if (next_workspace != state.tensors.size())
    return make_error(ErrorCode::kInternal, "a family gives other workspaces when it is asked again");
  return {};
}

}  // namespace megartp::plan
