// Plans that are right: attention-pre at the test shapes, with every finalizer, packer, event mode and worker count,
// out of templates too.
#include <gtest/gtest.h>

#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "plan/plan_template.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace {

std::string text(const PlanProof& proof) {
  std::string out;
  for (const PlanFinding& f : proof.findings) out += std::string(to_string(f.fault)) + ": " + f.message + "\n";
  return out;
}

struct Size {
  int64_t m, kv, requests;
};
constexpr Size kSizes[] = {{1, 1, 1},     {1, 8192, 1},  {3, 63, 2},    {16, 8192, 2},
                           {33, 2049, 5}, {64, 1025, 4}, {128, 700, 3}, {2, 131072, 1}};

void prove_all(const TaskGraph& tasks, std::string_view what, bool expect_no_warning) {
  for (const Packer packer : kPackers) {
    for (const uint32_t workers : {1U, 3U, 7U, 132U, 148U}) {
      const auto plan = pack(tasks, *find_target("h200"), {packer, workers});
      ASSERT_TRUE(plan) << plan.error().to_string();
      const PlanProof proof = prove_plan(*plan);
      EXPECT_TRUE(proof.is_proved()) << what << ", " << to_string(packer) << ", " << workers << "\n" << text(proof);
      EXPECT_EQ(proof.stats.num_passes, 1U);
      EXPECT_GE(proof.stats.num_orderings, plan->num_tasks / 2);
      if (expect_no_warning) EXPECT_TRUE(proof.findings.empty()) << what << "\n" << text(proof);
    }
  }
}

TEST(ProveAttentionPre, AllShapesPackersAndModes) {
  const OpGraph graph = glm52::attention_pre_graph({}, {}, 6);
  for (const Size& size : kSizes) {
    const auto shapes = glm52::decode_shapes(size.m, size.kv, size.requests);
    ASSERT_TRUE(shapes);
    for (const FinalizerMode finalizer : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
      for (const EventMode mode : {EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole}) {
        LowerOptions options;
        options.finalizer = finalizer;
        options.events.mode = mode;
        const auto tasks = lower(graph, *shapes, options);
        ASSERT_TRUE(tasks) << tasks.error().to_string();
        prove_all(*tasks,
                  std::to_string(size.m) + " x " + std::to_string(size.kv) + " " + std::string(to_string(mode)) +
                      (finalizer == FinalizerMode::kFused ? " fused" : " tasks"),
                  mode == EventMode::kExact);
      }
    }
  }
}

TEST(ProveAttentionPre, SeveralLayersAndRelays) {
  const OpGraph graph = glm52::attention_pre_graph({}, {}, 6, 3);
  const ShapeEnv shapes = glm52::decode_shapes(16, 2048, 2).value();
  for (const uint32_t max_waits : {1U, 2U, 4U}) {
    LowerOptions options;
    options.events.max_waits = max_waits;
    options.events.max_signals = max_waits;
    const auto tasks = lower(graph, shapes, options);
    ASSERT_TRUE(tasks) << tasks.error().to_string();
    prove_all(*tasks, "3 layers, " + std::to_string(max_waits) + " waits", false);
  }
}

TEST(ProveAttentionPre, TemplateInstances) {
  const OpGraph graph = glm52::attention_pre_graph({}, {}, 6);
  const auto made = PlanTemplate::make(graph, glm52::decode_shapes(64, 4096, 4).value(), {}, *find_target("h200"), {});
  ASSERT_TRUE(made) << made.error().to_string();
  PlanInstance instance = made->instance();
  for (const Size& size : {Size{64, 4096, 4}, {1, 1, 1}, {17, 4000, 3}, {33, 513, 1}, {2, 64, 2}}) {
    ASSERT_TRUE(instance.instantiate(glm52::decode_shapes(size.m, size.kv, size.requests).value()));
    const PlanProof proof = prove_plan(instance.plan());
    EXPECT_TRUE(proof.is_proved()) << size.m << " x " << size.kv << "\n" << text(proof);
  }
}

TEST(ProveAttentionPre, DroppedOrdersAreFound) {
  // Of a full-size plan, every wait in turn: its task then reads before somebody has written, unless queue order
  // happens to keep it. Most do not.
  const OpGraph graph = glm52::attention_pre_graph({}, {}, 6);
  const auto tasks = lower(graph, glm52::decode_shapes(16, 8192, 2).value());
  ASSERT_TRUE(tasks);
  KernelPlan plan = pack(*tasks, *find_target("h200"), {}).value();
  size_t num_waits = 0;
  size_t num_found = 0;
  for (abi::Instruction& i : plan.instructions) {
    for (uint32_t w = 0; w < abi::num_waits(i); ++w) {
      if (++num_waits % 13 != 0) continue;
      const abi::Instruction before = i;
      for (uint32_t k = w; k + 1 < abi::num_waits(i); ++k) i.waits[k] = i.waits[k + 1];
      i.waits[abi::num_waits(i) - 1] = {};
      i.counts = abi::make_counts(abi::num_waits(i) - 1, abi::num_signals(i), abi::num_payload(i));
      num_found += prove_plan(plan).is_proved() ? 0 : 1;
      i = before;
    }
  }
  EXPECT_GT(num_found, num_waits / 13 / 2);
  EXPECT_TRUE(prove_plan(plan).is_proved());
}

}  // namespace
}  // namespace megartp
