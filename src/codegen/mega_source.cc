#include "codegen/mega_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "abi/mega.h"
#include "ops/mega_op.h"

namespace megartp::codegen {

std::vector<uint32_t> mega_opcodes(const KernelPlan& plan) {
  std::set<uint32_t> opcodes{abi::kOpcodeRelay};
  for (const abi::Instruction& i : plan.instructions)
    if (i.opcode != abi::kOpcodeNoOp) opcodes.insert(i.opcode);
  return {opcodes.begin(), opcodes.end()};
}

Result<KernelRequest> mega_kernel_request(std::span<const uint32_t> opcodes) {
  std::string missing;
  std::vector<std::pair<std::string, std::string>> types;  // and their opcodes
  std::set<std::string> headers;
  for (const uint32_t opcode : opcodes) {
    const MegaOpInfo* op = find_mega_op(opcode);
    if (op == nullptr) {
      missing += fmt::format("{}'{}'", missing.empty() ? "" : ", ", opcode_name(opcode));
      continue;
    }
    headers.emplace(op->header);
    const auto same = std::ranges::find(types, op->type, &std::pair<std::string, std::string>::first);
    if (same == types.end())
      types.emplace_back(op->type, fmt::format("{}", opcode));
    else
      same->second += fmt::format(", {}", opcode);
  }
  if (!missing.empty()) {
    std::string known;
    for (const MegaOpInfo* op : mega_ops())
      known += fmt::format("{}{}", known.empty() ? "" : ", ", opcode_name(op->opcode));
    Error error(
        ErrorCode::kUnsupported,
        fmt::format("mega: the persistent kernel has no device op for {}; plans for it have finalizers that are tasks",
                    missing));
    error.details = fmt::format("there are: {}\n", known);
    return tl::unexpected(std::move(error));
  }
  KernelRequest request;
  request.name = "mega";
  request.header = "device/mega/mega_kernel.cuh";
  request.more_headers.assign(headers.begin(), headers.end());
  std::string ops;
  for (const auto& [type, list] : types)
    ops += fmt::format("{}megartp::device::{}<{}>", ops.empty() ? "" : ", ", type, list);
  request.entry = fmt::format("megartp::device::mega_kernel<megartp::device::MegaOps<{}>>", ops);
  request.param_bytes = sizeof(abi::MegaParams);
  request.param_alignment = alignof(abi::MegaParams);
  return request;
}

}  // namespace megartp::codegen
