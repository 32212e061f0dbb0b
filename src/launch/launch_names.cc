// Names of launch plans' enumerators, and small look-ups.
#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "launch/launch_plan.h"

namespace megartp {
namespace {

constexpr std::string_view kModes[] = {"serial", "pdl", "dag", "cmp"};
constexpr std::string_view kLevels[] = {"full", "enter-only", "prologue", "prefetch"};
constexpr std::string_view kReasons[] = {"RAW", "WAR", "WAW"};

template <class E>
Result<E> parse(std::string_view name, std::span<const std::string_view> names, std::string_view what) {
  const auto it = std::ranges::find(names, name);
  if (it == names.end())
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("'{}' is no {}; known are {}", name, what, fmt::join(names, ", ")));
  return static_cast<E>(it - names.begin());
}

}  // namespace

std::string_view to_string(LaunchMode mode) { return kModes[static_cast<size_t>(mode)]; }
std::string_view to_string(EdgeLevel level) { return kLevels[static_cast<size_t>(level)]; }
std::string_view to_string(EdgeReason::Kind kind) { return kReasons[static_cast<size_t>(kind)]; }
Result<LaunchMode> parse_launch_mode(std::string_view name) { return parse<LaunchMode>(name, kModes, "launch mode"); }
Result<EdgeLevel> parse_edge_level(std::string_view name) { return parse<EdgeLevel>(name, kLevels, "edge level"); }

Result<std::pair<std::string, EdgeLevel>> parse_edge_setting(std::string_view text) {
  const size_t equals = text.rfind('=');
  const std::string_view name = text.substr(0, equals);
  if (equals == std::string_view::npos || name.find("->") == std::string_view::npos)
    return make_error(ErrorCode::kInvalidArgument,
                      fmt::format("'{}' sets no edge; write it as 'A0->B0.gemm=full'", text));
  return std::pair(std::string(name), MEGARTP_TRY(parse_edge_level(text.substr(equals + 1))));
}

uint64_t LaunchPlan::num_bytes() const {
  uint64_t bytes = 0;
  for (const LaunchKernel& k : kernels) bytes += k.kernel.weight_bytes + k.kernel.other_bytes;
  return bytes;
}

std::string edge_name(const LaunchPlan& plan, const LaunchEdge& edge) {
  return plan.kernels[edge.from].name + "->" + plan.kernels[edge.to].name;
}

std::optional<uint32_t> find_kernel(const LaunchPlan& plan, std::string_view name) {
  const auto it = std::ranges::find(plan.kernels, name, &LaunchKernel::name);
  if (it == plan.kernels.end()) return std::nullopt;
  return static_cast<uint32_t>(it - plan.kernels.begin());
}

}  // namespace megartp
