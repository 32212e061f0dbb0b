#include "ops/op_registry.h"

#include <algorithm>

namespace megartp {
namespace {

struct Registry {
  std::vector<const OpFamily*> families = generated_op_families();
  std::vector<const OpSchema*> schemas;
  Registry() {
    std::sort(families.begin(), families.end(),
              [](const OpFamily* a, const OpFamily* b) { return a->opcodes()[0].opcode < b->opcodes()[0].opcode; });
    schemas.assign(families.begin(), families.end());
  }
};

const Registry& registry() {
  static const Registry r;
  return r;
}

}  // namespace

std::span<const OpSchema* const> op_schemas() { return registry().schemas; }
std::span<const OpFamily* const> op_families() { return registry().families; }

const OpFamily* find_op_family(std::string_view kind) {
  for (const OpFamily* f : op_families())
    if (f->kind() == kind) return f;
  return nullptr;
}

const OpFamily* find_op_family_by_opcode(uint32_t opcode) {
  for (const OpFamily* f : op_families())
    for (const OpcodeInfo& info : f->opcodes())
      if (info.opcode == opcode) return f;
  return nullptr;
}

const DeviceFamily* find_device_family(std::string_view kind) {
  static const std::vector<const DeviceFamily*> families = generated_device_families();
  for (const DeviceFamily* f : families)
    if (f->kind() == kind) return f;
  return nullptr;
}

std::span<const MegaOpInfo* const> mega_ops() {
  static const std::vector<const MegaOpInfo*> sorted = [] {
    static constexpr MegaOpInfo kRelay{
        abi::kOpcodeRelay, "device/mega/relay.cuh", "RelayMega", {}, nullptr, nullptr, nullptr};
    std::vector<const MegaOpInfo*> list{&kRelay};
    for (const std::span<const MegaOpInfo> family : generated_mega_ops())
      for (const MegaOpInfo& op : family) list.push_back(&op);
    std::sort(list.begin(), list.end(), [](const MegaOpInfo* a, const MegaOpInfo* b) { return a->opcode < b->opcode; });
    return list;
  }();
  return sorted;
}

const MegaOpInfo* find_mega_op(uint32_t opcode) {
  for (const MegaOpInfo* op : mega_ops())
    if (op->opcode == opcode) return op;
  return nullptr;
}

std::string_view opcode_name(uint32_t opcode) {
  if (opcode == abi::kOpcodeNoOp) return "noop";
  if (opcode == abi::kOpcodeRelay) return "relay";
  for (const OpFamily* f : op_families())
    for (const OpcodeInfo& info : f->opcodes())
      if (info.opcode == opcode) return info.name;
  return "?";
}

uint32_t find_opcode(std::string_view name) {
  if (name == opcode_name(abi::kOpcodeRelay)) return abi::kOpcodeRelay;
  for (const OpFamily* f : op_families())
    for (const OpcodeInfo& info : f->opcodes())
      if (info.name == name) return info.opcode;
  return abi::kOpcodeNoOp;
}

}  // namespace megartp
