// What the recorders of `megartp trace record` share: cpu-threads (trace_record.cc) and the GPU (trace_record_gpu.cc).
#pragma once

#include <string>
#include <string_view>

#include "cli/launch_options.h"
#include "cli/run_mega.h"
#include "models/glm52/layer_run.h"
#include "trace/trace.h"

namespace megartp::cli {

struct RecordArgs {
  CommonOptions common;
  ModelOptions model;
  BatchOptions batch;
  PlanOptions plan;
  std::string weights;
  std::string backend = "cpu-threads";
  std::string schedule = "static";
  LaunchArgs launch;
  MegaArgs mega;
  std::string name;
  std::string output;
  uint64_t seed = 1;
  int64_t repeat = 5;
  std::string pick = "median";
  uint32_t records = 0;  // a worker; 0: as many as there can be
  int64_t cost = 0;
  bool threads_given = false;  // what only CPU threads have
  bool launch_given = false;   // ... only kernels of a graph
  bool packing_given = false;  // ... only plans
  bool target_given = false;
  bool packer_given = false;
  bool finalizer_given = false;

  bool is_shortest() const { return pick == "shortest"; }
};

struct RecordingCost {
  int64_t pairs = 0;                   // runs without and with recording
  double without_ns = 0, with_ns = 0;  // medians
  double ratio() const { return with_ns / without_ns; }
};
struct Recording {
  trace::Trace trace;
  RecordingCost cost;  // pairs 0: not measured
};

Result<glm52::LayerRun> make_record_run(const RecordArgs& args);
// A cold replay on this machine's GPU. kUnsupported where there is none.
Result<Recording> record_on_gpu(RecordArgs args);

}  // namespace megartp::cli
