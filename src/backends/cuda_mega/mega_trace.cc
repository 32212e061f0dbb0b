#include "backends/cuda_mega/mega_trace.h"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "backends/cuda_common/global_timer.h"

namespace megartp::cuda_mega {

Result<RawTrace> raw_trace(const KernelPlan& plan, std::span<const abi::MegaTraceRecord> records) {
  if (records.size() != plan.instructions.size())
    return make_error(ErrorCode::kInvalidArgument, fmt::format("mega: {} trace records for {} instructions",
                                                               records.size(), plan.instructions.size()));
  RawTrace raw;
  raw.clock_domain = cuda::kGlobalTimer;
  raw.begin = std::numeric_limits<uint64_t>::max();
  std::vector<uint64_t> times;
  for (uint32_t w = 0; w < plan.num_workers; ++w)
    for (uint32_t slot = 0; slot < plan.queue_depth; ++slot) {
      const abi::Instruction& i = plan.instruction(w, slot);
      if (i.opcode == abi::kOpcodeNoOp) continue;
      const abi::MegaTraceRecord& r = records[size_t{w} * plan.queue_depth + slot];
      if (r.visible == 0 || r.ready == 0 || r.done == 0) continue;
      // Clocks of two SMs may differ by a step, and a record's times come from three warps.
      const uint64_t visible = std::min(r.visible, r.ready);
      const uint64_t ready = std::max(r.visible, r.ready);
      // Computed, signals still to be sent, as tasks of other backends have it; sending them is a role.
      const uint64_t published = std::max(ready, r.done);
      const uint64_t done = r.computed == 0 ? published : std::clamp(r.computed, ready, published);
      raw.tasks.push_back({w, slot, i.task_id, abi::kTraceSent, visible, ready, done, 0});
      raw.begin = std::min(raw.begin, visible);
      raw.end = std::max(raw.end, published);
      if (done < published) raw.roles.push_back({w, slot, abi::kTraceRoleStore, 0, done, published});
      for (const uint64_t time : {r.visible, r.ready, r.done}) times.push_back(time);
      if (r.weights_begin == 0 || r.weights_end < r.weights_begin) continue;
      // It may be several instructions ahead of the consumers.
      raw.roles.push_back({w, slot, abi::kTraceRoleWeights, 0, r.weights_begin, r.weights_end});
      raw.begin = std::min(raw.begin, r.weights_begin);
      raw.end = std::max(raw.end, r.weights_end);
    }
  if (raw.tasks.empty()) return make_error(ErrorCode::kInvalidArgument, "mega: the run left no trace records");
  raw.num_lost = plan.num_tasks - raw.tasks.size();
  raw.resolution_ns = static_cast<double>(cuda::smallest_step_ns(std::move(times)));
  return raw;
}

}  // namespace megartp::cuda_mega
