// Text forms of attention-pre's graph against files in the repository; MEGARTP_UPDATE_GOLDEN=1 rewrites them.
#include <string>

#include <gtest/gtest.h>

#include "megartp/op_graph.h"
#include "models/glm52/glm52.h"
#include "support/golden_text.h"

namespace megartp {
namespace {

OpGraph graph() { return glm52::attention_pre_graph(glm52::Config{}, glm52::Options{}, 0); }

std::string golden(const std::string& name) { return std::string(MEGARTP_SOURCE_DIR) + "/tests/golden/" + name; }

TEST(GraphText, Json) { test::expect_golden_text(golden("attention_pre.json"), to_json(graph())); }
TEST(GraphText, Dot) { test::expect_golden_text(golden("attention_pre.dot"), to_dot(graph())); }
TEST(GraphText, Mermaid) { test::expect_golden_text(golden("attention_pre.mmd"), to_mermaid(graph())); }

// One layer with an indexer, one without, and several in one graph.
TEST(GraphText, JsonRoundTrip) {
  for (const int64_t first : {0, 3})
    for (const int64_t layers : {1, 5}) {
      const OpGraph g = glm52::attention_pre_graph(glm52::Config{}, glm52::Options{}, first, layers);
      ASSERT_TRUE(g.status()) << g.status().error().to_string();
      const Result<OpGraph> again = graph_from_json(to_json(g));
      ASSERT_TRUE(again) << again.error().to_string();
      EXPECT_EQ(*again, g);
    }
}

}  // namespace
}  // namespace megartp
