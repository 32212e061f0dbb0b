#include "verify/sass/sass_flow.h"

#include <algorithm>

namespace megartp::sass {
namespace {

constexpr uint32_t kNumReconvergenceRegisters = 16;

int64_t byte_offset(uint32_t instruction) { return int64_t{instruction} * kInstructionBytes; }

}  // namespace

FlowGraph::FlowGraph(const CubinKernel& kernel)
    : entry_(kernel.entry / kInstructionBytes), reconvergence_(kNumReconvergenceRegisters) {
  code_.reserve(kernel.code.size());
  for (const auto& [lo, hi] : kernel.code) code_.emplace_back(lo, hi);
  for (uint32_t i = 0; i < num_instructions(); ++i)
    if (code_[i].kind() == OpKind::kPushReconverge)
      reconvergence_[code_[i].field(16, 4)].push_back(*code_[i].target(byte_offset(i)));
  for (auto& targets : reconvergence_) {
    std::sort(targets.begin(), targets.end());
    targets.erase(std::unique(targets.begin(), targets.end()), targets.end());
  }
  std::vector<uint32_t> out;
  next_.begin.push_back(0);
  for (uint32_t node = 0; node < num_nodes(); ++node) {
    out.clear();
    if (node < num_instructions())
      collect_instruction(kernel, node, out);
    else
      collect_hub(kernel, static_cast<Hub>(node - num_instructions()), out);
    std::sort(out.begin(), out.end());
    out.erase(std::unique(out.begin(), out.end()), out.end());
    next_.nodes.insert(next_.nodes.end(), out.begin(), out.end());
    next_.begin.push_back(static_cast<uint32_t>(next_.nodes.size()));
  }
  reverse_edges();
  walk();
  // Padding behind the last exit runs off the end, but nothing gets there.
  const auto is_dead = [this](uint32_t i) { return !reachable_[i]; };
  std::erase_if(unknown_flow_, is_dead);
  std::erase_if(unfollowed_calls_, is_dead);
}

bool FlowGraph::add_target(std::vector<uint32_t>& out, int64_t offset) const {
  if (offset < 0 || offset % kInstructionBytes != 0 || offset / kInstructionBytes >= num_instructions()) return false;
  out.push_back(static_cast<uint32_t>(offset / kInstructionBytes));
  return true;
}

void FlowGraph::collect_instruction(const CubinKernel& kernel, uint32_t i, std::vector<uint32_t>& out) {
  const Instruction& in = code_[i];
  const int64_t at = byte_offset(i);
  bool falls_through = true;
  bool is_known = true;
  switch (in.kind()) {
    case OpKind::kExit: falls_through = in.is_conditional(); break;
    case OpKind::kBranch:
      falls_through = in.is_conditional();
      is_known = add_target(out, *in.target(at));
      break;
    case OpKind::kWarpSync:
      if (const auto target = in.target(at)) is_known = add_target(out, *target);
      break;
    case OpKind::kReconverge: collect_reconvergence(i, out); break;
    case OpKind::kIndirectBranch: {
      falls_through = in.is_conditional();
      const auto targets = kernel.branch_targets.find(static_cast<uint32_t>(at));
      is_known = targets != kernel.branch_targets.end() && !targets->second.empty();
      if (is_known)
        for (const uint32_t t : targets->second) is_known = add_target(out, t) && is_known;
      break;
    }
    case OpKind::kReturn:
      falls_through = in.is_conditional();
      out.push_back(hub(kReturns));
      break;
    case OpKind::kCall:
      // The call comes back, to the next instruction: what it did meanwhile arrives there by way of the returns.
      if (const auto target = in.target(at); target && add_target(out, *target)) break;
      unfollowed_calls_.push_back(i);
      out.push_back(hub(kAnyFunction));
      break;
    default:
      // ptxas puts whatever it likes behind a trap.
      if (in.is_trap()) falls_through = in.is_conditional();
      break;
  }
  if (falls_through && !add_target(out, at + kInstructionBytes)) is_known = false;
  if (!is_known) {
    unknown_flow_.push_back(i);
    out.push_back(hub(kAnywhere));
  }
}

// ptxas puts BSYNC right before the place where its BSSY lets the threads meet. Where it does not, the threads may go
// on at any place that a BSSY of the same register named.
void FlowGraph::collect_reconvergence(uint32_t i, std::vector<uint32_t>& out) const {
  const auto& targets = reconvergence_[code_[i].field(16, 4)];
  if (std::binary_search(targets.begin(), targets.end(), byte_offset(i) + kInstructionBytes)) return;
  for (const int64_t t : targets) add_target(out, t);
}

void FlowGraph::collect_hub(const CubinKernel& kernel, Hub h, std::vector<uint32_t>& out) const {
  switch (h) {
    case kReturns:
      for (uint32_t i = 0; i + 1 < num_instructions(); ++i)
        if (code_[i].kind() == OpKind::kCall) out.push_back(i + 1);
      break;
    case kAnyFunction:
      for (const CodeSymbol& f : kernel.functions)
        if (f.offset != kernel.entry) add_target(out, f.offset);
      break;
    case kAnywhere:
      for (uint32_t i = 0; i < num_instructions(); ++i) out.push_back(i);
      break;
    case kNumHubs: break;
  }
}

void FlowGraph::reverse_edges() {
  previous_.begin.assign(num_nodes() + 1, 0);
  for (const uint32_t to : next_.nodes) ++previous_.begin[to + 1];
  for (size_t n = 0; n < num_nodes(); ++n) previous_.begin[n + 1] += previous_.begin[n];
  previous_.nodes.resize(next_.nodes.size());
  std::vector<uint32_t> fill(previous_.begin.begin(), previous_.begin.end() - 1);
  for (uint32_t from = 0; from < num_nodes(); ++from)
    for (const uint32_t to : successors(from)) previous_.nodes[fill[to]++] = from;
}

void FlowGraph::walk() {
  reachable_.assign(num_nodes(), false);
  back_edges_.assign(next_.nodes.size(), false);
  std::vector<bool> is_open(num_nodes(), false);
  struct Step {
    uint32_t node;
    uint32_t edge;
  };
  std::vector<Step> stack{{entry_, next_.begin[entry_]}};
  reachable_[entry_] = is_open[entry_] = true;
  while (!stack.empty()) {
    Step& step = stack.back();
    if (step.edge == next_.begin[step.node + 1]) {
      is_open[step.node] = false;
      order_.push_back(step.node);
      stack.pop_back();
      continue;
    }
    const uint32_t edge = step.edge++;
    const uint32_t to = next_.nodes[edge];
    if (is_open[to]) back_edges_[edge] = true;
    if (reachable_[to]) continue;
    reachable_[to] = is_open[to] = true;
    stack.push_back({to, next_.begin[to]});
  }
  std::reverse(order_.begin(), order_.end());
}

}  // namespace megartp::sass
