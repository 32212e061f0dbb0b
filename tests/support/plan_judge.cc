#include "support/plan_judge.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <unordered_set>
#include <vector>

#include <fmt/format.h>

#include "ops/op_family.h"

namespace megartp::test {
namespace {

constexpr uint32_t kWhenOver = 0xffffffffU;

// A node is a task, or (num_tasks + j) what the last arriver of group j does.
struct NodeAccess {
  uint32_t tensor = 0;
  Box box;
  bool is_write = false;
  bool is_scatter = false;
  uint32_t publication = kWhenOver;
};

// Of a node that must have come so far before another one may start.
struct Before {
  uint32_t node = 0;
  uint32_t publication = 0;
};

Box whole(const PlanTensor& t) {
  Box b;
  for (const int64_t d : t.dims) b.end[b.rank++] = static_cast<int32_t>(d);
  return b;
}

class Judge {
 public:
  explicit Judge(const KernelPlan& plan) : plan_(plan) {
    where_.resize(plan.num_tasks);
    for (uint32_t w = 0; w < plan.num_workers; ++w)
      for (uint32_t s = 0; s < plan.queue_depth; ++s)
        if (const abi::Instruction& i = plan.instruction(w, s); i.opcode != abi::kOpcodeNoOp) {
          where_[i.task_id] = {w, s};
          if (i.join_counter != abi::kNoJoin) members_[i.join_counter].push_back(i.task_id);
        }
    for (auto& [j, tasks] : members_) std::ranges::sort(tasks);
    accesses_.resize(plan.num_tasks + plan.join_counts.size());
    last_publication_.assign(plan.operand_rows.size(), 0);
    collect();
    find_conflicts();
    sums_.assign(plan.events.size(), 0);
    std::set<uint32_t> seen;
    for (uint32_t t = 0; t < plan.num_tasks; ++t) {
      const abi::Instruction& i = instruction(t);
      if (i.join_counter != abi::kNoJoin && !seen.insert(i.join_counter).second) continue;
      for (uint32_t s = 0; s < abi::num_signals(i); ++s) sums_[i.signals[s].event] += abi::increment(i.signals[s]);
    }
  }

  Judgement run() {
    check_values();
    // Where the sums differ from the totals, run r starts with counters that are off by r times the difference.
    uint32_t most = 0;
    for (const PlanEvent& e : plan_.events) most = std::max(most, e.total);
    bool drifts = false;
    for (size_t e = 0; e < sums_.size(); ++e) drifts = drifts || sums_[e] != plan_.events[e].total;
    for (uint32_t r = 0; r <= (drifts ? most + 1 : 0) && !out_.is_harmful; ++r) explore(r);
    return out_;
  }

 private:
  struct Position {
    uint32_t slot = 0;
    uint32_t step = 0;  // 0: not started; then 1 + publications sent; members: 1 started, then 2 + those of the group
  };
  using State = std::vector<Position>;

  const abi::Instruction& instruction(uint32_t task) const {
    return plan_.instruction(where_[task].first, where_[task].second);
  }
  void harm(std::string why) {
    if (!out_.is_harmful) out_.why = std::move(why);
    out_.is_harmful = true;
  }

  // --- what nodes touch
  void collect() {
    std::vector<std::array<OperandType, abi::kOperandSlots>> operands(plan_.operand_rows.size());
    std::vector<std::set<uint32_t>> named(plan_.operand_rows.size());
    for (size_t r = 0; r < operands.size(); ++r)
      for (uint32_t s = 0; s < abi::kOperandSlots; ++s)
        if (const uint32_t t = plan_.operand_rows[r].tensors[s]; t != kInvalidId)
          operands[r][s] = {true, plan_.tensors[t].dtype, plan_.tensors[t].dims};
    for (uint32_t t = 0; t < plan_.num_tasks; ++t) {
      const abi::Instruction& i = instruction(t);
      if (i.opcode == abi::kOpcodeRelay) continue;
      InstructionRegions r;
      find_op_family_by_opcode(i.opcode)->regions({i, plan_.specs[i.spec_id].words, operands[i.operand_row]}, r);
      const auto add = [&](const std::vector<Access>& list, bool is_write, uint32_t node) {
        for (const Access& a : list) {
          const uint32_t tensor = plan_.operand_rows[i.operand_row].tensors[a.tensor];
          named[i.operand_row].insert(tensor);
          accesses_[node].push_back({tensor, a.box, is_write, a.scatter, is_write ? a.publication : kWhenOver});
          if (is_write)
            last_publication_[i.operand_row] = std::max<uint32_t>(last_publication_[i.operand_row], a.publication);
        }
      };
      add(r.reads, false, t);
      add(r.writes, true, t);
      if (i.join_counter == abi::kNoJoin || members_[i.join_counter].back() != t) continue;
      add(r.final_reads, false, plan_.num_tasks + i.join_counter);
      add(r.final_writes, true, plan_.num_tasks + i.join_counter);
    }
    for (uint32_t t = 0; t < plan_.num_tasks; ++t) {
      const abi::Instruction& i = instruction(t);
      if (i.opcode == abi::kOpcodeRelay) continue;
      for (const uint32_t tensor : plan_.operand_rows[i.operand_row].tensors)
        if (tensor != kInvalidId && !named[i.operand_row].contains(tensor))
          accesses_[t].push_back({tensor, whole(plan_.tensors[tensor]), false, false, kWhenOver});
    }
  }

  // Bytes of the workspace.
  std::set<uint64_t> bytes_of(const NodeAccess& a) const {
    const PlanTensor& t = plan_.tensors[a.tensor];
    const uint64_t element = size_in_bytes(t.dtype);
    std::set<uint64_t> out;
    std::array<int32_t, kMaxRank> c = a.box.begin;
    for (uint32_t d = 0; d < a.box.rank; ++d)
      if (a.box.begin[d] >= a.box.end[d]) return out;
    while (true) {
      uint64_t idx = 0;
      for (uint32_t d = 0; d < a.box.rank; ++d)
        idx = idx * static_cast<uint64_t>(t.dims[d]) + static_cast<uint64_t>(c[d]);
      for (uint64_t b = 0; b < element; ++b) out.insert(t.arena_offset + idx * element + b);
      uint32_t d = a.box.rank;
      while (d-- > 0) {
        if (++c[d] < a.box.end[d]) break;
        c[d] = a.box.begin[d];
      }
      if (d == ~uint32_t{0}) return out;
    }
  }
  bool may_share(uint32_t a, uint32_t b) const {
    const PlanTensor& x = plan_.tensors[a];
    const PlanTensor& y = plan_.tensors[b];
    return x.arena_offset != kExternal && y.arena_offset != kExternal &&
           x.arena_offset < y.arena_offset + y.num_bytes && y.arena_offset < x.arena_offset + x.num_bytes;
  }
  bool overlap(const NodeAccess& a, const NodeAccess& b) const {
    if (a.tensor == b.tensor) return a.box.overlaps(b.box);
    if (!may_share(a.tensor, b.tensor)) return false;
    const std::set<uint64_t> y = bytes_of(b);
    return std::ranges::any_of(bytes_of(a), [&](uint64_t byte) { return y.contains(byte); });
  }

  uint32_t key(uint32_t node) const {
    return node < plan_.num_tasks ? 2 * node : 2 * members_.at(node - plan_.num_tasks).back() + 1;
  }
  uint32_t row(uint32_t node) const {
    return instruction(node < plan_.num_tasks ? node : members_.at(node - plan_.num_tasks)[0]).operand_row;
  }
  std::vector<uint32_t> in_program_order() const {
    std::vector<uint32_t> nodes;
    for (uint32_t n = 0; n < accesses_.size(); ++n)
      if (n < plan_.num_tasks || members_.contains(n - plan_.num_tasks)) nodes.push_back(n);
    std::ranges::sort(nodes, {}, [&](uint32_t n) { return key(n); });
    return nodes;
  }

  void find_conflicts() {
    before_.resize(accesses_.size());
    const std::vector<uint32_t> nodes = in_program_order();
    for (size_t y = 0; y < nodes.size(); ++y) {
      for (size_t x = 0; x < y; ++x)
        for (const NodeAccess& a : accesses_[nodes[x]])
          for (const NodeAccess& b : accesses_[nodes[y]]) {
            if (!a.is_write && !b.is_write) continue;
            if (a.is_scatter && b.is_scatter && row(nodes[x]) == row(nodes[y])) continue;
            if (overlap(a, b)) before_[nodes[y]].push_back({nodes[x], a.publication});
          }
      for (const NodeAccess& a : accesses_[nodes[y]])
        for (const NodeAccess& b : accesses_[nodes[y]])
          if (a.is_write && a.tensor != b.tensor && overlap(a, b))
            harm(fmt::format("node {} reads and writes the same bytes through two tensors", nodes[y]));
    }
  }

  // Values in program order: every byte of the workspace that is read was last written through the same tensor.
  void check_values() {
    std::map<uint64_t, uint32_t> owner;
    for (const uint32_t n : in_program_order()) {
      for (const NodeAccess& a : accesses_[n]) {
        if (a.is_write || plan_.tensors[a.tensor].arena_offset == kExternal) continue;
        for (const uint64_t byte : bytes_of(a))
          if (const auto it = owner.find(byte); it == owner.end() || it->second != a.tensor)
            return harm(fmt::format("node {} reads byte {} of another tensor or of none", n, byte));
      }
      for (const NodeAccess& a : accesses_[n])
        if (a.is_write && plan_.tensors[a.tensor].arena_offset != kExternal)
          for (const uint64_t byte : bytes_of(a)) owner[byte] = a.tensor;
    }
  }

  // --- interleavings
  bool is_over(const State& s, uint32_t task) const { return s[where_[task].first].slot > where_[task].second; }
  // Steps of a task that has begun and is not over; 0 otherwise.
  uint32_t step_of(const State& s, uint32_t task) const {
    const Position& p = s[where_[task].first];
    return p.slot == where_[task].second ? p.step : 0;
  }
  bool has_arrived(const State& s, uint32_t task) const { return is_over(s, task) || step_of(s, task) >= 2; }
  bool have_all_arrived(const State& s, uint32_t group) const {
    const auto& m = members_.at(group);
    return m.size() == plan_.join_counts[group] &&
           std::ranges::all_of(m, [&](uint32_t t) { return has_arrived(s, t); });
  }
  // Whether the node has sent this publication (kWhenOver: and is over).
  bool has_sent(const State& s, uint32_t node, uint32_t publication) const {
    const uint32_t last = last_publication_[row(node)];
    if (node < plan_.num_tasks) {
      if (instruction(node).join_counter != abi::kNoJoin) return has_arrived(s, node);
      return is_over(s, node) || (publication < last && step_of(s, node) >= publication + 2);
    }
    if (!have_all_arrived(s, node - plan_.num_tasks)) return false;
    for (const uint32_t t : members_.at(node - plan_.num_tasks))
      if (const uint32_t step = step_of(s, t); step >= 2) return publication < last && step >= publication + 3;
    return true;
  }
  uint64_t counter(const State& s, uint32_t event) const {
    uint64_t sum = 0;
    const auto add = [&](uint32_t node, const abi::Instruction& i) {
      for (uint32_t k = 0; k < abi::num_signals(i); ++k)
        if (i.signals[k].event == event && has_sent(s, node, abi::publication(i.signals[k])))
          sum += abi::increment(i.signals[k]);
    };
    for (uint32_t t = 0; t < plan_.num_tasks; ++t)
      if (instruction(t).join_counter == abi::kNoJoin) add(t, instruction(t));
    for (const auto& [j, tasks] : members_) add(plan_.num_tasks + j, instruction(tasks[0]));
    return sum;
  }
  void check_start(const State& s, uint32_t node) {
    for (const Before& b : before_[node])
      if (!has_sent(s, b.node, b.publication))
        return harm(fmt::format("node {} can start before node {} is through", node, b.node));
  }

  // The state after the worker's next step; false: it has none.
  bool step(State& s, uint32_t w, uint64_t run) {
    Position& p = s[w];
    while (p.slot < plan_.queue_depth && plan_.instruction(w, p.slot).opcode == abi::kOpcodeNoOp) ++p.slot;
    if (p.slot == plan_.queue_depth) return false;
    const abi::Instruction& i = plan_.instruction(w, p.slot);
    const uint32_t last = last_publication_[i.operand_row];
    const bool joins = i.join_counter != abi::kNoJoin;
    if (p.step == 0) {
      for (uint32_t k = 0; k < abi::num_waits(i); ++k) {
        const uint32_t e = i.waits[k].event;
        // Counters hold what earlier runs added; thresholds count what they should have.
        if (counter(s, e) + run * sums_[e] < i.waits[k].threshold + run * plan_.events[e].total) return false;
      }
      check_start(s, i.task_id);
      p.step = 1;
      return true;
    }
    if (joins && p.step == 1) {
      p.step = 2;
      if (have_all_arrived(s, i.join_counter)) {
        check_start(s, plan_.num_tasks + i.join_counter);
      } else {
        p = {p.slot + 1, 0};
      }
      return true;
    }
    if (p.step - (joins ? 2 : 1) < last) {
      ++p.step;
    } else {
      p = {p.slot + 1, 0};
    }
    return true;
  }

  static std::string encode(const State& s) {
    std::string out;
    for (const Position& p : s) out += fmt::format("{},{};", p.slot, p.step);
    return out;
  }

  void explore(uint64_t run) {
    std::unordered_set<std::string> seen;
    std::vector<State> todo{State(plan_.num_workers)};
    while (!todo.empty() && !out_.is_harmful) {
      const State s = std::move(todo.back());
      todo.pop_back();
      bool goes_on = false;
      bool is_end = true;
      for (uint32_t w = 0; w < plan_.num_workers; ++w) {
        State next = s;
        if (step(next, w, run)) {
          goes_on = true;
          if (seen.insert(encode(next)).second) todo.push_back(std::move(next));
        } else {
          is_end = is_end && next[w].slot == plan_.queue_depth;
        }
      }
      if (!goes_on && !is_end) harm("stops at " + encode(s));
    }
    out_.num_states += seen.size();
  }

  const KernelPlan& plan_;
  std::vector<std::pair<uint32_t, uint32_t>> where_;
  std::map<uint32_t, std::vector<uint32_t>> members_;
  std::vector<std::vector<NodeAccess>> accesses_;
  std::vector<uint32_t> last_publication_;
  std::vector<std::vector<Before>> before_;  // by node
  std::vector<uint64_t> sums_;
  Judgement out_;
};

}  // namespace

Judgement judge_plan(const KernelPlan& plan) { return Judge(plan).run(); }

}  // namespace megartp::test
