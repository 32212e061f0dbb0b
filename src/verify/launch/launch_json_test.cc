#include "verify/launch/launch_json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "verify/launch/launch_test_support.h"

namespace megartp::launch::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr std::string_view kGood = R"({"launch": 1,
 "buffers": [{"name": "x", "bytes": 256}, {"name": "n", "bytes": 4, "kind": "counter"}],
 "nodes": [{"name": "A", "trigger": "after_wait", "waits": "all", "writes": [{"buffer": "x", "range": [0, 128]}]},
           {"name": "B", "waits": "all", "reads": [{"buffer": "x", "how": "tma"}], "writes": [{"buffer": "n", "phase": "pre"}]}],
 "edges": [{"from": "A", "to": "B", "kind": "programmatic"}]})";

TEST(LaunchJson, ReadsAGraph) {
  const auto input = launch_from_json(kGood);
  ASSERT_TRUE(input) << input.error().to_string();
  const Graph& g = std::get<Graph>(*input);
  ASSERT_EQ(g.nodes.size(), 2U);
  EXPECT_EQ(g.nodes[0].trigger, Trigger::kAfterWait);
  EXPECT_EQ(g.nodes[0].accesses[0].end, 128U);
  // After the wait, because the node has one.
  EXPECT_EQ(g.nodes[0].accesses[0].phase, Phase::kPost);
  EXPECT_EQ(g.nodes[1].accesses[0].end, 256U);
  EXPECT_EQ(g.nodes[1].accesses[0].means, Means::kTma);
  EXPECT_EQ(g.nodes[1].accesses[1].phase, Phase::kPre);
  EXPECT_EQ(g.buffers[1].kind, BufferKind::kCounter);
  ASSERT_EQ(g.edges.size(), 1U);
  EXPECT_EQ(g.edges[0].kind, EdgeKind::kProgrammatic);
}

TEST(LaunchJson, WhatIsWrittenReadsAsTheSame) {
  const auto round_trip = [](const LaunchInput& input) {
    const std::string text = std::visit([](const auto& v) { return to_json(v); }, input);
    const auto again = launch_from_json(text);
    ASSERT_TRUE(again) << again.error().to_string() << text;
    EXPECT_EQ(std::visit([](const auto& v) { return to_json(v); }, *again), text);
  };
  for (const std::string& name : fault_names())
    for (const char* suffix : {".json", ".ok.json"})
      round_trip(launch_from_json(read_file(fault_path(name + suffix)).value()).value());
}

// The good text with one piece replaced.
std::string error_of(std::string_view from, std::string_view to) {
  std::string text(kGood);
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  const auto input = launch_from_json(text);
  if (input) return "no error";
  EXPECT_EQ(input.error().code, ErrorCode::kParse);
  return input.error().to_string();
}

TEST(LaunchJson, ErrorsNameThePlace) {
  EXPECT_THAT(error_of("\"launch\": 1", "\"launch\": 2"), HasSubstr("expected 1"));
  EXPECT_THAT(error_of("\"name\": \"B\"", "\"name\": \"A\""), AllOf(HasSubstr("nodes[1].name"), HasSubstr("'A'")));
  EXPECT_THAT(error_of("\"name\": \"n\"", "\"name\": \"x\""), HasSubstr("buffers[1].name"));
  EXPECT_THAT(error_of("\"name\": \"B\"", "\"name\": \"B\\u0007\""),
              AllOf(HasSubstr("nodes[1].name"), HasSubstr("printable")));
  EXPECT_THAT(error_of("\"bytes\": 256", "\"bytes\": 0"), HasSubstr("buffers[0].bytes"));
  EXPECT_THAT(error_of("\"trigger\": \"after_wait\"", "\"trigger\": \"late\""),
              AllOf(HasSubstr("nodes[0].trigger"), HasSubstr("'late' is none of none, after_wait, before_wait")));
  EXPECT_THAT(error_of("\"trigger\": \"after_wait\"", "\"triggered\": \"after_wait\""),
              AllOf(HasSubstr("nodes[0]"), HasSubstr("'triggered'")));
  EXPECT_THAT(error_of("\"range\": [0, 128]", "\"range\": [0, 257]"), AllOf(HasSubstr("'A'"), HasSubstr("x[0,257)")));
  EXPECT_THAT(error_of("\"range\": [0, 128]", "\"range\": [128]"),
              AllOf(HasSubstr("nodes[0].writes[0].range"), HasSubstr("node='A'")));
  EXPECT_THAT(error_of("\"range\": [0, 128]", "\"ordered_by\": \"wait\""), HasSubstr("nodes[0].writes[0]"));
  EXPECT_THAT(error_of("{\"buffer\": \"n\"", "{\"buffer\": \"m\""),
              AllOf(HasSubstr("nodes[1].writes[0].buffer"), HasSubstr("'m'")));
  EXPECT_THAT(error_of("\"range\": [0, 128]", "\"how\": \"read_only\""),
              HasSubstr("'A' writes x[0,256) through the read-only"));
  EXPECT_THAT(error_of("\"phase\": \"pre\"", "\"before_trigger\": true"), HasSubstr("the node has none"));
  EXPECT_THAT(error_of("\"from\": \"A\"", "\"from\": \"D\""), AllOf(HasSubstr("edges[0].from"), HasSubstr("'D'")));
  EXPECT_THAT(error_of("\"from\": \"A\", \"to\": \"B\"", "\"from\": \"B\", \"to\": \"A\""),
              AllOf(HasSubstr("'B' -> 'A'"), HasSubstr("reference order")));
  EXPECT_THAT(error_of("\"kind\": \"programmatic\"}", "\"kind\": \"full\"}, {\"from\": \"A\", \"to\": \"B\"}"),
              HasSubstr("edge 'A' -> 'B' is there twice"));
  EXPECT_THAT(error_of("\"edges\": [", "\"program\": [], \"edges\": ["), HasSubstr("either 'edges' or 'program'"));
  EXPECT_THAT(error_of("\"edges\": [", "\"replays\": 2, \"edges\": ["), HasSubstr("'program' only"));
  EXPECT_THAT(error_of("\"name\": \"A\", ", "\"name\": \"A\", \"kind\": \"memset\", "), HasSubstr("only kernels"));
  EXPECT_THAT(error_of("\"edges\": [", "\"edges\": [["), HasSubstr("line 5"));
}

}  // namespace
}  // namespace megartp::launch::test
