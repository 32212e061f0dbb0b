#include "backends/cuda_graph/stream_plan.h"

#include <optional>

#include <fmt/format.h>

namespace megartp::cuda_graph {
namespace {

using launch::EdgeKind;

// The predecessor whose stream the kernel can go on with.
std::optional<uint32_t> predecessor_to_follow(const std::vector<const LaunchEdge*>& in, const StreamPlan& plan,
                                              const std::vector<uint32_t>& last) {
  const auto is_last = [&](uint32_t kernel) { return last[plan.steps[kernel].stream] == kernel; };
  for (const LaunchEdge* e : in)
    if (e->kind == EdgeKind::kFull && is_last(e->from)) return e->from;
  if (in.size() == 1 && is_last(in.front()->from)) return in.front()->from;
  return std::nullopt;
}

}  // namespace

Result<StreamPlan> plan_streams(uint32_t num_kernels, const std::vector<LaunchEdge>& edges) {
  std::vector<std::vector<const LaunchEdge*>> in(num_kernels);
  for (const LaunchEdge& e : edges) {
    if (e.kind != EdgeKind::kFull && e.kind != EdgeKind::kProgrammatic)
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("edges of kind {} cannot be captured from streams", launch::to_string(e.kind)));
    in[e.to].push_back(&e);
  }
  StreamPlan plan;
  plan.steps.resize(num_kernels);
  std::vector<uint32_t> last;  // kernel of each stream
  for (uint32_t k = 0; k < num_kernels; ++k) {
    StreamStep& step = plan.steps[k];
    step.kernel = k;
    const std::optional<uint32_t> followed = predecessor_to_follow(in[k], plan, last);
    step.stream = followed ? plan.steps[*followed].stream : plan.num_streams++;
    if (followed) {
      last[step.stream] = k;
    } else {
      last.push_back(k);
      step.forks = in[k].empty();
    }
    for (const LaunchEdge* e : in[k]) {
      if (e->from == followed) {
        step.follows_programmatically = e->kind == EdgeKind::kProgrammatic;
      } else if (e->kind == EdgeKind::kFull) {
        step.full_waits.push_back(e->from);
        plan.steps[e->from].records_completion = true;
      } else {
        step.programmatic_waits.push_back(e->from);
        plan.steps[e->from].records_trigger = true;
      }
    }
  }
  return plan;
}

}  // namespace megartp::cuda_graph
