// Fuzzer of the plan reader, and of the prover on what it lets through. Half of the inputs get a right checksum, so
// that mutations reach what lies behind it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "plan/kernel_plan.h"
#include "plan/plan_json.h"
#include "plan/plan_seal.h"
#include "plan/plan_structure.h"
#include "verify/plan/plan_proof.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const bool seal : {false, true}) {
    if (seal) megartp::seal_plan_bytes(bytes);
    if (const auto plan = megartp::parse_plan_structure(bytes); plan && plan->num_workers <= 1024) {
      const megartp::PlanProof proof = megartp::prove_plan(*plan);
      if (proof.is_proved() && proof.stats.num_tasks != plan->num_tasks) __builtin_trap();
    }
    if (const auto plan = megartp::parse_plan(bytes)) {
      if (megartp::disassemble(*plan).empty() || megartp::plan_to_json(*plan).empty()) __builtin_trap();
    }
  }
  return 0;
}
