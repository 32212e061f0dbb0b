// The clipping contract of ops/op_family.h, by brute force over every family: the tiles of a smaller shape are a prefix
// of a larger one's and touch no more than their counterparts.
#include <algorithm>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "lowering/lower.h"
#include "models/glm52/glm52.h"
#include "support/layer_configs.h"

namespace megartp {
namespace {

OpGraph attention() { return glm52::attention_pre_graph(test::ragged_config(), {}, 6); }

bool contains(const Box& outer, const Box& inner) {
  for (uint32_t d = 0; d < inner.rank; ++d)
    if (inner.begin[d] < outer.begin[d] || inner.end[d] > outer.end[d]) return false;
  return inner.rank == outer.rank;
}

void expect_clipped(const std::vector<Access>& small, const std::vector<Access>& large, const std::string& what) {
  for (const Access& s : small) {
    const bool found = std::ranges::any_of(large, [&](const Access& l) {
      return l.tensor == s.tensor && l.publication == s.publication && l.scatter == s.scatter && contains(l.box, s.box);
    });
    if (!found) RC_LOG() << what << ", tensor " << s.tensor << "\n";
    RC_ASSERT(found);
  }
}

void check_stage(const Stage& small, const Stage& large) {
  RC_ASSERT(small.opcode == large.opcode);
  RC_ASSERT(small.slots == large.slots);
  RC_ASSERT(small.num_tiles <= large.num_tiles);
  RC_ASSERT(small.num_join_groups <= large.num_join_groups);
  RC_ASSERT(small.num_final_tiles <= large.num_final_tiles);
  TileDesc s, l, payload_only;
  payload_only.wants_regions = payload_only.wants_costs = false;
  for (uint32_t t = 0; t < large.num_tiles; ++t) {
    l.clear();
    large.tile(t, l);
    if (t >= small.num_tiles) {
      // Groups are whole: what goes is of groups that go.
      if (large.num_join_groups != 0) RC_ASSERT(l.join_group >= small.num_join_groups);
      continue;
    }
    s.clear();
    payload_only.clear();
    small.tile(t, s);
    small.tile(t, payload_only);
    RC_ASSERT(s.join_group == l.join_group);
    RC_ASSERT(s.payload == payload_only.payload);
    RC_ASSERT(s.num_payload == payload_only.num_payload);
    RC_ASSERT(s.join_group == payload_only.join_group);
    expect_clipped(s.reads, l.reads, small.name + " reads");
    expect_clipped(s.writes, l.writes, small.name + " writes");
  }
  FinalDesc sf, lf;
  for (uint32_t f = 0; f < small.num_final_tiles; ++f) {
    sf.clear();
    lf.clear();
    small.final_tile(f, sf);
    large.final_tile(f, lf);
    RC_ASSERT(sf.join_group == lf.join_group);
    expect_clipped(sf.reads, lf.reads, small.name + " reads at the end");
    expect_clipped(sf.writes, lf.writes, small.name + " writes at the end");
  }
}

void check_pair(const OpGraph& graph, const ShapeEnv& small, const ShapeEnv& large) {
  struct Mode {
    FinalizerMode finalizer;
    uint32_t num_sms;
  };
  for (const Mode mode :
       {Mode{FinalizerMode::kFused, 0}, Mode{FinalizerMode::kTasks, 0}, Mode{FinalizerMode::kTasks, 132}}) {
    LowerOptions options;
    options.finalizer = mode.finalizer;
    options.num_sms = mode.num_sms;
    options.any_shape = true;
    const auto l = lower(graph, large, options);
    const auto s = lower(graph, small, options);
    RC_ASSERT(l.has_value());
    RC_ASSERT(s.has_value());
    RC_ASSERT(l->stages.size() == s->stages.size());
    for (size_t i = 0; i < l->stages.size(); ++i) {
      // Tiles that follow requests have no fixed number: more than the largest shape has is a misfit, which templates
      // refuse.
      const bool by_requests = opcode_name(l->stages[i].stage->opcode) == "indexer_score";
      if (by_requests && s->stages[i].stage->num_tiles > l->stages[i].stage->num_tiles) {
        RC_TAG("misfit");
        continue;
      }
      check_stage(*s->stages[i].stage, *l->stages[i].stage);
    }
  }
}

// Requests within the given totals.
std::vector<RequestShape> requests_within(int32_t max_requests, int32_t max_rows, int32_t max_kv) {
  std::vector<RequestShape> requests;
  const int32_t count = *rc::gen::inRange(1, std::min(max_requests, max_rows) + 1);
  int32_t left = *rc::gen::inRange(count, max_rows + 1);
  for (int32_t r = 0; r < count; ++r) {
    const int32_t rows = r + 1 == count ? left : *rc::gen::inRange(1, left - (count - r - 1) + 1);
    left -= rows;
    requests.push_back({rows, std::max(rows, *rc::gen::inRange(1, max_kv + 1))});
  }
  return requests;
}

RC_GTEST_PROP(Clipping, AttentionPre, ()) {
  const auto large = glm52::batch_shapes(requests_within(5, 140, 3000));
  RC_ASSERT(large.has_value());
  const auto at = [&](const char* name) { return static_cast<int32_t>(large->symbols.find(name)->second); };
  const auto small = glm52::batch_shapes(requests_within(at("R"), at("M"), at("KV")));
  RC_ASSERT(small.has_value());
  for (const auto& [name, value] : small->symbols) RC_PRE(value <= large->symbols.find(name)->second);
  static const OpGraph graph = attention();
  check_pair(graph, *small, *large);
}

RC_GTEST_PROP(Clipping, Chain, ()) {
  ShapeEnv large, small;
  large.set("M", *rc::gen::inRange(1, 200));
  small.set("M", *rc::gen::inRange<int64_t>(1, large.symbols["M"] + 1));
  static const OpGraph graph = test::plain_chain();
  check_pair(graph, small, large);
}

TEST(Clipping, EveryFamilyIsInOneOfTheGraphs) {
  std::set<std::string, std::less<>> kinds;
  for (const OpGraph& graph : {test::plain_chain(), attention()})
    for (const OpInfo& op : graph.ops()) kinds.insert(op.kind);
  for (const OpFamily* family : op_families())
    EXPECT_TRUE(kinds.contains(family->kind())) << family->kind() << " is not tested here";
}

}  // namespace
}  // namespace megartp
