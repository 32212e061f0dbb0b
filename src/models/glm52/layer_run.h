// One attention-pre layer made runnable on any executable: graph, inputs and weights bound, outputs collected and
// compared.
//
// Used by the command-line tool, the conformance tests and the benchmarks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "backends/backend.h"
#include "models/glm52/buffer.h"
#include "models/glm52/glm52.h"
#include "models/glm52/inputs.h"
#include "models/glm52/weights.h"

namespace megartp::glm52 {

struct LayerRun {
  Config config;
  Options options;
  int64_t layer = 0;
  OpGraph graph{"attention_pre"};
  Inputs inputs;
  Weights weights;
};
// Checks inputs and that the weights are those of this layer.
Result<LayerRun> make_layer_run(const Config& config, const Options& options, int64_t layer, Inputs inputs,
                                Weights weights);

using TensorMap = std::map<std::string, Buffer, std::less<>>;

// An executable with memory of its own for everything that it writes: states start as copies of the inputs, so that
// several executions of one LayerRun do not disturb each other.
class LayerExecution {
 public:
  static Result<LayerExecution> create(const LayerRun& run, std::unique_ptr<Executable> executable);
  // One run. With `poison`, workspace and outputs are filled with NaN bytes before and states are restored.
  Result<RunStats> run(bool poison = true);
  // Copies of every tensor that an op writes: outputs, states, intermediates.
  TensorMap collect() const;
  Executable& executable() { return *executable_; }

 private:
  LayerExecution() = default;
  const LayerRun* run_ = nullptr;
  std::unique_ptr<Executable> executable_;
  TensorMap owned_;  // outputs and states
};

struct TensorDiff {
  std::string op;
  std::string tensor;
  bool is_output = false;  // of the graph (outputs and states), not an intermediate
  double calc_diff = 0;    // 1 - 2<x,y>/(|x|^2+|y|^2); infinity when a value is missing (NaN)
};
// Compares what two executions of the same LayerRun wrote, op by op. FP8 tensors are compared together with their
// scales, caches by the rows that the layer writes (all other bytes must be equal to the input's).
Result<std::vector<TensorDiff>> compare(const LayerRun& run, const TensorMap& got, const TensorMap& want);

// The same comparison one op at a time: every op's reference runs on what `got` holds for its inputs, so that an FP8
// code that rounds the other way upstream is not counted against the ops behind it.
Result<std::vector<TensorDiff>> compare_ops(const LayerRun& run, const TensorMap& got);

// Values as floats.
std::vector<float> to_floats(const Buffer& buffer);
double calc_diff(const std::vector<float>& x, const std::vector<float>& y);

// Least bytes that each op must move (weights, scales, activations, caches), by op name: for GB/s figures.
std::map<std::string, uint64_t, std::less<>> op_bytes(const LayerRun& run);

}  // namespace megartp::glm52
