// Every partition case in every event mode: counts, shapes of events, and the oracle's word that no dependency is lost.
#include <algorithm>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "conformance/partition_cases.h"
#include "partition/partition_json.h"
#include "support/dependency_oracle.h"
#include "support/order_relation.h"
#include "support/qwen3_partition.h"

namespace megartp::test {
namespace {

using testing::IsEmpty;

constexpr EventMode kModes[] = {EventMode::kExact, EventMode::kAuto, EventMode::kGcd, EventMode::kWhole};

const PartitionCase& find_case(std::string_view name) {
  for (const PartitionCase& c : partition_cases())
    if (c.name == name) return c;
  ADD_FAILURE() << "no case " << name;
  return partition_cases().front();
}

const std::string& op_name(const TaskGraph& g, uint32_t stage) { return g.op_names[g.stages[stage].op]; }

std::vector<const StageEdge*> find_edges(const TaskGraph& g, const std::string& producer, const std::string& consumer) {
  std::vector<const StageEdge*> edges;
  for (const StageEdge& e : g.edges)
    if (op_name(g, e.producer_stage) == producer && op_name(g, e.consumer_stage) == consumer) edges.push_back(&e);
  return edges;
}

std::vector<EventShape> sorted(std::vector<EventShape> shapes) {
  std::ranges::sort(shapes, {}, [](const EventShape& e) { return std::tuple(e.triggers, e.consumers, e.count); });
  return shapes;
}

std::string to_text(const std::vector<EventShape>& shapes) {
  std::string text;
  for (const EventShape& e : sorted(shapes)) text += fmt::format("{}->{} x{} ", e.triggers, e.consumers, e.count);
  return text;
}

void expect_events(const TaskGraph& g, const ExpectedEvents& expected) {
  if (expected.events) EXPECT_EQ(g.events.size(), *expected.events);
  for (const ExpectedEdge& want : expected.edges) {
    const auto edges = find_edges(g, want.producer, want.consumer);
    // An edge that others imply may also be left out, when what the producer did is overwritten on the way.
    if (!want.events.empty()) EXPECT_FALSE(edges.empty()) << want.producer << " -> " << want.consumer;
    for (const StageEdge* edge : edges) {
      EXPECT_EQ(edge->is_implied, want.events.empty()) << want.producer << " -> " << want.consumer;
      EXPECT_EQ(to_text(edge->events), to_text(want.events)) << want.producer << " -> " << want.consumer;
    }
  }
  if (!expected.one_wait_one_signal) return;
  for (const Task& task : g.tasks) {
    EXPECT_LE(task.num_waits, 1);
    EXPECT_LE(task.num_signals, 1);
  }
}

// What holds of the edges of every lowered graph.
void expect_consistent_edges(const TaskGraph& g) {
  for (size_t i = 0; i < g.edges.size(); ++i) {
    const StageEdge& edge = g.edges[i];
    const std::string name = fmt::format("{} -> {} ({})", op_name(g, edge.producer_stage),
                                         op_name(g, edge.consumer_stage), g.tensors[edge.tensor].name);
    EXPECT_NE(edge.hazards, 0) << name;
    uint32_t num_events = 0;
    for (const EventShape& e : edge.events) {
      num_events += e.count;
      EXPECT_GT(e.triggers, 0U) << name;
      EXPECT_GT(e.consumers, 0U) << name;
      EXPECT_GT(e.count, 0U) << name;
    }
    EXPECT_EQ(edge.num_events, num_events) << name;
    EXPECT_EQ(edge.is_implied, edge.events.empty()) << name;
    for (size_t j = 0; j < i; ++j)
      EXPECT_FALSE(g.edges[j].producer_stage == edge.producer_stage &&
                   g.edges[j].consumer_stage == edge.consumer_stage && g.edges[j].tensor == edge.tensor)
          << name << " stands twice";
  }
}

class PartitionConformance : public testing::TestWithParam<std::tuple<size_t, EventMode>> {
 protected:
  const PartitionCase& partition_case() const { return partition_cases()[std::get<0>(GetParam())]; }
  EventMode mode() const { return std::get<1>(GetParam()); }
};

TEST_P(PartitionConformance, HasTheseCountsAndLosesNothing) {
  const PartitionCase& c = partition_case();
  const Result<TaskGraph> g = lower_partition_graph(c.graph, {.mode = mode()});
  ASSERT_TRUE(g) << g.error().to_string();
  EXPECT_EQ(g->event_mode, mode());
  EXPECT_THAT(dependency_problems(*g, {.no_coarser = mode() == EventMode::kExact}), IsEmpty());
  const PartitionCounts counts = count_partition(*g);
  EXPECT_EQ(counts.tasks, c.tasks);
  EXPECT_EQ(counts.roots, c.roots);
  EXPECT_EQ(counts.end_triggers, c.end_triggers);
  expect_consistent_edges(*g);
  if (mode() == EventMode::kGcd && c.gcd) expect_events(*g, *c.gcd);
  if (mode() == EventMode::kExact && c.exact) expect_events(*g, *c.exact);
  if (mode() == EventMode::kWhole)
    for (const StageEdge& edge : g->edges)
      if (!edge.is_implied) EXPECT_EQ(edge.num_events, 1U) << op_name(*g, edge.consumer_stage);
}

INSTANTIATE_TEST_SUITE_P(Cases, PartitionConformance,
                         testing::Combine(testing::Range(size_t{0}, partition_cases().size()),
                                          testing::ValuesIn(kModes)),
                         [](const auto& param_info) {
                           return partition_cases()[std::get<0>(param_info.param)].name + "_" +
                                  std::string(to_string(std::get<1>(param_info.param)));
                         });

// The oracle could be wrong in the same way as the compiler; these say it in other words.
uint32_t task_of(const TaskGraph& g, std::string_view op, uint32_t tile) {
  for (const TaskStage& s : g.stages)
    if (!is_relay(s) && g.op_names[s.op] == op) return s.first_task + tile;
  ADD_FAILURE() << "no op " << op;
  return 0;
}

TEST(PartitionOrder, AReplicatedResidualIsAfterTheWholeProducer) {
  for (const EventMode mode : kModes) {
    const TaskGraph g = lower_partition_graph(find_case("A1ResidualThatIsReplicated").graph, {.mode = mode}).value();
    const OrderRelation order(g);
    for (uint32_t u = 0; u < 8; ++u)
      for (uint32_t v = 0; v < 8; ++v)
        EXPECT_TRUE(order.is_before(task_of(g, "U", u), task_of(g, "V", v))) << to_string(mode);
  }
}

TEST(PartitionOrder, ARewriterIsAfterAllReaders) {
  for (const EventMode mode : kModes) {
    const TaskGraph g = lower_partition_graph(find_case("A7ABufferThatIsRewritten").graph, {.mode = mode}).value();
    const OrderRelation order(g);
    for (uint32_t b = 0; b < 8; ++b)
      for (uint32_t c = 0; c < 8; ++c)
        EXPECT_TRUE(order.is_before(task_of(g, "B", b), task_of(g, "C", c))) << to_string(mode);
  }
}

TEST(PartitionOrder, ExactModeAddsNoOrder) {
  const TaskGraph g = lower_partition_graph(find_case("ForkWithABroadcastBranch").graph).value();
  const OrderRelation order(g);
  for (uint32_t f = 0; f < 16; ++f)
    for (uint32_t a = 0; a < 16; ++a) EXPECT_EQ(order.is_before(task_of(g, "F", f), task_of(g, "A", a)), f == a);
}

TEST(PartitionRelays, AppearWhereAnInstructionIsTooSmall) {
  const PartitionGraph& wide = find_case("MoreWaitsAndSignalsThanAnInstructionHolds").graph;
  const TaskGraph g = lower_partition_graph(wide).value();
  EXPECT_GT(count_partition(g).relay_tasks, 0U);
  for (const EventMode mode : kModes) {
    const Result<TaskGraph> narrow =
        lower_partition_graph(find_case("NGraph").graph, {.mode = mode, .max_waits = 1, .max_signals = 1});
    ASSERT_TRUE(narrow) << narrow.error().to_string();
    EXPECT_THAT(dependency_problems(*narrow), IsEmpty()) << to_string(mode);
    for (const Task& task : narrow->tasks)
      if (!is_relay(narrow->stages[task.stage])) {
        EXPECT_LE(task.num_waits, 1) << to_string(mode);
        EXPECT_LE(task.num_signals, 1) << to_string(mode);
      }
  }
}

// --- Qwen3-8B --------------------------------------------------------------------------------------------------------

uint64_t num_pairs(const TaskGraph& g) {
  uint64_t pairs = 0;
  for (const Event& e : g.events) pairs += uint64_t{e.threshold} * e.num_consumers;
  return pairs;
}

TEST(Qwen3, HasTheCountsOfMpkInGcdMode) {
  struct Expected {
    Qwen3Sizes sizes;
    uint64_t tasks;
    uint64_t pairs;
  };
  for (const Expected& e :
       {Expected{{.tokens = 8, .requests = 1}, 17730, 300232}, {{.tokens = 16, .requests = 16}, 22634, 761232}}) {
    const PartitionGraph graph = qwen3_8b(e.sizes);
    EXPECT_EQ(graph.ops.size(), 293U);
    const Result<TaskGraph> g = lower_partition_graph(graph, {.mode = EventMode::kGcd});
    ASSERT_TRUE(g) << g.error().to_string();
    const PartitionCounts counts = count_partition(*g);
    EXPECT_EQ(counts.tasks, e.tasks);
    EXPECT_EQ(counts.relay_tasks, 0U);
    EXPECT_EQ(counts.events, 2819U);
    EXPECT_EQ(counts.roots, 1U);
    EXPECT_EQ(counts.end_triggers, 1U);
    EXPECT_EQ(num_pairs(*g), e.pairs);
    EXPECT_EQ(g->edges.size(), 365U);
    EXPECT_EQ(std::ranges::count_if(g->edges, [](const StageEdge& edge) { return edge.is_implied; }), 72);
    EXPECT_EQ(std::ranges::count_if(g->edges, [](const StageEdge& edge) { return edge.num_events == 1; }), 220);
    const auto att = static_cast<uint32_t>(e.sizes.requests);
    expect_events(*g, {{},
                       {{"layer7.qkv", "layer7.attention", {{16, att, 8}}},
                        {"layer7.gate_up", "layer7.silu", {{2, 1, 64}}},
                        {"lm_head", "argmax_partial", {{75, 16, 8}}},
                        {"layer6.down", "layer7.o_proj", {}},
                        {"layer7.o_proj", "layer7.down", {}}},
                       /*one_wait_one_signal=*/true});
  }
}

// 600 blocks against 128: each of the 128 has a set of its own, instead of 16 sharing one.
TEST(Qwen3, IsFinerWhereTheHeadMeetsArgmaxInExactMode) {
  const Result<TaskGraph> g = lower_partition_graph(qwen3_8b(), {.mode = EventMode::kExact});
  ASSERT_TRUE(g) << g.error().to_string();
  const PartitionCounts counts = count_partition(*g);
  EXPECT_EQ(counts.tasks, 17730U);
  EXPECT_EQ(counts.relay_tasks, 0U);
  EXPECT_EQ(counts.events, 2819U - 8 + 128);
  EXPECT_EQ(std::ranges::count_if(g->edges, [](const StageEdge& edge) { return edge.is_implied; }), 72);
}

TEST(Qwen3, LosesNothingInAnyMode) {
  for (const EventMode mode : kModes) {
    const Result<TaskGraph> g =
        lower_partition_graph(qwen3_8b({.tokens = 8, .requests = 2, .layers = 2}), {.mode = mode});
    ASSERT_TRUE(g) << g.error().to_string();
    EXPECT_THAT(dependency_problems(*g, {.no_coarser = mode == EventMode::kExact}), IsEmpty()) << to_string(mode);
  }
}

TEST(Qwen3, LosesNothingAsAWhole) {
  for (const EventMode mode : {EventMode::kExact, EventMode::kGcd}) {
    const Result<TaskGraph> g = lower_partition_graph(qwen3_8b(), {.mode = mode});
    ASSERT_TRUE(g) << g.error().to_string();
    EXPECT_THAT(dependency_problems(*g), IsEmpty()) << to_string(mode);
  }
}

}  // namespace
}  // namespace megartp::test
