#include "plan/plan_diff.h"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "ops/op_family.h"

namespace megartp {
namespace {

// Values by name, in the order in which they came.
class Facts {
 public:
  void add(std::string field, DiffValue value) { facts_.emplace_back(std::move(field), std::move(value)); }
  const DiffValue* find(std::string_view field) const {
    const auto it = std::ranges::find(facts_, field, [](const auto& f) -> std::string_view { return f.first; });
    return it == facts_.end() ? nullptr : &it->second;
  }
  const auto& all() const { return facts_; }

 private:
  std::vector<std::pair<std::string, DiffValue>> facts_;
};

// Fields whose values differ; those of `b` alone come last.
std::vector<FieldDiff> compare(const Facts& a, const Facts& b) {
  std::vector<FieldDiff> out;
  for (const auto& [field, value] : a.all()) {
    const DiffValue* other = b.find(field);
    if (other == nullptr || *other != value) out.push_back({field, value, other == nullptr ? DiffValue{} : *other});
  }
  for (const auto& [field, value] : b.all())
    if (a.find(field) == nullptr) out.push_back({field, {}, value});
  return out;
}

using NamedFacts = std::vector<std::pair<std::string, Facts>>;

std::vector<ItemDiff> compare(const NamedFacts& a, const NamedFacts& b) {
  static const Facts kNothing;
  std::map<std::string_view, const Facts*> in_b;
  for (const auto& [name, facts] : b) in_b.emplace(name, &facts);
  std::vector<ItemDiff> out;
  for (const auto& [name, facts] : a) {
    const auto it = in_b.find(name);
    const bool is_missing = it == in_b.end();
    auto fields = compare(facts, is_missing ? kNothing : *it->second);
    if (is_missing || !fields.empty())
      out.push_back({name, is_missing ? Presence::kOnlyA : Presence::kBoth, std::move(fields)});
    if (!is_missing) in_b.erase(it);
  }
  for (const auto& [name, facts] : b)
    if (in_b.contains(name)) out.push_back({name, Presence::kOnlyB, compare(kNothing, facts)});
  return out;
}

// --- facts of one plan
// -----------------------------------------------------------------------------------------------------

struct Placed {
  uint32_t task_id = 0;
  uint32_t worker = 0;
  uint32_t slot = 0;
  friend auto operator<=>(const Placed&, const Placed&) = default;
};

// What the instructions of one operand row say.
struct RowUse {
  std::vector<Placed> tasks;  // by id
  Histogram waits, signals, wait_thresholds;
  std::set<uint32_t> events_in, events_out, specs;
};

std::vector<RowUse> use_of_rows(const KernelPlan& plan) {
  std::vector<RowUse> rows(plan.operand_rows.size());
  for (uint32_t w = 0; w < plan.num_workers; ++w)
    for (uint32_t slot = 0; slot < plan.queue_depth; ++slot) {
      const abi::Instruction& i = plan.instruction(w, slot);
      if (i.opcode == abi::kOpcodeNoOp) continue;
      RowUse& row = rows[i.operand_row];
      row.tasks.push_back({i.task_id, w, slot});
      ++row.waits[abi::num_waits(i)];
      ++row.signals[abi::num_signals(i)];
      row.specs.insert(i.spec_id);
      for (uint32_t k = 0; k < abi::num_waits(i); ++k) {
        row.events_in.insert(i.waits[k].event);
        ++row.wait_thresholds[i.waits[k].threshold];
      }
      for (uint32_t k = 0; k < abi::num_signals(i); ++k) row.events_out.insert(i.signals[k].event);
    }
  for (RowUse& row : rows) std::ranges::sort(row.tasks);
  return rows;
}

std::string spec_text(const PlanSpec& spec) {
  const OpFamily* family = find_op_family_by_opcode(spec.opcode);
  const std::string text = family == nullptr ? "" : family->describe_spec(spec.words);
  return text.empty() ? fmt::format("{}", fmt::join(spec.words, " ")) : text;
}

// Numbers the second and later items of one name, so that every item has a partner of its own.
class Names {
 public:
  std::string unique(const std::string& name) {
    const uint32_t n = ++count_[name];
    return n == 1 ? name : fmt::format("{} #{}", name, n);
  }

 private:
  std::map<std::string, uint32_t> count_;
};

Facts header_facts(const KernelPlan& plan) {
  Facts f;
  f.add("graph", plan.graph_name);
  f.add("graph_hash", plan.graph_hash);
  for (const auto& [name, value] : plan.shapes.symbols) f.add("shape " + name, static_cast<uint64_t>(value));
  std::string requests;
  for (const RequestShape& r : plan.shapes.requests)
    requests += fmt::format("{}{} rows kv {}", requests.empty() ? "" : ", ", r.num_rows, r.kv_len);
  f.add("requests", requests);
  f.add("target", plan.target);
  f.add("packer", plan.packer);
  f.add("finalizer", plan.finalizer);
  f.add("workers", uint64_t{plan.num_workers});
  f.add("queue_depth", uint64_t{plan.queue_depth});
  f.add("queue_bytes", plan.instructions.size() * sizeof(abi::Instruction));
  f.add("noops", plan.instructions.size() - plan.num_tasks);
  f.add("tasks", uint64_t{plan.num_tasks});
  f.add("events", uint64_t{plan.events.size()});
  f.add("join_counters", uint64_t{plan.join_counts.size()});
  f.add("specs", uint64_t{plan.specs.size()});
  f.add("operand_rows", uint64_t{plan.operand_rows.size()});
  f.add("tensors", uint64_t{plan.tensors.size()});
  f.add("workspace_bytes", plan.workspace_bytes);
  return f;
}

NamedFacts op_facts(const KernelPlan& plan, const std::vector<RowUse>& rows) {
  NamedFacts out;
  Names names;
  for (size_t r = 0; r < rows.size(); ++r) {
    const PlanOperandRow& row = plan.operand_rows[r];
    const RowUse& use = rows[r];
    Facts f;
    f.add("opcode", std::string(opcode_name(row.opcode)));
    f.add("tasks", uint64_t{use.tasks.size()});
    f.add("events_in", uint64_t{use.events_in.size()});
    f.add("events_out", uint64_t{use.events_out.size()});
    f.add("waits_per_task", use.waits);
    f.add("signals_per_task", use.signals);
    f.add("wait_thresholds", use.wait_thresholds);
    Histogram totals;
    for (const uint32_t e : use.events_out) ++totals[plan.events[e].total];
    f.add("event_thresholds", std::move(totals));
    std::string operands;
    for (const uint32_t t : row.tensors)
      operands += (operands.empty() ? "" : " ") + (t == kInvalidId ? "-" : plan.tensors[t].name);
    while (operands.ends_with(" -")) operands.resize(operands.size() - 2);
    f.add("operands", std::move(operands));
    out.emplace_back(names.unique(row.name), std::move(f));
  }
  return out;
}

NamedFacts tensor_facts(const KernelPlan& plan) {
  NamedFacts out;
  for (const PlanTensor& t : plan.tensors) {
    Facts f;
    f.add("dtype", std::string(to_string(t.dtype)));
    f.add("dims", to_string(t.dims));
    f.add("storage", std::string(to_string(t.storage)));
    f.add("bytes", t.num_bytes);
    if (t.arena_offset != kExternal) f.add("arena_offset", t.arena_offset);
    out.emplace_back(t.name, std::move(f));
  }
  return out;
}

NamedFacts spec_facts(const KernelPlan& plan) {
  NamedFacts out;
  Names names;
  for (const PlanSpec& spec : plan.specs) {
    Facts f;
    f.add("parameters", spec_text(spec));
    f.add("words", fmt::format("{:x}", fmt::join(spec.words, " ")));
    out.emplace_back(names.unique(std::string(opcode_name(spec.opcode))), std::move(f));
  }
  return out;
}

// Two instructions of matched rows: all words but those that follow from where the task stands.
bool same_contents(const abi::Instruction& a, const abi::Instruction& b) {
  return a.opcode == b.opcode && a.counts == b.counts && a.join_counter == b.join_counter &&
         a.join_count == b.join_count && std::memcmp(a.waits, b.waits, sizeof(a.waits)) == 0 &&
         std::memcmp(a.signals, b.signals, sizeof(a.signals)) == 0 &&
         std::memcmp(a.payload, b.payload, sizeof(a.payload)) == 0;
}

std::vector<PlacementDiff> placement(const KernelPlan& a, const std::vector<RowUse>& rows_a, const KernelPlan& b,
                                     const std::vector<RowUse>& rows_b) {
  std::map<std::string, size_t> row_of;
  Names names_a;
  Names names_b;
  for (size_t r = 0; r < rows_b.size(); ++r) row_of.emplace(names_b.unique(b.operand_rows[r].name), r);
  std::vector<PlacementDiff> out;
  for (size_t r = 0; r < rows_a.size(); ++r) {
    PlacementDiff diff{.name = names_a.unique(a.operand_rows[r].name)};
    const auto it = row_of.find(diff.name);
    if (it == row_of.end()) continue;
    const std::vector<Placed>& tasks_a = rows_a[r].tasks;
    const std::vector<Placed>& tasks_b = rows_b[it->second].tasks;
    diff.num_tasks = static_cast<uint32_t>(std::min(tasks_a.size(), tasks_b.size()));
    for (uint32_t i = 0; i < diff.num_tasks; ++i) {
      const Placed& at_a = tasks_a[i];
      const Placed& at_b = tasks_b[i];
      diff.num_other_worker += at_a.worker != at_b.worker ? 1 : 0;
      diff.num_other_slot += at_a.worker == at_b.worker && at_a.slot != at_b.slot ? 1 : 0;
      diff.num_other_contents +=
          same_contents(a.instruction(at_a.worker, at_a.slot), b.instruction(at_b.worker, at_b.slot)) ? 0 : 1;
    }
    if (diff.num_other_worker + diff.num_other_slot + diff.num_other_contents != 0) out.push_back(std::move(diff));
  }
  return out;
}

}  // namespace

std::string to_string(const Histogram& histogram) {
  constexpr size_t kMaxItems = 6;
  std::string text;
  size_t n = 0;
  for (const auto& [value, count] : histogram) {
    if (n++ == kMaxItems) return text + fmt::format(", ... ({} values)", histogram.size());
    text += fmt::format("{}{} x {}", text.empty() ? "" : ", ", count, value);
  }
  return text.empty() ? "none" : text;
}

std::string to_string(const DiffValue& value) {
  struct Visitor {
    std::string operator()(std::monostate) const { return "-"; }
    std::string operator()(uint64_t number) const { return std::to_string(number); }
    std::string operator()(const std::string& text) const { return text; }
    std::string operator()(const Histogram& histogram) const { return to_string(histogram); }
  };
  return std::visit(Visitor{}, value);
}

PlanDiff diff_plans(const KernelPlan& a, const KernelPlan& b) {
  PlanDiff diff;
  const std::vector<RowUse> rows_a = use_of_rows(a);
  const std::vector<RowUse> rows_b = use_of_rows(b);
  diff.header = compare(header_facts(a), header_facts(b));
  diff.ops = compare(op_facts(a, rows_a), op_facts(b, rows_b));
  diff.tensors = compare(tensor_facts(a), tensor_facts(b));
  diff.specs = compare(spec_facts(a), spec_facts(b));
  diff.placement = placement(a, rows_a, b, rows_b);
  diff.is_identical = serialize_plan(a) == serialize_plan(b);
  return diff;
}

}  // namespace megartp
