#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "ops/op_family.h"
#include "plan/kernel_plan.h"

namespace megartp {
namespace {

std::string describe_payload(const abi::Instruction& i) {
  const OpFamily* family = find_op_family_by_opcode(i.opcode);
  // All words, whatever the count says: an unchecked instruction must not make a family read beyond its payload.
  if (family != nullptr) return family->describe_payload(i.opcode, i.payload);
  return fmt::format("{}", fmt::join(i.payload, " "));
}

void append_header(const KernelPlan& plan, std::string& out) {
  auto to = std::back_inserter(out);
  fmt::format_to(to, "plan of graph '{}' for {}, packer {}, finalizer {}\n", plan.graph_name, plan.target, plan.packer,
                 plan.finalizer);
  out += "shapes:";
  for (const auto& [name, value] : plan.shapes.symbols) fmt::format_to(to, " {}={}", name, value);
  for (const RequestShape& r : plan.shapes.requests) fmt::format_to(to, " [{} rows, kv {}]", r.num_rows, r.kv_len);
  fmt::format_to(to, "\n{} tasks, {} workers x {}, {} events, {} join counters, workspace {} bytes\n", plan.num_tasks,
                 plan.num_workers, plan.queue_depth, plan.events.size(), plan.join_counts.size(), plan.workspace_bytes);
  out += "\nspecs\n";
  for (size_t s = 0; s < plan.specs.size(); ++s) {
    const PlanSpec& spec = plan.specs[s];
    const OpFamily* family = find_op_family_by_opcode(spec.opcode);
    fmt::format_to(
        to, "  s{} {}: {}\n", s, opcode_name(spec.opcode),
        family != nullptr ? family->describe_spec(spec.words) : fmt::format("{}", fmt::join(spec.words, " ")));
  }
  out += "\ntensors\n";
  for (size_t t = 0; t < plan.tensors.size(); ++t) {
    const PlanTensor& tensor = plan.tensors[t];
    fmt::format_to(to, "  t{} {} {} {} {}", t, tensor.name, to_string(tensor.dtype), to_string(tensor.dims),
                   to_string(tensor.storage));
    if (tensor.arena_offset != kExternal) fmt::format_to(to, " @{:#x}", tensor.arena_offset);
    out += "\n";
  }
  out += "\noperand rows\n";
  for (size_t r = 0; r < plan.operand_rows.size(); ++r) {
    const PlanOperandRow& row = plan.operand_rows[r];
    fmt::format_to(to, "  r{} {} (op {}, {}):", r, row.name, row.op, opcode_name(row.opcode));
    for (const uint32_t t : row.tensors) out += t == kInvalidId ? " -" : fmt::format(" t{}", t);
    while (out.ends_with(" -")) out.resize(out.size() - 2);
    out += "\n";
  }
  out += "\nevents\n";
  for (size_t e = 0; e < plan.events.size(); ++e) {
    const PlanEvent& event = plan.events[e];
    fmt::format_to(to, "  e{} total {} from {} publication {}\n", e, event.total,
                   producer_name(plan, static_cast<uint32_t>(e)), event.publication);
  }
}

}  // namespace

std::string_view producer_name(const KernelPlan& plan, uint32_t event) {
  if (event >= plan.events.size()) return "?";
  const uint32_t row = plan.events[event].producer_row;
  if (row == kInvalidId) return "several";
  return row < plan.operand_rows.size() ? std::string_view(plan.operand_rows[row].name) : "?";
}

std::string disassemble(const KernelPlan& plan, const abi::Instruction& i) {
  if (i.opcode == abi::kOpcodeNoOp) return "noop";
  const bool known_row = i.operand_row < plan.operand_rows.size();
  std::string out = fmt::format("task {} {} {} s{}", i.task_id, known_row ? plan.operand_rows[i.operand_row].name : "?",
                                opcode_name(i.opcode), i.spec_id);
  auto to = std::back_inserter(out);
  if (const std::string payload = describe_payload(i); !payload.empty()) fmt::format_to(to, " | {}", payload);
  for (uint32_t w = 0; w < std::min(abi::num_waits(i), abi::kMaxWaits); ++w)
    fmt::format_to(to, "{} e{}>={}", w == 0 ? " | wait" : ",", i.waits[w].event, i.waits[w].threshold);
  if (i.join_counter != abi::kNoJoin) fmt::format_to(to, " | join j{} of {}", i.join_counter, i.join_count);
  for (uint32_t s = 0; s < std::min(abi::num_signals(i), abi::kMaxSignals); ++s)
    fmt::format_to(to, "{} e{}+{} (p{})", s == 0 ? " | signal" : ",", i.signals[s].event, abi::increment(i.signals[s]),
                   abi::publication(i.signals[s]));
  return out;
}

std::string disassemble(const KernelPlan& plan) {
  std::string out;
  append_header(plan, out);
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    fmt::format_to(std::back_inserter(out), "\nworker {}\n", w);
    for (uint32_t slot = 0; slot < plan.queue_depth; ++slot)
      fmt::format_to(std::back_inserter(out), "  {}: {}\n", slot, disassemble(plan, plan.instruction(w, slot)));
  }
  return out;
}

}  // namespace megartp
