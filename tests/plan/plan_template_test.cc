// Plans cut from a template against plans lowered afresh, without running them (tests/conformance runs them).
#include <algorithm>
#include <array>
#include <map>
#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "models/glm52/glm52.h"
#include "plan/plan_template.h"
#include "support/layer_configs.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;

// Every layer has an indexer.
glm52::Config full_layers_config() {
  glm52::Config c = test::small_config();
  c.index_topk_freq = 1;
  return c;
}

OpGraph layers(int64_t count, const glm52::Config& config = full_layers_config()) {
  return glm52::attention_pre_graph(config, {}, 6, count);
}

ShapeEnv shapes_of(int64_t m, int64_t kv, int64_t requests) { return glm52::decode_shapes(m, kv, requests).value(); }

PlanTemplate make(const OpGraph& graph, const ShapeEnv& largest, FinalizerMode mode = FinalizerMode::kFused,
                  Packer packer = Packer::kCriticalPath, uint32_t workers = 7) {
  auto made = PlanTemplate::make(graph, largest, {mode}, *find_target("h200"), {packer, workers});
  EXPECT_TRUE(made) << made.error().to_string();
  return std::move(*made);
}

std::vector<const abi::Instruction*> by_task(const KernelPlan& plan) {
  std::vector<const abi::Instruction*> tasks(plan.num_tasks, nullptr);
  for (const abi::Instruction& i : plan.instructions)
    if (i.opcode != abi::kOpcodeNoOp) tasks.at(i.task_id) = &i;
  return tasks;
}

// Everything but events, queues and arena is what a fresh lowering gives.
void expect_like_fresh(const KernelPlan& got, const KernelPlan& fresh) {
  ASSERT_EQ(got.num_tasks, fresh.num_tasks);
  EXPECT_EQ(got.join_counts, fresh.join_counts);
  EXPECT_EQ(got.shapes.symbols, fresh.shapes.symbols);
  EXPECT_EQ(got.shapes.requests, fresh.shapes.requests);
  EXPECT_EQ(got.finalizer, fresh.finalizer);
  EXPECT_EQ(got.num_workers, fresh.num_workers);
  ASSERT_EQ(got.specs.size(), fresh.specs.size());
  for (size_t i = 0; i < got.specs.size(); ++i) {
    EXPECT_EQ(got.specs[i].opcode, fresh.specs[i].opcode);
    EXPECT_EQ(got.specs[i].words, fresh.specs[i].words);
  }
  ASSERT_EQ(got.tensors.size(), fresh.tensors.size());
  for (size_t i = 0; i < got.tensors.size(); ++i) {
    EXPECT_EQ(got.tensors[i].name, fresh.tensors[i].name);
    EXPECT_EQ(got.tensors[i].dims, fresh.tensors[i].dims) << got.tensors[i].name;
    EXPECT_EQ(got.tensors[i].num_bytes, fresh.tensors[i].num_bytes) << got.tensors[i].name;
  }
  const auto a = by_task(got);
  const auto b = by_task(fresh);
  for (uint32_t t = 0; t < got.num_tasks; ++t) {
    ASSERT_NE(a[t], nullptr);
    ASSERT_TRUE(a[t]->opcode == b[t]->opcode && a[t]->spec_id == b[t]->spec_id &&
                a[t]->operand_row == b[t]->operand_row && a[t]->join_counter == b[t]->join_counter &&
                a[t]->join_count == b[t]->join_count && std::ranges::equal(a[t]->payload, b[t]->payload) &&
                abi::num_payload(*a[t]) == abi::num_payload(*b[t]))
        << "task " << t << "\n"
        << disassemble(got, *a[t]) << disassemble(fresh, *b[t]);
  }
}

// Every conflict between tiles, from their own regions, is ordered by the plan's events.
class Oracle {
 public:
  Oracle(const TaskGraph& graph, const KernelPlan& plan) : graph_(graph), tasks_(by_task(plan)) {
    order(plan);
    for (uint32_t s = 0; s < graph.stages.size(); ++s) collect(s);
  }
  void check() const {
    for (const Touch& later : touches_)
      for (const Touch& earlier : touches_) {
        if (earlier.stage >= later.stage || earlier.tensor != later.tensor || !(earlier.writes || later.writes) ||
            !earlier.box.overlaps(later.box))
          continue;
        for (const uint32_t c : later.tasks)
          for (const uint32_t a : earlier.tasks)
            ASSERT_TRUE(before_[c][a]) << graph_.stages[later.stage].stage->name << " task " << c
                                       << " is not ordered after " << graph_.stages[earlier.stage].stage->name
                                       << " task " << a << " over " << graph_.tensors[later.tensor].name;
      }
  }

 private:
  struct Touch {
    uint32_t stage;
    TensorId tensor;
    Box box;
    bool writes;
    std::vector<uint32_t> tasks;  // any of them may do it
  };

  void order(const KernelPlan& plan) {
    std::vector<std::vector<uint32_t>> signallers(plan.events.size());
    for (uint32_t t = 0; t < tasks_.size(); ++t)
      for (uint32_t k = 0; k < abi::num_signals(*tasks_[t]); ++k) signallers[tasks_[t]->signals[k].event].push_back(t);
    before_.assign(tasks_.size(), std::vector<bool>(tasks_.size(), false));
    for (uint32_t c = 0; c < tasks_.size(); ++c)
      for (uint32_t w = 0; w < abi::num_waits(*tasks_[c]); ++w) {
        const abi::Wait& wait = tasks_[c]->waits[w];
        ASSERT_EQ(wait.threshold, plan.events[wait.event].total);
        for (const uint32_t a : signallers[wait.event]) {
          ASSERT_LT(a, c) << "a task waits for a later one";
          before_[c][a] = true;
          for (uint32_t x = 0; x < a; ++x)
            if (before_[a][x]) before_[c][x] = true;
        }
      }
  }

  void collect(uint32_t s) {
    const Stage& stage = *graph_.stages[s].stage;
    std::map<uint32_t, std::vector<uint32_t>> groups;
    for (uint32_t t = 0; t < stage.num_tiles; ++t) {
      TileDesc tile;
      stage.tile(t, tile);
      const uint32_t task = graph_.stages[s].first_task + t;
      if (tile.join_group != abi::kNoJoin) groups[tile.join_group].push_back(task);
      add(s, tile.reads, false, {task});
      add(s, tile.writes, true, {task});
    }
    for (uint32_t f = 0; f < stage.num_final_tiles; ++f) {
      FinalDesc final;
      stage.final_tile(f, final);
      add(s, final.reads, false, groups[final.join_group]);
      add(s, final.writes, true, groups[final.join_group]);
    }
  }
  void add(uint32_t s, const std::vector<Access>& accesses, bool writes, const std::vector<uint32_t>& tasks) {
    for (const Access& a : accesses) touches_.push_back({s, a.tensor, a.box, writes, tasks});
  }

  const TaskGraph& graph_;
  std::vector<const abi::Instruction*> tasks_;
  std::vector<std::vector<bool>> before_;
  std::vector<Touch> touches_;
};

void check_against_fresh(const OpGraph& graph, PlanInstance& instance, const ShapeEnv& shapes, FinalizerMode mode,
                         Packer packer, bool with_oracle) {
  SCOPED_TRACE(::testing::Message() << "M " << shapes.symbols.at("M") << ", KV " << shapes.symbols.at("KV") << ", "
                                    << shapes.requests.size() << " requests");
  const auto done = instance.instantiate(shapes);
  ASSERT_TRUE(done) << done.error().to_string();
  const Status ok = check_plan(instance.plan());
  ASSERT_TRUE(ok) << ok.error().to_string();
  const auto tasks = lower(graph, shapes, {mode});
  ASSERT_TRUE(tasks);
  const auto fresh = pack(*tasks, *find_target("h200"), {packer, instance.plan().num_workers});
  ASSERT_TRUE(fresh);
  expect_like_fresh(instance.plan(), *fresh);
  EXPECT_LE(instance.plan().events.size(), fresh->events.size() + 1) << "events that nobody needs stay";
  if (with_oracle) Oracle(*tasks, instance.plan()).check();
}

TEST(PlanTemplate, EveryBatchUpTo32RowsIsLikeAFreshPlan) {
  const OpGraph graph = layers(1);
  for (const auto& [mode, packer] : {std::pair{FinalizerMode::kFused, Packer::kCriticalPath},
                                     std::pair{FinalizerMode::kTasks, Packer::kRoundRobin}}) {
    PlanInstance instance = make(graph, shapes_of(32, 3000, 5), mode, packer).instance();
    for (int64_t m = 1; m <= 32; ++m)
      for (int64_t requests = 1; requests <= std::min<int64_t>(m, 5); ++requests)
        check_against_fresh(graph, instance, shapes_of(m, 40 + m * 71 % 2961, requests), mode, packer, m % 7 == 3);
    if (HasFailure()) return;
  }
}

TEST(PlanTemplate, LengthsAndMixedRequestsAreLikeAFreshPlan) {
  const OpGraph graph = layers(1);
  PlanInstance instance = make(graph, shapes_of(16, 4096, 4)).instance();
  for (const int64_t kv : {16, 63, 64, 65, 511, 512, 513, 1024, 2049, 4095, 4096})
    check_against_fresh(graph, instance, shapes_of(16, kv, 2), FinalizerMode::kFused, Packer::kCriticalPath, true);
  const std::vector<std::vector<RequestShape>> mixes{{{1, 1}},
                                                     {{13, 4096}},
                                                     {{7, 513}, {1, 1}, {2, 1025}},
                                                     {{3, 70}, {3, 3}, {1, 640}, {9, 512}},
                                                     {{2, 4000}, {14, 14}}};
  for (const auto& requests : mixes)
    check_against_fresh(graph, instance, *glm52::batch_shapes(requests), FinalizerMode::kFused, Packer::kCriticalPath,
                        true);
}

TEST(PlanTemplate, SeveralRowBlocksAndLayersAreLikeAFreshPlan) {
  const OpGraph graph = layers(2);
  for (const FinalizerMode mode : {FinalizerMode::kFused, FinalizerMode::kTasks}) {
    PlanInstance instance = make(graph, shapes_of(150, 600, 2), mode).instance();
    for (const int64_t m : {150, 1, 16, 17, 33, 64, 65, 128, 129})
      check_against_fresh(graph, instance, shapes_of(m, 600, 1), mode, Packer::kCriticalPath, m < 40 || m == 65);
  }
}

TEST(PlanTemplate, TheBytesDoNotDependOnWhatCameBefore) {
  const OpGraph graph = layers(1);
  const PlanTemplate made = make(graph, shapes_of(24, 2048, 3));
  PlanInstance instance = made.instance();
  EXPECT_EQ(serialize_plan(instance.plan()), serialize_plan(made.instance().plan()));
  std::mt19937 rng(3);
  ShapeEnv shapes = shapes_of(8, 1000, 2);
  std::array<int, 3> kinds{};
  for (int i = 0; i < 400; ++i) {
    const auto pick = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(rng); };
    switch (pick(0, 5)) {
      case 0: shapes = shapes_of(pick(3, 24), pick(24, 2048), pick(1, 3)); break;
      case 1: break;  // the same again
      case 2: {       // something that does not fit, which must leave no trace
        const std::string before = serialize_plan(instance.plan());
        ShapeEnv wrong = shapes;
        if (pick(0, 1) == 0) wrong.set("M", 25);
        wrong.set("KV", pick(1, 2048));
        wrong.requests[0].kv_len = 5000;
        EXPECT_FALSE(instance.instantiate(wrong));
        EXPECT_EQ(serialize_plan(instance.plan()), before);
        break;
      }
      default:
        for (RequestShape& r : shapes.requests)
          r.kv_len = std::min(static_cast<int32_t>(shapes.symbols["KV"]), std::max(r.num_rows, r.kv_len + pick(-2, 2)));
    }
    const auto done = instance.instantiate(shapes);
    ASSERT_TRUE(done) << done.error().to_string();
    ++kinds.at(static_cast<size_t>(*done));
    PlanInstance other = made.instance();
    ASSERT_TRUE(other.instantiate(shapes));
    ASSERT_EQ(serialize_plan(instance.plan()), serialize_plan(other.plan())) << "step " << i;
  }
  for (const int count : kinds) EXPECT_GT(count, 20) << "the test does not reach every way";
}

TEST(PlanTemplate, PositionsArePatchedInPlaceWithinABlockOfKeys) {
  const OpGraph graph = layers(1);
  const PlanTemplate made = make(graph, shapes_of(4, 2048, 2));
  PlanInstance instance = made.instance();
  ShapeEnv shapes = made.largest();
  std::map<Replan, int> kinds;
  for (int32_t position = 100; position < 1124; ++position) {
    for (RequestShape& r : shapes.requests) r.kv_len = position;
    const auto done = instance.instantiate(shapes);
    ASSERT_TRUE(done);
    ++kinds[*done];
    if (position % 50 == 0 || *done == Replan::kRewrite) ASSERT_TRUE(check_plan(instance.plan()));
  }
  // Blocks of 512 keys: the first call, then where a tile of every row block comes along.
  EXPECT_EQ(kinds[Replan::kRewrite], 3);
  EXPECT_EQ(kinds[Replan::kPatch], 1021);
  EXPECT_EQ(*instance.instantiate(shapes), Replan::kNothing);
}

std::string error_of(PlanInstance& instance, const std::function<void(ShapeEnv&)>& change) {
  ShapeEnv shapes = shapes_of(16, 1024, 2);
  change(shapes);
  const auto done = instance.instantiate(shapes);
  if (done) return "";
  EXPECT_EQ(done.error().code, ErrorCode::kInvalidArgument);
  return done.error().to_string();
}

TEST(PlanTemplate, RefusesWhatDoesNotFit) {
  const OpGraph graph = layers(1);
  PlanInstance instance = make(graph, shapes_of(16, 2048, 2)).instance();
  EXPECT_EQ(error_of(instance, [](ShapeEnv&) {}), "");
  EXPECT_EQ(error_of(instance, [](ShapeEnv& s) { s.set("M", 17); }),
            "M = 17 does not fit the plan template of graph 'glm52-attention-pre', which was made for M up to 16");
  EXPECT_THAT(error_of(instance, [](ShapeEnv& s) { s.set("KV", 2049); }), HasSubstr("KV = 2049"));
  EXPECT_THAT(error_of(instance, [](ShapeEnv& s) { s.set("M", 0); }), HasSubstr("M = 0: "));
  EXPECT_EQ(error_of(instance, [](ShapeEnv& s) { s.symbols.erase("PAGES"); }), "symbol 'PAGES' has no value");
  EXPECT_THAT(error_of(instance, [](ShapeEnv& s) { s.requests[1].kv_len = 1025; }),
              HasSubstr("request 1 has length 1025"));
  EXPECT_THAT(error_of(instance, [](ShapeEnv& s) { s.requests[0].num_rows = 9; }), HasSubstr("17 rows"));
  EXPECT_EQ(error_of(instance, [](ShapeEnv& s) { s.set("unused", 1 << 20); }), "");
}

// Blocks of rows never mix requests, so many short requests need more tiles than few long ones.
TEST(PlanTemplate, RefusesRequestsThatNeedMoreTilesThanItHas) {
  const OpGraph graph = layers(1);
  ShapeEnv largest = shapes_of(16, 512, 16);
  largest.requests = {{16, 512}};
  PlanInstance instance = make(graph, largest).instance();
  const auto done = instance.instantiate(shapes_of(16, 512, 16));
  ASSERT_FALSE(done);
  EXPECT_EQ(done.error().code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(done.error().message, "op 'E1' needs 16 tiles for these requests, the plan template has 1");
  // The other way round any batch fits.
  PlanInstance any = make(graph, shapes_of(16, 512, 16)).instance();
  EXPECT_TRUE(any.instantiate(largest));
}

TEST(PlanTemplate, AnyBatchOfAGraphWithoutRequests) {
  OpGraph graph("chain");
  const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 64});
  const Tensor w = graph.bound_weight("w", DType::kBF16, {200, 64});
  graph.set_outputs({graph.gemm(graph.add(graph.add(x, x), x), w)});
  ShapeEnv largest;
  largest.set("M", 130);
  PlanInstance instance = make(graph, largest).instance();
  for (const int64_t m : {1, 64, 65, 129, 130}) {
    ShapeEnv shapes;
    shapes.set("M", m);
    ASSERT_TRUE(instance.instantiate(shapes));
    ASSERT_TRUE(check_plan(instance.plan()));
    const auto tasks = lower(graph, shapes);
    expect_like_fresh(instance.plan(), *pack(*tasks, *find_target("h200"), {Packer::kCriticalPath, 7}));
    Oracle(*tasks, instance.plan()).check();
  }
}

}  // namespace
}  // namespace megartp
