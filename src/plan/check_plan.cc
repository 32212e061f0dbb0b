// check_plan: is every number of a plan inside what it refers to, and does it add up?
#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_set>

#include <fmt/format.h>

#include "ops/op_family.h"
#include "plan/packing.h"
#include "plan/plan_limits.h"
#include "plan/plan_structure.h"

namespace megartp {
namespace {

template <class... Args>
tl::unexpected<Error> bad(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kParse, "plan: " + fmt::format(format, std::forward<Args>(args)...));
}

template <class T>
bool all_zero(const T* first, const T* last) {
  // Waits, signals and payload words are made of u32 without padding.
  const auto* words = reinterpret_cast<const std::byte*>(first);
  return std::all_of(words, reinterpret_cast<const std::byte*>(last), [](std::byte b) { return b == std::byte{0}; });
}

class PlanChecker {
 public:
  PlanChecker(const KernelPlan& plan, bool with_sums) : plan_(plan), with_sums_(with_sums) {}

  Status run() {
    MEGARTP_TRY(check_shape());
    MEGARTP_TRY(check_tensors());
    MEGARTP_TRY(check_arena());
    MEGARTP_TRY(check_tables());
    signalled_.assign(plan_.events.size(), 0);
    arrivals_.assign(plan_.join_counts.size(), 0);
    first_of_join_.assign(plan_.join_counts.size(), nullptr);
    seen_.assign(plan_.num_tasks, false);
    for (const abi::Instruction& i : plan_.instructions) {
      if (i.opcode == abi::kOpcodeNoOp)
        MEGARTP_TRY(check_noop(i));
      else
        MEGARTP_TRY(check_instruction(i));
    }
    if (const auto missing = std::ranges::find(seen_, false); missing != seen_.end())
      return bad("task {} is in no queue", missing - seen_.begin());
    return with_sums_ ? check_sums() : Status{};
  }

 private:
  Status check_shape() const {
    if (plan_.num_workers == 0 || plan_.num_workers > kMaxWorkers) return bad("{} workers", plan_.num_workers);
    if (plan_.queue_depth == 0 || plan_.queue_depth > kMaxQueueDepth) return bad("queue depth {}", plan_.queue_depth);
    const uint64_t slots = uint64_t{plan_.num_workers} * plan_.queue_depth;
    if (slots > kMaxPlanInstructions || slots != plan_.instructions.size())
      return bad("{} instructions for {} workers x {}", plan_.instructions.size(), plan_.num_workers,
                 plan_.queue_depth);
    if (plan_.num_tasks == 0 || plan_.num_tasks > slots) return bad("{} tasks in {} slots", plan_.num_tasks, slots);
    return {};
  }

  Status check_tensors() const {
    std::unordered_set<std::string_view> names;
    for (const PlanTensor& t : plan_.tensors) {
      if (t.name.empty() || !names.insert(t.name).second) return bad("tensor name '{}' is empty or used twice", t.name);
      uint64_t bytes = size_in_bytes(t.dtype);
      if (bytes == 0) return bad("tensor '{}' has an unknown dtype", t.name);
      if (t.dims.empty() || t.dims.size() > kMaxRank)
        return bad("tensor '{}' has {} dimensions", t.name, t.dims.size());
      for (const int64_t d : t.dims)
        if (d <= 0 || d > INT32_MAX || __builtin_mul_overflow(bytes, static_cast<uint64_t>(d), &bytes) ||
            bytes > INT64_MAX)
          return bad("tensor '{}' has impossible dims {}", t.name, to_string(t.dims));
      if (bytes != t.num_bytes) return bad("tensor '{}' has {} bytes, its dims make {}", t.name, t.num_bytes, bytes);
    }
    return {};
  }

  Status check_arena() const {
    if (plan_.workspace_bytes > kMaxWorkspaceBytes) return bad("workspace of {} bytes", plan_.workspace_bytes);
    for (const PlanTensor& t : plan_.tensors) {
      if ((t.storage == Storage::kActivation) != (t.arena_offset != kExternal))
        return bad("tensor '{}' must {}lie in the workspace", t.name, t.storage == Storage::kActivation ? "" : "not ");
      if (t.arena_offset == kExternal) continue;
      if (t.arena_offset % plan::kArenaAlignment != 0 || t.arena_offset > plan_.workspace_bytes ||
          t.num_bytes > plan_.workspace_bytes - t.arena_offset)
        return bad("tensor '{}' at {} leaves the workspace or its alignment", t.name, t.arena_offset);
    }
    return {};  // tensors may share memory: that every use of it is ordered is for the prover to see
  }

  Status check_tables() {
    operands_.resize(plan_.operand_rows.size());
    families_.reserve(plan_.operand_rows.size());
    for (size_t r = 0; r < plan_.operand_rows.size(); ++r) {
      const PlanOperandRow& row = plan_.operand_rows[r];
      families_.push_back(find_op_family_by_opcode(row.opcode));
      if (families_.back() == nullptr && row.opcode != abi::kOpcodeRelay)
        return bad("operand row '{}' has the unknown opcode {:#x}", row.name, row.opcode);
      if (row.tensors.size() != abi::kOperandSlots)
        return bad("operand row '{}' has {} slots", row.name, row.tensors.size());
      for (uint32_t s = 0; s < abi::kOperandSlots; ++s) {
        if (row.tensors[s] == kInvalidId) continue;
        if (row.tensors[s] >= plan_.tensors.size())
          return bad("operand row '{}' slot {} names tensor {} of {}", row.name, s, row.tensors[s],
                     plan_.tensors.size());
        const PlanTensor& t = plan_.tensors[row.tensors[s]];
        operands_[r][s] = {true, t.dtype, t.dims};
      }
    }
    for (size_t i = 0; i < plan_.specs.size(); ++i)
      if (find_op_family_by_opcode(plan_.specs[i].opcode) == nullptr && plan_.specs[i].opcode != abi::kOpcodeRelay)
        return bad("spec {} has the unknown opcode {:#x}", i, plan_.specs[i].opcode);
    for (size_t e = 0; e < plan_.events.size(); ++e) {
      const PlanEvent& event = plan_.events[e];
      if (event.total == 0 || (event.producer_row >= plan_.operand_rows.size() && event.producer_row != kInvalidId) ||
          event.publication > 0xff)
        return bad("event {} has total {}, producer row {}, publication {}", e, event.total, event.producer_row,
                   event.publication);
    }
    for (size_t j = 0; j < plan_.join_counts.size(); ++j)
      if (plan_.join_counts[j] == 0) return bad("join counter {} expects no arrival", j);
    return {};
  }

  Status check_noop(const abi::Instruction& i) const {
    const abi::Instruction noop = make_noop();
    if (std::memcmp(&i, &noop, sizeof(noop)) != 0) return bad("a NoOp has non-zero words");
    return {};
  }

  Status check_instruction(const abi::Instruction& i) {
    if (i.task_id >= plan_.num_tasks) return bad("task id {} of {}", i.task_id, plan_.num_tasks);
    if (seen_[i.task_id]) return bad("task {} appears twice", i.task_id);
    seen_[i.task_id] = true;
    const uint32_t waits = abi::num_waits(i);
    const uint32_t signals = abi::num_signals(i);
    const uint32_t payload = abi::num_payload(i);
    if (waits > abi::kMaxWaits || signals > abi::kMaxSignals || payload > abi::kMaxPayload || i.counts >> 24 != 0)
      return bad("task {} has impossible counts {:#010x}", i.task_id, i.counts);
    if (i.reserved0 != 0 || !all_zero(i.waits + waits, i.waits + abi::kMaxWaits) ||
        !all_zero(i.signals + signals, i.signals + abi::kMaxSignals) ||
        !all_zero(i.payload + payload, i.payload + abi::kMaxPayload))
      return bad("task {} has a reserved or unused word that is not zero", i.task_id);
    if (i.operand_row >= plan_.operand_rows.size() || i.spec_id >= plan_.specs.size())
      return bad("task {} has operand row {} and spec {}", i.task_id, i.operand_row, i.spec_id);
    if (i.opcode != plan_.operand_rows[i.operand_row].opcode || i.opcode != plan_.specs[i.spec_id].opcode)
      return bad("task {}: opcode {:#x} is not that of its operand row and spec", i.task_id, i.opcode);
    for (uint32_t w = 0; w < waits; ++w) {
      const abi::Wait& wait = i.waits[w];
      if (wait.event >= plan_.events.size() || wait.threshold == 0 ||
          (with_sums_ && wait.threshold > plan_.events[wait.event].total))
        return bad("task {} waits for event {} >= {}", i.task_id, wait.event, wait.threshold);
    }
    MEGARTP_TRY(check_join(i));
    if (i.opcode == abi::kOpcodeRelay) return check_relay(i);
    const InstructionCheck check{i, plan_.specs[i.spec_id].words, operands_[i.operand_row]};
    if (Status s = families_[i.operand_row]->check_instruction(check); !s)
      return tl::unexpected(std::move(s)
                                .error()
                                .with("task", std::to_string(i.task_id))
                                .with("op", plan_.operand_rows[i.operand_row].name));
    return {};
  }

  Status check_relay(const abi::Instruction& i) const {
    if (abi::num_payload(i) != 0 || i.join_counter != abi::kNoJoin || !plan_.specs[i.spec_id].words.empty())
      return bad("task {} is a relay, but has a payload, a join counter or a spec with words", i.task_id);
    if (abi::num_waits(i) == 0 || abi::num_signals(i) == 0)
      return bad("task {} is a relay that waits for nothing or signals nothing", i.task_id);
    return {};
  }

  Status check_join(const abi::Instruction& i) {
    if (i.join_counter == abi::kNoJoin) {
      if (i.join_count != 0) return bad("task {} has a join count but no join counter", i.task_id);
      return count_signals(i);
    }
    if (i.join_counter >= plan_.join_counts.size() || i.join_count != plan_.join_counts[i.join_counter])
      return bad("task {} joins counter {} with count {}", i.task_id, i.join_counter, i.join_count);
    ++arrivals_[i.join_counter];
    const abi::Instruction*& first = first_of_join_[i.join_counter];
    if (first == nullptr) {
      first = &i;
      return count_signals(i);  // only the last arriver sends them
    }
    if (abi::num_signals(*first) != abi::num_signals(i) ||
        std::memcmp(first->signals, i.signals, sizeof(i.signals)) != 0 || first->operand_row != i.operand_row ||
        first->spec_id != i.spec_id)
      return bad("tasks {} and {} share join counter {} but differ in signals, operands or spec", first->task_id,
                 i.task_id, i.join_counter);
    return {};
  }

  Status count_signals(const abi::Instruction& i) {
    for (uint32_t s = 0; s < abi::num_signals(i); ++s) {
      const abi::Signal& signal = i.signals[s];
      if (signal.event >= plan_.events.size() || abi::increment(signal) == 0)
        return bad("task {} signals event {} with increment {}", i.task_id, signal.event, abi::increment(signal));
      const PlanEvent& event = plan_.events[signal.event];
      const bool is_known = event.producer_row != kInvalidId;
      if (is_known && (event.producer_row != i.operand_row || event.publication != abi::publication(signal)))
        return bad("task {} signals event {}, which belongs to another stage or publication", i.task_id, signal.event);
      signalled_[signal.event] += abi::increment(signal);
    }
    return {};
  }

  Status check_sums() const {
    for (size_t e = 0; e < signalled_.size(); ++e)
      if (signalled_[e] != plan_.events[e].total)
        return bad("event {}: signals add up to {}, total is {}", e, signalled_[e], plan_.events[e].total);
    for (size_t j = 0; j < arrivals_.size(); ++j)
      if (arrivals_[j] != plan_.join_counts[j])
        return bad("join counter {}: {} arrivals, {} expected", j, arrivals_[j], plan_.join_counts[j]);
    return {};
  }

  const KernelPlan& plan_;
  bool with_sums_;
  std::vector<std::array<OperandType, abi::kOperandSlots>> operands_;  // by row
  std::vector<const OpFamily*> families_;                              // by row
  std::vector<uint64_t> signalled_;
  std::vector<uint32_t> arrivals_;
  std::vector<const abi::Instruction*> first_of_join_;
  std::vector<bool> seen_;
};

}  // namespace

Status check_plan(const KernelPlan& plan) { return PlanChecker(plan, true).run(); }
Status check_plan_structure(const KernelPlan& plan) { return PlanChecker(plan, false).run(); }

}  // namespace megartp
