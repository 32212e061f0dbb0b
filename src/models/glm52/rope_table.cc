// The cos/sin table: frequencies in double, rounded to fp32; angles p * theta in fp32; cosine and sine of that angle in
// double.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/parallel.h"
#include "models/glm52/inputs.h"

namespace megartp::glm52 {
namespace {

// YaRN: slow frequencies (few turns within the original context) are divided by the factor, fast ones stay, with a
// linear ramp of the frequency's index between the two.
std::vector<float> frequencies(const Config& c) {
  const auto rope = static_cast<double>(c.qk_rope_head_dim);
  const int64_t half = c.qk_rope_head_dim / 2;
  // The index whose frequency makes `turns` full turns over the original context.
  const auto index_of_turns = [&](double turns) {
    return rope * std::log(c.yarn_original_max_position / (turns * 2 * std::numbers::pi)) /
           (2 * std::log(c.rope_theta));
  };
  const double low = std::max(std::floor(index_of_turns(c.yarn_beta_fast)), 0.0);
  double high = std::min(std::ceil(index_of_turns(c.yarn_beta_slow)), rope - 1);
  if (high == low) high += 0.001;
  std::vector<float> theta;
  for (int64_t i = 0; i < half; ++i) {
    const double plain = std::pow(c.rope_theta, -2.0 * static_cast<double>(i) / rope);
    const double ramp = c.yarn_factor == 1 ? 0 : std::clamp((static_cast<double>(i) - low) / (high - low), 0.0, 1.0);
    theta.push_back(static_cast<float>(plain * (1 - ramp) + plain / c.yarn_factor * ramp));
  }
  return theta;
}

double magnitude(const Config& c) {
  const auto m = [&](double scale) { return 0.1 * scale * std::log(c.yarn_factor) + 1; };
  return c.yarn_factor == 1 ? 1 : m(c.yarn_mscale) / m(c.yarn_mscale_all_dim);
}

}  // namespace

Buffer make_cos_sin(const Config& config, int64_t num_positions) {
  const int64_t rope = config.qk_rope_head_dim;
  const int64_t half = rope / 2;
  const std::vector<float> theta = frequencies(config);
  const double scale = magnitude(config);
  Buffer table = Buffer::make(DType::kF32, {num_positions, rope});
  auto* values = table.as<float>();
  parallel_for(static_cast<uint64_t>(num_positions), 1024, [&](uint64_t begin, uint64_t end) {
    for (uint64_t p = begin; p < end; ++p) {
      float* row = values + p * static_cast<uint64_t>(rope);
      for (int64_t i = 0; i < half; ++i) {
        const auto angle = static_cast<double>(static_cast<float>(p) * theta[static_cast<size_t>(i)]);
        row[i] = static_cast<float>(scale * std::cos(angle));
        row[half + i] = static_cast<float>(scale * std::sin(angle));
      }
    }
  });
  return table;
}

}  // namespace megartp::glm52
