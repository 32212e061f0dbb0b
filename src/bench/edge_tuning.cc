#include "bench/edge_tuning.h"

#include <optional>

namespace megartp::bench {
namespace {

constexpr EdgeLevel kLevels[] = {EdgeLevel::kFull, EdgeLevel::kEnterOnly, EdgeLevel::kPrologue, EdgeLevel::kPrefetch};

class Tuner {
 public:
  Tuner(const MeasureLevels& measure, double min_gain) : measure_(measure), min_gain_(min_gain) {}

  Status start(const LaunchPlan& plan) {
    for (const LaunchEdge& e : plan.edges) result_.levels[edge_name(plan, e)] = e.level;
    result_.start_us = result_.us = MEGARTP_TRY(measure_(result_.levels));
    return {};
  }

  // Whether the edge has another level now.
  Result<bool> tune(const std::string& edge) {
    const EdgeLevel before = result_.levels.at(edge);
    std::optional<size_t> best;
    for (const EdgeLevel level : kLevels) {
      if (level == before) continue;
      EdgeLevels levels = result_.levels;
      levels[edge] = level;
      TuningTrial trial{edge, level, 0, false, false};
      const auto us = measure_(levels);
      if (us) {
        trial.us = *us;
      } else if (us.error().code == ErrorCode::kInvalidArgument) {
        trial.is_refused = true;
      } else {
        return tl::unexpected(us.error());
      }
      result_.trials.push_back(trial);
      const bool is_better = !trial.is_refused && trial.us < result_.us * (1 - min_gain_);
      if (is_better && (!best || trial.us < result_.trials[*best].us)) best = result_.trials.size() - 1;
    }
    if (!best) return false;
    TuningTrial& kept = result_.trials[*best];
    kept.is_kept = true;
    result_.levels[edge] = kept.level;
    result_.us = kept.us;
    return true;
  }

  TuningResult result() && { return std::move(result_); }

 private:
  const MeasureLevels& measure_;
  double min_gain_;
  TuningResult result_;
};

}  // namespace

Result<TuningResult> tune_edges(const LaunchPlan& plan, const MeasureLevels& measure, double min_gain, int max_rounds) {
  Tuner tuner(measure, min_gain);
  MEGARTP_TRY(tuner.start(plan));
  for (int round = 0; round < max_rounds; ++round) {
    bool changed = false;
    for (const LaunchEdge& e : plan.edges) changed |= MEGARTP_TRY(tuner.tune(edge_name(plan, e)));
    if (!changed) break;
  }
  return std::move(tuner).result();
}

}  // namespace megartp::bench
