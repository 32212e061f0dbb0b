// Times launch plans of attention-pre on the GPU, by the protocol of cuda_frame.h.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "backends/cuda_common/cupti.h"
#include "backends/cuda_mega/mega_code.h"
#include "bench/bench_report.h"
#include "bench/cuda_frame.h"
#include "bench/weight_copies.h"
#include "models/glm52/inputs.h"
#include "models/glm52/weights.h"

namespace megartp::bench {

struct CudaTimerOptions {
  uint32_t num_copies = 8;  // of weights and caches
  size_t num_samples = 200;
  size_t num_warm_up = 20;
  bool with_same = true;                  // also with one copy all the time
  bool with_read = true;                  // also a kernel that reads as many bytes
  uint64_t seed = 1;                      // of the inputs
  const cuda::CuptiApi* cupti = nullptr;  // of add_spans; null: cuda::cupti()
  codegen::CompileOptions compile;
  bool is_cooperative = true;  // launches of the persistent kernel
};

class CudaTimer {
 public:
  // `weights` are those of the layer. Without a context that of this machine's first GPU; kUnsupported, with a sentence
  // that says what is missing, where there is none.
  static Result<std::unique_ptr<CudaTimer>> create(const glm52::Config& config, const glm52::Options& options,
                                                   int64_t layer, glm52::Weights weights,
                                                   const CudaTimerOptions& timer_options,
                                                   std::shared_ptr<const cuda::Context> context = nullptr);

  const OpGraph& graph() const { return graph_; }
  // Plans, compiles, binds and times. Errors name the case.
  Result<BenchRow> time(const BenchCase& c);
  // The plan alone, as time() makes it.
  Result<LaunchPlan> plan(const BenchCase& c) const;
  // Median of the cold times only.
  Result<double> quick_us(const BenchCase& c);
  // Fills `span` and `traced` of the rows, which are those of the cases: each case is prepared anew while CUPTI
  // records. Call it last: a process that has traced once is not as it was. kUnsupported without CUPTI; rows that it
  // could not time stay without a span.
  Status add_spans(const std::vector<BenchCase>& cases, cuda::ActivitySource source, std::vector<BenchRow>& rows);
  // Device, frame and offsets; rows stay as they are.
  Status fill_head(BenchReport& report);

 private:
  struct Prepared;
  CudaTimer(const glm52::Config& config, const glm52::Options& options, int64_t layer, glm52::Weights weights,
            const CudaTimerOptions& timer_options);
  Result<const glm52::Inputs*> inputs_of(const Batch& batch);
  Result<Prepared> prepare(const BenchCase& c);
  using MakeExecutable = std::function<Result<std::unique_ptr<cuda::DeviceExecutable>>()>;
  Result<MakeExecutable> graph_maker(const LaunchPlan& plan) const;
  Result<MakeExecutable> mega_maker(const BenchCase& c);
  Result<std::shared_ptr<const cuda_mega::MegaCode>> mega_code(const BenchCase& c);
  Result<std::vector<double>> time_cold(const Prepared& p);
  Status add_span(const cuda::CuptiApi& api, const BenchCase& c, cuda::ActivitySource source, BenchRow& row);
  Status check_runs(const Prepared& p) const;
  Result<BenchRow> time_prepared(const BenchCase& c, const Prepared& p);

  glm52::Config config_;
  glm52::Options options_;
  OpGraph graph_;
  glm52::Weights weights_;
  CudaTimerOptions timer_options_;
  std::shared_ptr<const cuda::Context> context_;
  std::unique_ptr<CudaFrame> frame_;
  std::unique_ptr<WeightCopies> copies_;
  std::map<std::tuple<int64_t, int64_t, int64_t>, glm52::Inputs> inputs_;
  std::map<uint64_t, double> read_us_;                    // by bytes
  std::shared_ptr<const cuda_mega::MegaCode> mega_code_;  // of all ops of the graph
};

}  // namespace megartp::bench
