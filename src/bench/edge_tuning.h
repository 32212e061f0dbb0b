// Chooses the level of each edge of a launch plan by measurement.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launch/launch_plan.h"

namespace megartp::bench {

using EdgeLevels = std::map<std::string, EdgeLevel, std::less<>>;
// Median microseconds of the plan with these levels.
using MeasureLevels = std::function<Result<double>(const EdgeLevels& levels)>;

struct TuningTrial {
  std::string edge;
  EdgeLevel level = EdgeLevel::kFull;
  double us = 0;
  bool is_refused = false;  // the prover does not have it
  bool is_kept = false;
};
struct TuningResult {
  EdgeLevels levels;  // of every edge
  double start_us = 0, us = 0;
  std::vector<TuningTrial> trials;
};

// Starts from the levels of `plan`. Edge by edge it tries the other levels and keeps the best one if that is faster
// than the best so far by more than `min_gain` (a share of it: noise must not count), until a round over all edges
// changes nothing or `max_rounds` is reached. Trials that fail with kInvalidArgument are counted as refused; other
// errors end the tuning.
Result<TuningResult> tune_edges(const LaunchPlan& plan, const MeasureLevels& measure, double min_gain = 0.003,
                                int max_rounds = 2);

}  // namespace megartp::bench
