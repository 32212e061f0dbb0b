// MegaExecutable: a kernel plan run by the persistent kernel, one node of a CUDA graph.
//
//   auto code = MEGARTP_TRY(MegaCode::load(context, image->opcodes));
//   auto exec = MEGARTP_TRY(MegaExecutable::create(plan, code));
//
// cuda_common/device_executable.h has the rest. Records are written once; new addresses change the kernel's parameters
// only. After a run that gave up, runs do nothing until finish() has reported it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "abi/mega.h"
#include "backends/cuda_common/device_executable.h"
#include "backends/cuda_mega/mega_code.h"
#include "backends/cuda_mega/mega_image.h"

namespace megartp::cuda_mega {

// With a fault that a test has asked for, there is no need to wait long.
inline constexpr std::chrono::milliseconds kDeadline{2000};
inline constexpr std::chrono::milliseconds kInjectedDeadline{1000};

struct MegaRunOptions {
  std::chrono::milliseconds deadline{0};  // of one wait on the device; 0: kDeadline, or kInjectedDeadline
  // Fault injection: this task's signals never arrive; its worker's publisher never sees this one's results.
  uint32_t lose_signals_of = abi::kNoTask;
  uint32_t lose_results_of = abi::kNoTask;
  // A cooperative launch starts when all CTAs find a place, whatever else runs; an ordinary one rests on having the
  // SMs to itself.
  bool is_cooperative = true;
  bool is_empty = false;    // no instruction runs: for timing the frame by itself
  bool with_trace = false;  // code compiled with -DMEGARTP_TRACE=1 writes trace()
};

class MegaExecutable final : public cuda::DeviceExecutable {
 public:
  // Proves the plan, allocates, writes the records. kOutOfResources when more workers than are resident at once.
  static Result<std::unique_ptr<MegaExecutable>> create(std::shared_ptr<const KernelPlan> plan,
                                                        std::shared_ptr<const MegaCode> code,
                                                        const MegaRunOptions& options = {});
  ~MegaExecutable() override;

  Status prepare() override;
  Status run(cuda::StreamHandle stream) override;
  // The same as an ordinary launch on the stream. Needs a prepare() before.
  Status launch_on_stream(cuda::StreamHandle stream);
  Status finish() override;
  const FaultDump* fault() const override { return fault_.records.empty() ? nullptr : &fault_; }

  // [workers, depth] of the last run, after it is complete.
  Result<std::vector<abi::MegaTraceRecord>> trace() const;

  const KernelPlan& plan() const { return *plan_; }
  const MegaCode& code() const { return *code_; }
  const abi::MegaParams& params() const { return params_; }
  cuda::GraphHandle graph() const { return graph_.get(); }  // null before prepare()

 private:
  MegaExecutable(std::shared_ptr<const KernelPlan> plan, std::shared_ptr<const MegaCode> code,
                 const MegaRunOptions& options, MegaImage image, cuda::DeviceTensors tensors);
  Status allocate();
  Status reset();
  Status refresh();
  Status build_graph();
  cuda::KernelNodeParams node_params();

  std::shared_ptr<const KernelPlan> plan_;
  std::shared_ptr<const MegaCode> code_;
  MegaRunOptions options_;
  MegaImage image_;
  // Counters, epochs, fault records, the stop flag: zero before the first run.
  cuda::DeviceBuffer state_;
  size_t epochs_at_ = 0, faults_at_ = 0, stop_at_ = 0;
  cuda::DeviceBuffer records_, trace_;
  abi::MegaParams params_{};
  void* params_pointer_ = &params_;
  cuda::Graph graph_;
  cuda::NodeHandle node_ = nullptr;
  cuda::GraphExec exec_;
  FaultDump fault_;
};

}  // namespace megartp::cuda_mega
