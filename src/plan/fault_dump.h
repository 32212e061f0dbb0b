// A fault dump: the records of a run that was given up, as a file, and what they mean.
//
// Backends fill FaultDump; `megartp run --fault-dump` saves it; `megartp explain-fault` reads and explains it. Two
// forms: binary (the header of abi/fault_record.h and its records) and JSON (a name that ends in ".json"), which holds
// the same numbers under their field names. Both readers are strict and bounded.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "abi/fault_record.h"
#include "base/hash.h"
#include "megartp/error.h"
#include "plan/kernel_plan.h"

namespace megartp {

// A device has at most so many waiters worth a record; more are an error of the writer.
inline constexpr uint32_t kMaxFaultRecords = 1U << 20;

struct FaultDump {
  uint32_t num_workers = 0;
  uint32_t queue_depth = 0;
  uint32_t num_tasks = 0;
  uint32_t num_events = 0;
  uint32_t schedule = abi::kScheduleStatic;
  uint32_t timeout_ms = 0;
  Hash128 plan_hash;  // of serialize_plan(); zero: not known
  std::vector<abi::FaultRecord> records;
};

// Sizes and identity of the plan that was run.
FaultDump make_fault_dump(const KernelPlan& plan);

std::string serialize_fault_dump(const FaultDump& dump);
std::string fault_dump_to_json(const FaultDump& dump);
// Either form. kParse with what is wrong and where.
Result<FaultDump> parse_fault_dump(std::string_view bytes);
Status save_fault_dump(const FaultDump& dump, const std::string& path);  // atomically; JSON for "*.json"
Result<FaultDump> load_fault_dump(const std::string& path);

struct FaultExplanation {
  std::string sentence;            // the cause, without a full stop
  std::vector<std::string> lines;  // one per record
};
// With the plan, ops, tiles and queue places are named, and the chain of waits is followed to its root; without it only
// what the records say. kInvalidArgument when the dump is of another plan.
Result<FaultExplanation> explain_fault(const FaultDump& dump, const KernelPlan* plan);

}  // namespace megartp
