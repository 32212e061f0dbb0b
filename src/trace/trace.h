// Trace: one run of a graph on some backend, as records with names: the same model for worker threads, megakernels,
// kernels of a CUDA graph and simulated runs.
//
// Made from a backend's raw records (from_plan.h, from_kernels.h) or by the simulator (what_if.h), saved as one file,
// and read by the analysis (analysis.h) and the exporters (export.h).
//
//   lane 0  |--visible....ready########done|   |--...####|
//   lane 1  |..######|    task = op + tile, at a position of its lane
//
// Times are whole nanoseconds from the begin of the run. Invariants, which check_trace() states in full and every
// reader and maker keeps: visible <= ready <= done <= span_ns; tasks are sorted by (lane, position); every index is in
// range.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "abi/instruction.h"
#include "abi/trace_record.h"
#include "megartp/error.h"

namespace megartp::trace {

struct TraceMeta {
  std::string name;     // how reports call it; the backend by default
  std::string backend;  // "cpu-threads", "cmp", "simulated"
  std::string graph;
  std::string machine;
  std::string target;    // of the plan
  std::string packer;    // empty for kernels
  std::string schedule;  // "static", "dynamic"; empty for kernels
  std::vector<std::pair<std::string, int64_t>> shapes;
  std::string clock_domain;
  double clock_resolution_ns = 1;
  uint64_t begin_ns = 0;  // in the clock's own domain
  uint64_t span_ns = 0;   // from the begin of the run until it was over
  uint64_t num_lost = 0;  // tasks without a record
  // On a GPU, from one event record before the launch to one behind it, without recording: the median. 0: not timed.
  double timed_ns = 0;
  // Rates of the target, by which a task is called bound by its bytes or by its arithmetic; 0: not known.
  double read_gb_per_s = 0;
  double gflops = 0;
};

struct Lane {
  std::string name;   // "worker 3", "SM 17 (2)"
  uint32_t unit = 0;  // worker or SM
};
// A stage of a plan, or a kernel.
struct TraceOp {
  std::string name;  // "B0.gemm"
  std::string kind;  // opcode or family
};

struct TraceTask {
  uint32_t id = 0;  // of the plan's task; of kernels, the CTA
  uint32_t lane = 0;
  uint32_t position = 0;  // in the lane
  uint32_t op = 0;
  uint32_t tile = 0;                   // into Trace::texts
  uint32_t join_group = abi::kNoJoin;  // local to the trace
  bool sent = true;                    // its signals were its to send
  uint64_t visible_ns = 0, ready_ns = 0, done_ns = 0;
  uint64_t weight_bytes = 0, other_bytes = 0, flops = 0;
};
// What a part of a task did; needs no place between visible and done: weights may come before.
struct RoleInterval {
  uint32_t task = 0;
  uint32_t role = 0;  // abi::kTraceRole*
  uint64_t begin_ns = 0, end_ns = 0;
};
std::string_view role_name(uint32_t role);

struct EventSignal {
  uint32_t task = 0;
  uint32_t increment = 1;
};
struct EventWait {
  uint32_t task = 0;
  uint32_t threshold = 1;
};
// A counter of a plan, or the completion of a kernel. Of a join group every member is listed; who did send says
// TraceTask::sent. Both lists are sorted by task, each task once.
struct TraceEvent {
  std::string name;
  std::vector<EventSignal> signals;
  std::vector<EventWait> waits;
};
// Between two kernels.
struct KernelEdge {
  uint32_t from = 0, to = 0;  // ops
  std::string level;          // "full", "enter-only", "prologue", "prefetch"
  friend bool operator==(const KernelEdge&, const KernelEdge&) = default;
};

struct Trace {
  TraceMeta meta;
  std::vector<Lane> lanes;
  std::vector<TraceOp> ops;
  std::vector<std::string> texts;
  std::vector<TraceTask> tasks;
  std::vector<RoleInterval> roles;  // sorted by task, then begin
  std::vector<TraceEvent> events;
  std::vector<KernelEdge> kernel_edges;  // none: the run of a plan
};

// kParse with the first thing that is wrong.
Status check_trace(const Trace& trace);

// File: "MRTPTRAC", version, size, XXH3-128 of the rest, a JSON header, then numbers of variable length.
// docs/trace.md has the layout.
std::string serialize_trace(const Trace& trace);
Result<Trace> parse_trace(std::string_view bytes);               // never trusts a byte; ends with check_trace
Status save_trace(const Trace& trace, const std::string& path);  // temporary file, fsync, rename
Result<Trace> load_trace(const std::string& path);
// Sets size and checksum, for tests and fuzzers that change a file.
void seal_trace_bytes(std::string& bytes);

}  // namespace megartp::trace
