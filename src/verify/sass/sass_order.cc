#include "verify/sass/sass_order.h"

#include <algorithm>
#include <ranges>

namespace megartp::sass {
namespace {

constexpr uint8_t kMustBits = kWaited | kPassedBarrier | kPassedMbarrier;

// A condition that threads of one CTA decide differently, and that nothing else has a say in.
bool depends_on_thread_alone(uint8_t flags) {
  return (flags & kFromThread) != 0 && (flags & ~(kFromThread | kFromLaunch)) == 0;
}

uint8_t meet(uint8_t a, uint8_t b) { return static_cast<uint8_t>((a & b & kMustBits) | ((a | b) & ~kMustBits)); }

}  // namespace

bool is_wait(const Instruction& in) { return in.kind() == OpKind::kGridWait && !in.is_guarded(); }

bool writes_shared(const Instruction& in) {
  switch (in.kind()) {
    case OpKind::kSharedStore:
    case OpKind::kGenericStore:
    case OpKind::kGenericAtomic:
    case OpKind::kAsyncCopy: return true;
    default: return false;
  }
}

bool writes_global(const Instruction& in) {
  switch (in.kind()) {
    case OpKind::kGlobalStore:
    case OpKind::kGenericStore:
    case OpKind::kGlobalAtomic:
    case OpKind::kGenericAtomic:
    case OpKind::kSurfaceStore: return true;
    default: return false;
  }
}

OrderAnalysis::OrderAnalysis(const FlowGraph& flow, const Trace& trace)
    : flow_(flow), trace_(trace), counts_(flow.num_instructions(), false) {
  run();
  find_ordering_barriers();
  run();
  some_thread_waits_ = some_thread_waits_before([&](uint32_t i) { return flow_.code()[i].kind() == OpKind::kExit; });
}

bool OrderAnalysis::fences(uint32_t i, bool global) const {
  const Instruction& in = flow_.code()[i];
  if (in.kind() != OpKind::kProxyFence || in.is_guarded()) return false;
  if (in.fences_global_only()) return global;
  if (!global) return true;
  // fence.proxy.async over all spaces is MEMBAR.ALL.GPU and then the same instruction as over shared memory.
  constexpr uint32_t kMaxDistance = 6;
  for (uint32_t back = 1; back <= kMaxDistance && back <= i; ++back) {
    const Instruction& before = flow_.code()[i - back];
    if (before.is_gpu_membar()) return !before.is_guarded();
    if (before.kind() != OpKind::kAlu && before.kind() != OpKind::kCacheControl) return false;
  }
  return false;
}

uint8_t OrderAnalysis::transfer(uint32_t node, uint8_t state) const {
  if (node >= flow_.num_instructions()) return state;
  const Instruction& in = flow_.code()[node];
  const auto clear = [&state](uint8_t bit) { state = static_cast<uint8_t>(state & ~bit); };
  if (in.kind() == OpKind::kGridWait) state |= kMayHaveWaited;
  if (is_wait(in)) state |= kWaited;
  if (in.kind() == OpKind::kGridTrigger) state |= kMayHaveTriggered;
  if (counts_[node]) state |= in.kind() == OpKind::kMbarrier ? kPassedMbarrier : kPassedBarrier;
  if (writes_shared(in)) state |= kMayHoldSharedStore;
  if (writes_global(in)) state |= kMayHoldGlobalStore;
  if (fences(node, false)) clear(kMayHoldSharedStore);
  if (fences(node, true)) clear(kMayHoldGlobalStore);
  return state;
}

void OrderAnalysis::run() {
  // Unreached nodes hold everything that must be and nothing that may be: the neutral element of meet.
  states_.assign(flow_.num_nodes(), kMustBits);
  states_[flow_.entry()] = 0;
  std::vector<bool> is_queued(flow_.num_nodes(), false);
  // Taking nodes in order makes most of them final at the first visit.
  std::vector<uint32_t> work(flow_.order().rbegin(), flow_.order().rend());
  for (const uint32_t n : work) is_queued[n] = true;
  while (!work.empty()) {
    const uint32_t node = work.back();
    work.pop_back();
    is_queued[node] = false;
    const uint8_t out = transfer(node, states_[node]);
    for (const uint32_t s : flow_.successors(node)) {
      const uint8_t both = meet(states_[s], out);
      if (both == states_[s]) continue;
      states_[s] = both;
      if (!is_queued[s]) {
        is_queued[s] = true;
        work.push_back(s);
      }
    }
  }
}

Order OrderAnalysis::order(uint32_t instruction) const {
  const uint8_t s = states_[instruction];
  if ((s & kWaited) != 0) return Order::kAfterWait;
  if ((s & kPassedBarrier) != 0) return Order::kAfterBarrier;
  if ((s & kPassedMbarrier) != 0) return Order::kAfterMbarrier;
  return Order::kBeforeWait;
}

// For every node: does a thread that stands there, or, where threads part by their index, one of them, pass a wait
// before a goal? Loops end, so back edges are left aside. Ways that come to no goal do not count.
bool OrderAnalysis::some_thread_waits_before(const std::function<bool(uint32_t)>& is_goal) const {
  enum Answer : uint8_t { kNoGoal, kUnwaited, kWaits };
  std::vector<uint8_t> answers(flow_.num_nodes(), kNoGoal);
  const auto& order = flow_.order();
  for (const uint32_t node : order | std::views::reverse) {
    const bool is_instruction = node < flow_.num_instructions();
    bool any_yes = false, any_no = false;
    const auto successors = flow_.successors(node);
    for (size_t i = 0; i < successors.size(); ++i) {
      if (flow_.is_back_edge(node, i)) continue;
      any_yes |= answers[successors[i]] == kWaits;
      any_no |= answers[successors[i]] == kUnwaited;
    }
    if (is_instruction && is_goal(node)) any_no = true;
    const bool is_split =
        is_instruction && flow_.code()[node].is_conditional() && depends_on_thread_alone(trace_.condition(node));
    uint8_t answer = any_no && !(is_split && any_yes) ? kUnwaited : any_yes ? kWaits : kNoGoal;
    if (is_instruction && is_wait(flow_.code()[node]) && (any_yes || any_no)) answer = kWaits;
    answers[node] = answer;
  }
  return answers[flow_.entry()] == kWaits;
}

void OrderAnalysis::find_ordering_barriers() {
  const auto& code = flow_.code();
  bool mbarriers_count = false;
  for (uint32_t i = 0; i < flow_.num_instructions(); ++i) {
    const bool signals =
        code[i].is_mbarrier_arrival() || code[i].kind() == OpKind::kTensorLoad || code[i].kind() == OpKind::kBulkCopy;
    mbarriers_count |= signals && flow_.is_reachable(i) && (states_[i] & kMayHaveWaited) != 0;
  }
  // Barriers by number; those whose number is in a register count as each of them, but are not counted on.
  const auto same_barrier = [&](uint32_t i, uint32_t j) {
    return code[i].kind() == code[j].kind() && (code[i].barrier_id() == code[j].barrier_id() || !code[j].barrier_id());
  };
  std::vector<uint32_t> first_of_class;
  std::vector<bool> answer_of_class;
  for (uint32_t i = 0; i < flow_.num_instructions(); ++i) {
    const Instruction& in = code[i];
    if (!flow_.is_reachable(i) || in.is_guarded()) continue;
    if (in.kind() == OpKind::kMbarrier) counts_[i] = mbarriers_count && in.is_mbarrier_wait();
    const bool is_cluster = in.kind() == OpKind::kClusterBarrier;
    if (!(in.kind() == OpKind::kBarrier && in.barrier_id()) && !is_cluster) continue;
    if (!in.barrier_waits()) continue;
    size_t c = 0;
    while (c < first_of_class.size() &&
           !(code[first_of_class[c]].kind() == in.kind() && code[first_of_class[c]].barrier_id() == in.barrier_id()))
      ++c;
    if (c == first_of_class.size()) {
      first_of_class.push_back(i);
      answer_of_class.push_back(some_thread_waits_before([&](uint32_t j) {
        return (code[j].kind() == OpKind::kBarrier || code[j].kind() == OpKind::kClusterBarrier) && same_barrier(i, j);
      }));
    }
    counts_[i] = answer_of_class[c];
  }
}

Path OrderAnalysis::path_without_wait(uint32_t instruction) const {
  std::vector<uint32_t> from(flow_.num_nodes(), UINT32_MAX);
  std::vector<uint32_t> queue{flow_.entry()};
  from[flow_.entry()] = flow_.entry();
  for (size_t at = 0; at < queue.size() && from[instruction] == UINT32_MAX; ++at) {
    const uint32_t node = queue[at];
    if (node < flow_.num_instructions() && is_wait(flow_.code()[node])) continue;
    for (const uint32_t s : flow_.successors(node))
      if (from[s] == UINT32_MAX) {
        from[s] = node;
        queue.push_back(s);
      }
  }
  Path path;
  if (from[instruction] == UINT32_MAX) return path;
  // Hubs are no places: a step through one goes from the instruction before it to the one behind it.
  for (uint32_t node = instruction; node != flow_.entry();) {
    uint32_t previous = from[node];
    while (previous >= flow_.num_instructions()) previous = from[previous];
    if (previous + 1 != node) path.push_back({previous * kInstructionBytes, node * kInstructionBytes});
    node = previous;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

uint32_t OrderAnalysis::unfenced_store_before(uint32_t instruction, bool global) const {
  std::vector<bool> seen(flow_.num_nodes(), false);
  std::vector<uint32_t> queue{instruction};
  for (size_t at = 0; at < queue.size(); ++at) {
    for (const uint32_t p : flow_.predecessors(queue[at])) {
      if (seen[p] || !flow_.is_reachable(p)) continue;
      seen[p] = true;
      if (p < flow_.num_instructions()) {
        if (fences(p, global)) continue;
        if (global ? writes_global(flow_.code()[p]) : writes_shared(flow_.code()[p])) return p;
      }
      queue.push_back(p);
    }
  }
  return UINT32_MAX;
}

}  // namespace megartp::sass
