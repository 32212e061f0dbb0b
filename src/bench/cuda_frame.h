// How GPU work is timed: a delay kernel goes first on the stream, then an event, what is timed, and an event, so that
// the time that the host takes to submit (1 to 4 us, and noise) is not in the figure. Every figure contains what two
// event records cost by themselves: offset().
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "backends/cuda_common/resources.h"
#include "bench/statistics.h"
#include "codegen/compile_kernels.h"

namespace megartp::bench {

// The frame's own kernels: one that does nothing, the delay, reading, and reading that drives out what L2 holds.
std::vector<codegen::KernelRequest> frame_kernels();

class CudaFrame {
 public:
  // Compiles and loads the frame's own kernels. kUnsupported without NVRTC.
  static Result<std::unique_ptr<CudaFrame>> create(std::shared_ptr<const cuda::Context> context);
  ~CudaFrame();

  // Enqueues the work of sample `i` on the stream, and nothing else.
  using Submit = std::function<Status(size_t i, cuda::StreamHandle stream)>;
  // Microseconds of each of `count` samples, behind `warm_up` ones that are thrown away. With `flush_l2` other data of
  // twice L2's size is read before each sample.
  Result<std::vector<double>> time(size_t count, size_t warm_up, const Submit& submit, bool flush_l2 = false);

  Result<Summary> offset(size_t count);  // nothing between the events
  Result<Summary> empty(size_t count);   // a graph of one empty kernel
  // A graph of one kernel that reads so many bytes, from places that rotate over more than `cold_bytes` in all.
  Result<Summary> read(uint64_t num_bytes, uint64_t cold_bytes, size_t count);

  const cuda::Context& context() const;
  cuda::StreamHandle stream() const;

 private:
  struct State;
  explicit CudaFrame(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace megartp::bench
