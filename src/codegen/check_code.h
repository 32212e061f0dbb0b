// Does the machine code of a plan's kernels keep what the plan was proved with?
//
// The launch prover takes from each kernel's description what it reads and writes before its grid dependency wait. Here
// the description becomes a contract (verify/sass/kernel_contract.h), and the scan of the cubin is compared with it.
// Two more things are seen that cost time and not correctness: weights that are described as read before the wait and
// that the compiler has moved behind it.
#pragma once

#include <string>
#include <vector>

#include "codegen/compile_kernels.h"
#include "launch/launch_plan.h"
#include "verify/sass/kernel_contract.h"

namespace megartp::codegen {

enum class CodeVerdict : uint8_t {
  kBroken,    // the code does what the contract forbids
  kUnknown,   // the scan cannot tell: an address before the wait that it cannot trace, a fence on another path
  kLostTime,  // nothing of a weight is read before the wait although the description says so
};

struct CodeFinding {
  uint32_t kernel = 0;  // of the plan
  CodeVerdict verdict = CodeVerdict::kBroken;
  std::string rule;  // as in docs/sass-scan.md, or "late_weights"
  std::string message;
};

// What a kernel of the plan promises. Offsets are those within its parameter struct.
sass::KernelContract kernel_contract(const LaunchKernel& kernel, const std::string& symbol);

// One entry of `compiled` per kernel of the plan, sm_90 code. Kernels that share code are compared each with their own
// contract.
Result<std::vector<CodeFinding>> check_code(const LaunchPlan& plan, const CompiledKernels& compiled);

}  // namespace megartp::codegen
