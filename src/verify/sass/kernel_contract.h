// What a kernel promises about its grid dependency wait, and the comparison of a compiled kernel with that promise.
//
// The proof of a launch graph relies on these promises; the scan (sass_scan.h) shows whether the machine code keeps
// them. Contracts are JSON, one file a cubin; docs/sass-scan.md describes the fields.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/error.h"
#include "verify/sass/sass_scan.h"

namespace megartp::sass {

enum class ContractWaits : uint8_t { kAll, kSome, kNone };
enum class ContractTrigger : uint8_t { kNone, kAfterWait, kBeforeWait, kAny };

// A parameter, or one member of a struct that is passed by value.
struct ContractParam {
  std::string name;
  uint32_t index = 0;
  uint32_t offset = 0;  // within the parameter
  std::optional<uint32_t> num_bytes;
  bool is_scalar = false;  // of eight bytes, but no pointer
};

struct KernelContract {
  std::string kernel;  // symbol name
  bool pdl = true;     // launched with the programmatic attribute
  ContractWaits waits = ContractWaits::kAll;
  ContractTrigger trigger = ContractTrigger::kNone;
  std::vector<ContractParam> params;
  // Names of parameters. Reads before the wait include prefetches.
  std::vector<std::string> pre_wait_reads, pre_wait_prefetches, pre_wait_writes;
  // Accessed by threads that do not wait themselves but pass a barrier behind one that did; "*" is any.
  std::vector<std::string> ordered_by_barrier;
  std::vector<std::string> allow_unknown_before_wait;  // opcode names
  std::vector<std::string> allow_unfenced;             // "shared", "global"
  bool stores_before_trigger = false;                  // no store to global memory may follow a trigger
  bool no_spills = true;
  std::optional<uint32_t> max_registers;
};

struct CubinContract {
  std::vector<KernelContract> kernels;
};

Result<CubinContract> cubin_contract_from_json(std::string_view text);
Result<CubinContract> load_cubin_contract(const std::string& path);

struct CubinFinding {
  std::string rule;  // "read_before_wait", ... as in docs/sass-scan.md
  std::string kernel;
  std::optional<uint32_t> offset;  // of the instruction
  std::string instruction;
  std::string message;  // a sentence that names kernel and place
};

// Everything in which the kernels do not keep their contracts; empty when they do. Every kernel needs a contract.
std::vector<CubinFinding> compare_with_contract(const std::vector<KernelScan>& scans, const CubinContract& contract);
std::vector<CubinFinding> compare_kernel(const KernelScan& scan, const KernelContract& contract);

}  // namespace megartp::sass
