#include "verify/sass/sass_trace.h"

#include <algorithm>
#include <memory>

#include "verify/sass/sass_values.h"

namespace megartp::sass {
namespace {

constexpr uint32_t kNone = UINT32_MAX;
// Every block keeps about 16 KiB of register values; real kernels have hundreds of blocks.
constexpr size_t kMaxBlocks = 8192;
constexpr size_t kMaxVisitsPerBlock = 64;

}  // namespace

const AddressBase& Trace::base(uint32_t instruction) const {
  static const AddressBase kUnknownBase{{}, true};
  const uint32_t at = base_of_[instruction];
  return at == kNone ? kUnknownBase : bases_[at];
}

Trace::Trace(const CubinKernel& kernel, const FlowGraph& flow, std::span<const uint32_t> scalars)
    : base_of_(flow.num_instructions(), kNone), conditions_(flow.num_instructions(), kFromUnknown) {
  if (!flow.unknown_flow().empty()) return;
  for (const uint32_t call : flow.unfollowed_calls())
    if (!flow.code()[call].is_indirect()) return;  // leaves the section
  // A block begins where paths meet or part.
  std::vector<bool> is_leader(flow.num_nodes(), false);
  is_leader[flow.entry()] = true;
  size_t num_blocks = 0;
  for (uint32_t n = 0; n < flow.num_nodes(); ++n) {
    if (!flow.is_reachable(n)) continue;
    const auto before = flow.predecessors(n);
    const auto ways_in = std::count_if(before.begin(), before.end(), [&](uint32_t p) { return flow.is_reachable(p); });
    if (n >= flow.num_instructions() || ways_in > 1) is_leader[n] = true;
    if (flow.successors(n).size() > 1 || n >= flow.num_instructions())
      for (const uint32_t s : flow.successors(n)) is_leader[s] = true;
  }
  for (const bool leads : is_leader) num_blocks += leads ? 1 : 0;
  if (num_blocks > kMaxBlocks) return;

  const ParamBlock params(kernel, scalars);
  std::vector<std::unique_ptr<Registers>> entry_state(flow.num_nodes());
  std::vector<bool> is_queued(flow.num_nodes(), false);
  std::vector<uint32_t> work{flow.entry()};
  entry_state[flow.entry()] = std::make_unique<Registers>();
  const auto run_block = [&](uint32_t leader, const auto& visit) {
    auto state = std::make_unique<Registers>(*entry_state[leader]);
    uint32_t node = leader;
    while (true) {
      if (node < flow.num_instructions()) {
        visit(node, *state);
        execute(flow.code()[node], params, *state);
      }
      const auto next = flow.successors(node);
      if (next.size() == 1 && !is_leader[next[0]]) {
        node = next[0];
        continue;
      }
      return std::pair(std::move(state), node);
    }
  };
  size_t visits = 0;
  while (!work.empty()) {
    if (++visits > kMaxVisitsPerBlock * num_blocks) return;
    const uint32_t leader = work.back();
    work.pop_back();
    is_queued[leader] = false;
    const auto [state, last] = run_block(leader, [](uint32_t, const Registers&) {});
    for (const uint32_t s : flow.successors(last)) {
      bool changed = true;
      if (entry_state[s] == nullptr)
        entry_state[s] = std::make_unique<Registers>(*state);
      else
        changed = entry_state[s]->join_with(*state);
      if (changed && !is_queued[s]) {
        is_queued[s] = true;
        work.push_back(s);
      }
    }
  }
  for (uint32_t leader = 0; leader < flow.num_nodes(); ++leader) {
    if (entry_state[leader] == nullptr) continue;
    run_block(leader, [&](uint32_t node, const Registers& r) {
      const Instruction& in = flow.code()[node];
      conditions_[node] = condition_flags(in, r);
      if (const auto access = in.global_access()) {
        base_of_[node] = static_cast<uint32_t>(bases_.size());
        bases_.push_back(resolve_base(in, *access, r));
      }
    });
  }
  is_complete_ = true;
}

}  // namespace megartp::sass
