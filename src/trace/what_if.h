// What if: a recorded run replayed by the simulator with something changed.
//
// Every tile keeps the time that it took; what changes is when it may begin. The simulator's own costs (the way of a
// signal, the gap between two tasks, the start) are taken from the trace. The prediction is the measured span times the
// ratio of the two replays, with and without the change: what the replay does not know of cancels out.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "plan/simulate.h"
#include "trace/trace.h"

namespace megartp::trace {

struct WhatIf {
  std::vector<std::pair<std::string, double>> faster;  // op, factor > 0: its tiles take 1 / factor
  std::vector<std::pair<std::string, std::string>>
      free_edges;                // producer, consumer: its tasks do not wait for the other's
  std::optional<Packer> packer;  // the tasks packed anew
  uint32_t num_workers = 0;      // 0: as they were; else packed anew
};
// "B0=2", "A0->B0". An op is a stage, or the op that several stages ("B0.gemm", "B0.finalize") belong to.
Result<std::pair<std::string, double>> parse_faster(std::string_view text);
Result<std::pair<std::string, std::string>> parse_free_edge(std::string_view text);

struct WhatIfResult {
  uint64_t measured_ns = 0;  // span of the trace
  uint64_t replay_ns = 0;    // of the replay with nothing changed
  uint64_t changed_ns = 0;   // of the replay with the changes
  double predicted_ns = 0;
  double replay_error() const;  // of replay_ns against measured_ns
};
// kInvalidArgument: an unknown op, a trace with lost records, kernels to be packed.
Result<WhatIfResult> what_if(const Trace& trace, const WhatIf& change);

// The pieces.
SimProgram replay_program(const Trace& trace);  // lanes as queues, every tile with its measured time
SimCosts replay_costs(const Trace& trace);      // told from the trace

}  // namespace megartp::trace
