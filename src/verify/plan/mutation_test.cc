// Every single mutation of small plans, judged by the prover and by all interleavings: no harmful one may pass, no
// harmless one may be refused.
#include <functional>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/math.h"
#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "plan/plan_structure.h"
#include "support/plan_judge.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace {

struct Mutant {
  std::string what;
  KernelPlan plan;
};

void set_counts(abi::Instruction& i, uint32_t waits, uint32_t signals) {
  i.counts = abi::make_counts(waits, signals, abi::num_payload(i));
}
void drop_wait(abi::Instruction& i, uint32_t w) {
  const uint32_t n = abi::num_waits(i);
  for (uint32_t k = w; k + 1 < n; ++k) i.waits[k] = i.waits[k + 1];
  i.waits[n - 1] = {};
  set_counts(i, n - 1, abi::num_signals(i));
}
void drop_signal(abi::Instruction& i, uint32_t s) {
  const uint32_t n = abi::num_signals(i);
  for (uint32_t k = s; k + 1 < n; ++k) i.signals[k] = i.signals[k + 1];
  i.signals[n - 1] = {};
  set_counts(i, abi::num_waits(i), n - 1);
}
bool is_task(const abi::Instruction& i) { return i.opcode != abi::kOpcodeNoOp; }

// The same change to all members of the instruction's join group, which must carry the same signals.
void for_group(KernelPlan& plan, size_t idx, const std::function<void(abi::Instruction&)>& change) {
  const uint32_t join = plan.instructions[idx].join_counter;
  if (join == abi::kNoJoin) return change(plan.instructions[idx]);
  for (abi::Instruction& i : plan.instructions)
    if (is_task(i) && i.join_counter == join) change(i);
}

class Mutator {
 public:
  explicit Mutator(const KernelPlan& plan) : base_(plan) {}

  std::vector<Mutant> all() {
    for (size_t i = 0; i < base_.instructions.size(); ++i) {
      if (!is_task(base_.instructions[i])) continue;
      waits(i);
      signals(i);
      order(i);
    }
    memory();
    return std::move(mutants_);
  }

 private:
  std::string name(size_t i) const {
    return base_.operand_rows[base_.instructions[i].operand_row].name + " task " +
           std::to_string(base_.instructions[i].task_id);
  }
  void add(std::string what, KernelPlan plan) {
    if (!check_plan_structure(plan)) return;
    mutants_.push_back({std::move(what), std::move(plan)});
  }

  void waits(size_t idx) {
    for (uint32_t w = 0; w < abi::num_waits(base_.instructions[idx]); ++w) {
      KernelPlan p = base_;
      drop_wait(p.instructions[idx], w);
      add("drop wait of " + name(idx), std::move(p));
      for (uint32_t t = 1; t < base_.instructions[idx].waits[w].threshold; ++t) {
        p = base_;
        p.instructions[idx].waits[w].threshold = t;
        add("lower threshold of " + name(idx) + " to " + std::to_string(t), std::move(p));
      }
      p = base_;
      ++p.instructions[idx].waits[w].threshold;
      add("raise threshold of " + name(idx), std::move(p));
    }
  }

  void signals(size_t idx) {
    const abi::Instruction& i = base_.instructions[idx];
    for (uint32_t s = 0; s < abi::num_signals(i); ++s) {
      const abi::Signal signal = i.signals[s];
      KernelPlan p = base_;
      for_group(p, idx, [&](abi::Instruction& m) { drop_signal(m, s); });
      add("drop signal of " + name(idx), p);
      p.events[signal.event].total -= abi::increment(signal);
      if (p.events[signal.event].total > 0) add("drop signal and total of " + name(idx), std::move(p));

      p = base_;
      for_group(p, idx, [&](abi::Instruction& m) { m.signals[s].increment_publication += 1; });
      add("duplicate signal of " + name(idx), p);
      p.events[signal.event].total += 1;
      add("duplicate signal of " + name(idx) + ", total too", std::move(p));

      // Sent a publication too early or too late.
      for (const int change : {-1, 1}) {
        if (change < 0 && abi::publication(signal) == 0) continue;
        p = base_;
        p.events[signal.event].producer_row = kInvalidId;
        for_group(p, idx, [&](abi::Instruction& m) {
          m.signals[s].increment_publication += static_cast<uint32_t>(change) << 24;
        });
        add("move signal of " + name(idx) + " by a publication", std::move(p));
      }
      delay(idx, s);
    }
  }

  // The next instruction of the queue sends it instead.
  void delay(size_t idx, uint32_t s) {
    const size_t next = idx + 1;
    if (next % base_.queue_depth == 0 || !is_task(base_.instructions[next])) return;
    if (base_.instructions[next].join_counter != abi::kNoJoin || base_.instructions[idx].join_counter != abi::kNoJoin ||
        abi::num_signals(base_.instructions[next]) == abi::kMaxSignals)
      return;
    KernelPlan p = base_;
    const abi::Signal signal = p.instructions[idx].signals[s];
    abi::Instruction& to = p.instructions[next];
    to.signals[abi::num_signals(to)] = signal;
    set_counts(to, abi::num_waits(to), abi::num_signals(to) + 1);
    drop_signal(p.instructions[idx], s);
    p.events[signal.event].producer_row = kInvalidId;
    add("delay signal of " + name(idx), std::move(p));
  }

  void order(size_t idx) {
    const uint32_t depth = base_.queue_depth;
    for (size_t other = idx + 1; other < base_.instructions.size(); ++other) {
      if (!is_task(base_.instructions[other])) continue;
      KernelPlan p = base_;
      std::swap(p.instructions[idx], p.instructions[other]);
      add("swap " + name(idx) + " and " + name(other), std::move(p));
    }
    for (uint32_t w = 0; w < base_.num_workers; ++w) {
      for (uint32_t slot = 0; slot <= depth; ++slot) {
        std::vector<std::vector<abi::Instruction>> queues(base_.num_workers);
        for (uint32_t v = 0; v < base_.num_workers; ++v)
          for (uint32_t s = 0; s < depth; ++s)
            if (size_t{v} * depth + s != idx && is_task(base_.instruction(v, s)))
              queues[v].push_back(base_.instruction(v, s));
        if (slot > queues[w].size()) continue;
        queues[w].insert(queues[w].begin() + slot, base_.instructions[idx]);
        KernelPlan p = base_;
        p.queue_depth = 0;
        for (const auto& q : queues) p.queue_depth = std::max(p.queue_depth, static_cast<uint32_t>(q.size()));
        abi::Instruction noop{};
        noop.task_id = abi::kNoTask;
        noop.join_counter = abi::kNoJoin;
        p.instructions.assign(size_t{p.num_workers} * p.queue_depth, noop);
        for (uint32_t v = 0; v < p.num_workers; ++v)
          std::ranges::copy(queues[v], p.instructions.begin() + static_cast<ptrdiff_t>(size_t{v} * p.queue_depth));
        add("move " + name(idx) + " to worker " + std::to_string(w) + " slot " + std::to_string(slot), std::move(p));
      }
    }
  }

  void memory() {
    for (size_t a = 0; a < base_.tensors.size(); ++a) {
      for (size_t b = 0; b < base_.tensors.size(); ++b) {
        const PlanTensor& x = base_.tensors[a];
        const PlanTensor& y = base_.tensors[b];
        if (a == b || x.arena_offset == kExternal || y.arena_offset == kExternal) continue;
        for (const uint64_t shift : {uint64_t{0}, uint64_t{256}}) {
          if (shift >= y.num_bytes) continue;
          KernelPlan p = base_;
          p.tensors[a].arena_offset = y.arena_offset + shift;
          p.workspace_bytes = round_up<uint64_t>(base_.workspace_bytes + x.num_bytes + shift, uint64_t{256});
          add("put " + x.name + " into " + y.name + " at " + std::to_string(shift), std::move(p));
        }
      }
    }
  }

  const KernelPlan& base_;
  std::vector<Mutant> mutants_;
};

ShapeEnv with_m(int64_t m) {
  ShapeEnv shapes;
  shapes.set("M", m);
  return shapes;
}

OpGraph add_chain() {
  OpGraph g("add_chain");
  const Tensor a = g.runtime_arg("a", DType::kBF16, {"M", 8});
  const Tensor b = g.runtime_arg("b", DType::kBF16, {"M", 8});
  const Tensor s1 = g.add(a, b, "s1");
  const Tensor s2 = g.add(s1, b, "s2");
  const Tensor s3 = g.add(s2, s1, "s3");
  g.set_outputs({g.add(s3, b, "s4")});
  return g;
}

OpGraph norm_and_gemm() {
  OpGraph g("norm_and_gemm");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 16});
  const Tensor w = g.bound_weight("w", DType::kBF16, {16});
  const Tensor p = g.bound_weight("p", DType::kBF16, {200, 16});
  const Tensor n = g.rmsnorm(g.add(x, x, "a"), w, 1e-5, "n");
  const Tensor y = g.gemm(n, p, "y");
  g.set_outputs({g.add(y, y, "z")});
  return g;
}

// Two publications of one op, waited for apart.
OpGraph quant() {
  OpGraph g("quant");
  const Tensor x = g.runtime_arg("x", DType::kBF16, {"M", 16});
  const Tensor w = g.bound_weight("w", DType::kBF16, {16});
  const std::vector<Tensor> q = g.op("add_rmsnorm_quant", "q", std::vector<Tensor>{x, x, w});
  const Tensor s1 = g.add(q[0], x, "s1");   // publication 0
  const Tensor s2 = g.add(q[1], s1, "s2");  // publication 1
  g.set_outputs({s2, q[2], q[3]});
  return g;
}

// Join groups, a scattered cache, partials.
OpGraph layer() {
  glm52::Config c;
  c.hidden_size = 256;
  c.q_lora_rank = 40;
  c.kv_lora_rank = 24;
  c.num_attention_heads = 1;
  c.qk_nope_head_dim = 16;
  c.qk_rope_head_dim = 8;
  c.v_head_dim = 8;
  c.index_n_heads = 1;
  c.index_head_dim = 16;
  return glm52::attention_pre_graph(c, {}, 6);
}

struct Count {
  size_t harmful_refused = 0, harmless_accepted = 0, harmful_accepted = 0, harmless_refused = 0;
  size_t total() const { return harmful_refused + harmless_accepted + harmful_accepted + harmless_refused; }
};

std::string findings_text(const PlanProof& proof) {
  std::string out;
  for (const PlanFinding& f : proof.findings) out += std::string(to_string(f.fault)) + ": " + f.message + "\n";
  return out;
}

void judge_all(const KernelPlan& base, const std::string& what, Count& count) {
  ASSERT_TRUE(prove_plan(base).is_proved()) << what << "\n" << findings_text(prove_plan(base));
  const test::Judgement sound = test::judge_plan(base);
  ASSERT_FALSE(sound.is_harmful) << what << ": " << sound.why;
  for (const Mutant& m : Mutator(base).all()) {
    const PlanProof proof = prove_plan(m.plan);
    const test::Judgement truth = test::judge_plan(m.plan);
    if (truth.is_harmful) {
      ++(proof.is_proved() ? count.harmful_accepted : count.harmful_refused);
      EXPECT_FALSE(proof.is_proved()) << what << ", " << m.what << ": " << truth.why;
    } else {
      ++(proof.is_proved() ? count.harmless_accepted : count.harmless_refused);
      EXPECT_TRUE(proof.is_proved()) << what << ", " << m.what << " is harmless, but\n" << findings_text(proof);
    }
  }
}

void report(const char* graph, const Count& c) {
  ::testing::Test::RecordProperty("mutants", static_cast<int>(c.total()));
  std::printf(
      "%s: %zu mutants: %zu harmful refused, %zu harmless accepted, %zu harmful accepted, %zu harmless refused\n",
      graph, c.total(), c.harmful_refused, c.harmless_accepted, c.harmful_accepted, c.harmless_refused);
}

void judge_graph(const OpGraph& graph, const ShapeEnv& shapes, const std::vector<uint32_t>& workers,
                 size_t min_mutants) {
  ASSERT_TRUE(graph.status());
  Count count;
  for (const EventMode mode : {EventMode::kExact, EventMode::kWhole}) {
    LowerOptions options;
    options.events.mode = mode;
    const auto tasks = lower(graph, shapes, options);
    ASSERT_TRUE(tasks) << tasks.error().to_string();
    for (const Packer packer : {Packer::kRoundRobin, Packer::kCriticalPath})
      for (const uint32_t w : workers)
        judge_all(pack(*tasks, *find_target("cpu"), {packer, w}).value(),
                  std::string(to_string(mode)) + " " + std::string(to_string(packer)) + " " + std::to_string(w), count);
  }
  report(std::string(graph.name()).c_str(), count);
  EXPECT_EQ(count.harmful_accepted, 0U);
  EXPECT_EQ(count.harmless_refused, 0U);
  EXPECT_GT(count.harmful_refused, min_mutants / 10);
  EXPECT_GT(count.harmless_accepted, min_mutants / 10);
  EXPECT_GT(count.total(), min_mutants);
}

TEST(Mutation, AddChain) { judge_graph(add_chain(), with_m(2), {2, 3}, 400); }
TEST(Mutation, NormAndGemm) { judge_graph(norm_and_gemm(), with_m(2), {2, 3}, 400); }
TEST(Mutation, Publications) { judge_graph(quant(), with_m(2), {2, 3}, 300); }
TEST(Mutation, JoinGroups) { judge_graph(layer(), glm52::decode_shapes(1, 64, 1).value(), {2, 3}, 800); }

}  // namespace
}  // namespace megartp
