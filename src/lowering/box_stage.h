// For tests of lowering and of plans: stages whose regions are given as lists, and a graph to put them in.
#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "lowering/passes.h"

namespace megartp::lowering::testing {

struct BoxTile {
  std::vector<Access> reads;
  std::vector<Access> writes;
  uint32_t join_group = abi::kNoJoin;
};

class BoxStage final : public Stage {
 public:
  BoxStage(std::string stage_name, std::vector<BoxTile> tiles, std::vector<BoxTile> finals = {})
      : tiles_(std::move(tiles)), finals_(std::move(finals)) {
    name = std::move(stage_name);
    opcode = 0x7f000001;
    num_tiles = static_cast<uint32_t>(tiles_.size());
    num_final_tiles = static_cast<uint32_t>(finals_.size());
    for (const BoxTile& f : finals_) num_join_groups = std::max(num_join_groups, f.join_group + 1);
    for (const auto* list : {&tiles_, &finals_})
      for (const BoxTile& t : *list)
        for (const auto* accesses : {&t.reads, &t.writes})
          for (const Access& a : *accesses)
            if (std::find(slots.begin(), slots.end(), a.tensor) == slots.end()) slots.push_back(a.tensor);
  }
  void tile(uint32_t i, TileDesc& out) const override {
    out.set_payload({i});
    out.reads = tiles_[i].reads;
    out.writes = tiles_[i].writes;
    out.join_group = tiles_[i].join_group;
    out.other_bytes = 1000 + 100 * (i % 7);
  }
  void final_tile(uint32_t i, FinalDesc& out) const override {
    out.join_group = finals_[i].join_group;
    out.reads = finals_[i].reads;
    out.writes = finals_[i].writes;
  }
  const std::vector<BoxTile>& tiles() const { return tiles_; }
  const std::vector<BoxTile>& finals() const { return finals_; }

 private:
  std::vector<BoxTile> tiles_;
  std::vector<BoxTile> finals_;
};

struct BoxGraph {
  TaskGraph tasks;
  std::vector<const BoxStage*> stages;

  TensorId add_tensor(std::vector<int64_t> dims, bool is_partial = false, Storage storage = Storage::kActivation) {
    const auto id = static_cast<TensorId>(tasks.tensors.size());
    tasks.tensors.push_back({"t" + std::to_string(id), DType::kF32, std::move(dims), storage, is_partial});
    return id;
  }
  void add_stage(std::vector<BoxTile> tiles, std::vector<BoxTile> finals = {}) {
    const auto idx = stages.size();
    auto stage = std::make_unique<BoxStage>("S" + std::to_string(idx), std::move(tiles), std::move(finals));
    stages.push_back(stage.get());
    tasks.op_names.push_back(stage->name);
    tasks.op_kinds.emplace_back("box");
    TaskStage task_stage;
    task_stage.op = static_cast<OpId>(idx);
    task_stage.stage = std::move(stage);
    tasks.stages.push_back(std::move(task_stage));
  }
  Status derive(const EventOptions& options = {}) {
    MEGARTP_TRY(expand_tasks(tasks));
    return derive_events(tasks, options);
  }
  // Index in tasks.stages: relay stages may stand in between.
  uint32_t index_of(size_t stage) const {
    const auto it = std::ranges::find(tasks.stages, stages[stage], [](const TaskStage& s) { return s.stage.get(); });
    return static_cast<uint32_t>(it - tasks.stages.begin());
  }
  uint32_t first_task(size_t stage) const { return tasks.stages[index_of(stage)].first_task; }
};

}  // namespace megartp::lowering::testing
