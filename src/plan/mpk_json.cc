#include "plan/mpk_json.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "lowering/linearize.h"

namespace megartp {
namespace {

// MPK's numbers.
constexpr uint32_t kTaskTerminate = 0;
constexpr uint32_t kTaskBeginTaskGraph = 10;
constexpr uint32_t kEventEmpty = 900;
constexpr uint32_t kEventLaunchTasks = 901;
constexpr uint32_t kEventLaunchMassiveTasks = 902;
constexpr uint32_t kEventLaunchDependentTasks = 903;
constexpr uint32_t kEventEndOfTaskGraph = 910;
constexpr uint32_t kEventTermination = 911;
constexpr uint64_t kNoEvent = 0x7ffffffffffffffeU;
constexpr uint32_t kMinMassiveConsumers = 8;
constexpr uint32_t kFirstTask = 2;   // id of the first task of the graph
constexpr uint32_t kFirstEvent = 2;  // id of the first event of the graph

uint32_t mpk_data_type(DType dtype) {
  switch (dtype) {
    case DType::kF8E4M3: return 930;
    case DType::kU8: return 936;
    case DType::kBF16: return 941;
    case DType::kF32: return 950;
    case DType::kI32: return 955;
    case DType::kF64: return 960;
    case DType::kI64: return 965;
  }
  return 999;
}

std::string json_text(std::string_view text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

struct MpkTask {
  uint32_t type = 0;
  std::string_view name{};  // quoted
  uint32_t variant = 0;
  std::string_view inputs{};  // items of the list
  std::string_view outputs{};
  uint64_t trigger_event = kNoEvent;
  uint64_t dependent_event = kNoEvent;
  int64_t offset = -1;
};

class MpkWriter {
 public:
  MpkWriter(const TaskGraph& graph, const MpkOptions& options) : graph_(graph), options_(options) {}

  Result<std::string> run() {
    MEGARTP_TRY(check_form());
    linear_ = MEGARTP_TRY(lowering::linearize(graph_, {.roots_first = true}));
    number_events();
    prepare_names();
    text_ = "{\n\"all_tasks\": [\n";
    MEGARTP_TRY(write_tasks());
    text_ += "\n],\n\"all_events\": [\n";
    write_events();
    text_ += "\n],\n\"first_tasks\": [";
    for (uint32_t i = 0; i < num_roots_; ++i) append("{}{}", i == 0 ? "" : ", ", kFirstTask + i);
    append("],\n\"megartp\": {{\"version\": 1, \"graph\": {}, \"ahead_of_time\": {}, \"note\": {}}}\n}}\n",
           json_text(graph_.name), options_.ahead_of_time,
           json_text(
               "task_type is a megartp opcode (0 and 10 are MPK's terminate and begin), variant_id counts the specs "
               "of an opcode, task_offset is the tile; strides are in elements of the whole tensor, offset in bytes; "
               "tasks of a join group all trigger its event"));
    return std::move(text_);
  }

 private:
  template <class... Args>
  void append(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(text_), format, std::forward<Args>(args)...);
  }

  Status check_form() const {
    if (graph_.tasks.empty())
      return make_error(ErrorCode::kInvalidArgument, fmt::format("graph '{}' has no tasks to export", graph_.name));
    for (uint32_t t = 0; t < graph_.tasks.size(); ++t) {
      const Task& task = graph_.tasks[t];
      if (task.num_waits <= 1 && task.num_signals <= 1) continue;
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("task {} ('{}' tile {}) has {} waits and {} signals, MPK's format holds one of each; "
                      "normalise the graph: derive its events with max_waits = max_signals = 1",
                      t, graph_.stages[task.stage].stage->name, task.tile, task.num_waits, task.num_signals));
    }
    return {};
  }

  // Events with consumers, by the first of them. An event that nothing waits for is left out; its signallers count as
  // leaves.
  void number_events() {
    number_.assign(graph_.events.size(), kNoEvent);
    triggers_.assign(graph_.events.size(), 0);
    for (const uint32_t t : linear_.order) {
      const Task& task = graph_.tasks[t];
      num_roots_ += task.num_waits == 0 ? 1 : 0;
      if (task.num_waits == 0 || number_[task.waits[0].event] != kNoEvent) continue;
      number_[task.waits[0].event] = kFirstEvent + events_.size();
      events_.push_back(task.waits[0].event);
    }
    end_event_ = kFirstEvent + events_.size();
    for (const Task& task : graph_.tasks) {
      if (trigger_of(task) == end_event_)
        ++num_leaves_;
      else
        ++triggers_[task.signals[0].event];
    }
  }
  uint64_t trigger_of(const Task& task) const {
    if (task.num_signals == 0) return end_event_;
    const uint64_t number = number_[task.signals[0].event];
    return number == kNoEvent ? end_event_ : number;
  }

  void prepare_names() {
    tensor_names_.reserve(graph_.tensors.size());
    for (const ConcreteTensor& t : graph_.tensors) tensor_names_.push_back(json_text(t.name));
    std::map<uint32_t, uint32_t> num_specs;  // by opcode
    for (const auto& spec : graph_.specs) variants_.push_back(num_specs[spec.empty() ? 0 : spec[0]]++);
    for (const TaskStage& stage : graph_.stages)
      stage_names_.push_back(json_text(is_relay(stage) ? "relay" : opcode_name(stage.stage->opcode)));
  }

  // --- regions
  // -----------------------------------------------------------------------------------------------------------
  Status add_region(const Access& access, const TaskStage& stage, std::string& list) const {
    const bool is_known = access.tensor < graph_.tensors.size();
    if (!is_known || access.box.rank != graph_.tensors[access.tensor].dims.size())
      return make_error(
          ErrorCode::kInternal,
          fmt::format("stage '{}' touches a region of {} dimensions of {}", stage.stage->name, access.box.rank,
                      is_known ? "tensor '" + graph_.tensors[access.tensor].name + "'" : "no tensor"));
    const ConcreteTensor& tensor = graph_.tensors[access.tensor];
    const Box& box = access.box;
    std::array<int64_t, kMaxRank> strides{};
    std::array<int32_t, kMaxRank> dims{};
    int64_t stride = 1;
    int64_t offset = 0;
    for (uint32_t d = box.rank; d-- > 0;) {
      strides[d] = stride;
      dims[d] = box.end[d] - box.begin[d];
      offset += box.begin[d] * stride;
      stride *= tensor.dims[d];
    }
    fmt::format_to(std::back_inserter(list),
                   "{}{{\"base_ptr\": {}, \"offset\": {}, \"data_type\": {}, \"dims\": [{}], \"strides\": [{}]}}",
                   list.empty() ? "" : ", ", tensor_names_[access.tensor],
                   offset * static_cast<int64_t>(size_in_bytes(tensor.dtype)), mpk_data_type(tensor.dtype),
                   fmt::join(dims.begin(), dims.begin() + box.rank, ", "),
                   fmt::join(strides.begin(), strides.begin() + box.rank, ", "));
    return {};
  }
  Status add_regions(const std::vector<Access>& accesses, const TaskStage& stage, std::string& list) const {
    for (const Access& access : accesses) MEGARTP_TRY(add_region(access, stage, list));
    return {};
  }

  // Of the final tiles, by join group of the stage.
  struct Lists {
    std::string inputs, outputs;
  };
  Result<std::vector<Lists>> final_regions(const TaskStage& stage) const {
    std::vector<Lists> groups(stage.stage->num_join_groups);
    FinalDesc final;
    for (uint32_t f = 0; f < stage.stage->num_final_tiles; ++f) {
      final.clear();
      stage.stage->final_tile(f, final);
      if (final.join_group >= groups.size())
        return make_error(ErrorCode::kInternal,
                          fmt::format("stage '{}': final tile {} has no valid join group", stage.stage->name, f));
      MEGARTP_TRY(add_regions(final.reads, stage, groups[final.join_group].inputs));
      MEGARTP_TRY(add_regions(final.writes, stage, groups[final.join_group].outputs));
    }
    return groups;
  }

  // --- the arrays
  // ----------------------------------------------------------------------------------------------------------
  void write_task(const MpkTask& task) {
    append(
        "{{\"task_type\": {}, \"task_name\": {}, \"variant_id\": {}, \"inputs\": [{}], \"outputs\": [{}], "
        "\"trigger_event\": {}, \"dependent_event\": {}, \"request_id\": -1, \"expert_offset\": -1, \"kv_idx\": -1, "
        "\"merge_task_offset\": -1, \"task_offset\": {}}}",
        task.type, task.name, task.variant, task.inputs, task.outputs, task.trigger_event, task.dependent_event,
        task.offset);
  }

  Status write_tasks() {
    write_task({.type = kTaskTerminate, .name = "\"terminate\""});
    text_ += ",\n";
    write_task({.type = kTaskBeginTaskGraph, .name = "\"begin_task_graph\"", .trigger_event = 1});
    std::map<uint32_t, std::vector<Lists>> finals;  // by fused stage
    TileDesc tile;
    Lists lists;
    for (const uint32_t t : linear_.order) {
      const Task& task = graph_.tasks[t];
      const TaskStage& stage = graph_.stages[task.stage];
      tile.clear();
      lists.inputs.clear();
      lists.outputs.clear();
      stage.stage->tile(task.tile, tile);
      MEGARTP_TRY(add_regions(tile.reads, stage, lists.inputs));
      MEGARTP_TRY(add_regions(tile.writes, stage, lists.outputs));
      if (stage.stage->num_join_groups != 0) {
        auto it = finals.find(task.stage);
        if (it == finals.end()) it = finals.emplace(task.stage, MEGARTP_TRY(final_regions(stage))).first;
        if (tile.join_group >= it->second.size())
          return make_error(ErrorCode::kInternal,
                            fmt::format("stage '{}': tile {} has no valid join group", stage.stage->name, task.tile));
        const Lists& group = it->second[tile.join_group];
        for (const auto& [from, to] :
             {std::pair(&group.inputs, &lists.inputs), std::pair(&group.outputs, &lists.outputs)})
          if (!from->empty()) *to += (to->empty() ? "" : ", ") + *from;
      }
      MpkTask out{.type = stage.stage->opcode,
                  .name = stage_names_[task.stage],
                  .variant = stage.spec_id < variants_.size() ? variants_[stage.spec_id] : 0,
                  .inputs = lists.inputs,
                  .outputs = lists.outputs,
                  .trigger_event = trigger_of(task),
                  .dependent_event = kNoEvent,
                  .offset = task.tile};
      if (options_.ahead_of_time && task.num_waits == 1) out.dependent_event = number_[task.waits[0].event];
      text_ += ",\n";
      write_task(out);
    }
    return {};
  }

  void write_event(uint32_t type, uint32_t num_triggers, uint32_t first, uint32_t last) {
    append("{{\"event_type\": {}, \"num_triggers\": {}, \"first_task_id\": {}, \"last_task_id\": {}}}", type,
           num_triggers, first, last);
  }
  void write_events() {
    const auto num_tasks = static_cast<uint32_t>(graph_.tasks.size());
    write_event(kEventTermination, 1, 0, 0);
    text_ += ",\n";
    write_event(kEventLaunchDependentTasks, 1, kFirstTask,
                kFirstTask + (options_.ahead_of_time ? num_tasks : num_roots_));
    for (const uint32_t e : events_) {
      const lowering::EventSpan& span = linear_.spans[e];
      const uint32_t launch =
          span.end - span.first >= kMinMassiveConsumers ? kEventLaunchMassiveTasks : kEventLaunchTasks;
      text_ += ",\n";
      write_event(options_.ahead_of_time ? kEventEmpty : launch, triggers_[e], kFirstTask + span.first,
                  kFirstTask + span.end);
    }
    text_ += ",\n";
    write_event(kEventEndOfTaskGraph, num_leaves_, 0, 0);
  }

  const TaskGraph& graph_;
  MpkOptions options_;
  lowering::LinearOrder linear_;
  std::vector<uint64_t> number_;    // our event -> its id in the file, or kNoEvent
  std::vector<uint32_t> triggers_;  // by our event
  std::vector<uint32_t> events_;    // ours, in the order of the file
  uint64_t end_event_ = 0;
  uint32_t num_roots_ = 0;
  uint32_t num_leaves_ = 0;
  std::vector<std::string> tensor_names_, stage_names_;  // quoted
  std::vector<uint32_t> variants_;                       // by spec
  std::string text_;
};

}  // namespace

Result<std::string> to_mpk_json(const TaskGraph& graph, const MpkOptions& options) {
  return MpkWriter(graph, options).run();
}

}  // namespace megartp
