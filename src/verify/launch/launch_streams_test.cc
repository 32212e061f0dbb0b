// How programs of launches become edges.
#include "verify/launch/launch_streams.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/launch/launch_json.h"
#include "verify/launch/launch_prover.h"

namespace megartp::launch {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

LoweredProgram lower(const std::string& ops, const std::string& more = "") {
  const std::string text = R"({"launch": 1, "buffers": [{"name": "x", "bytes": 64}], "nodes": [
    {"name": "A"}, {"name": "B", "waits": "all"}, {"name": "C", "waits": "all"}, {"name": "Z", "kind": "memset"}],)" +
                           more + "\"program\": [" + ops + "]}";
  const auto input = launch_from_json(text);
  EXPECT_TRUE(input) << input.error().to_string();
  return input ? to_graph(*input).value() : LoweredProgram{};
}

std::vector<std::string> edges(const LoweredProgram& p) {
  std::vector<std::string> out;
  for (const Edge& e : p.graph.edges)
    out.push_back(fmt::format("{}>{} {}", p.graph.nodes[e.from].name, p.graph.nodes[e.to].name, to_string(e.kind)));
  return out;
}

TEST(LaunchStreams, TheAttributeMakesTheEdgeFromTheLastKernelProgrammatic) {
  EXPECT_THAT(edges(lower(R"({"launch": "A", "stream": "s"}, {"launch": "B", "stream": "s"})")),
              ElementsAre("A>B full"));
  EXPECT_THAT(edges(lower(R"({"launch": "A", "stream": "s"}, {"launch": "B", "stream": "s", "pss": true})")),
              ElementsAre("A>B programmatic"));
}

TEST(LaunchStreams, AfterAMemsetTheAttributeIsLost) {
  const LoweredProgram p = lower(
      R"({"launch": "A", "stream": "s"}, {"launch": "Z", "stream": "s"}, {"launch": "B", "stream": "s", "pss": true})");
  EXPECT_THAT(edges(p), ElementsAre("A>Z full", "Z>B full"));
  ASSERT_THAT(p.findings, SizeIs(1));
  EXPECT_EQ(p.findings[0].rule, Rule::kR7);
  EXPECT_EQ(p.findings[0].severity, Severity::kWarning);
  EXPECT_THAT(p.findings[0].message, HasSubstr("'Z'"));
}

TEST(LaunchStreams, EventsOfEveryKindCrossStreams) {
  const auto with = [](const std::string& attribute) {
    return edges(lower(fmt::format(R"({{"launch": "A", "stream": "s" {}}}, {{"wait": "e", "stream": "t"}},
      {{"launch": "B", "stream": "t"}}, {{"record": "f", "stream": "t"}}, {{"wait": "f", "stream": "s"}})",
                                   attribute)));
  };
  EXPECT_THAT(with(R"(, "programmatic_event": "e")"), ElementsAre("A>B programmatic"));
  EXPECT_THAT(with(R"(, "programmatic_event": "e", "at_block_start": true)"), ElementsAre("A>B block_start"));
  EXPECT_THAT(with(R"(, "launch_completion_event": "e")"), ElementsAre("A>B launch_completion"));
  EXPECT_THAT(with(R"(}, {"record": "e", "stream": "s")"), ElementsAre("A>B full"));
}

TEST(LaunchStreams, AJoinMixesKindsAndTheStrongestWins) {
  EXPECT_THAT(edges(lower(R"({"launch": "A", "stream": "s", "programmatic_event": "e"}, {"record": "r", "stream": "s"},
      {"wait": "e", "stream": "t"}, {"launch": "B", "stream": "t"}, {"wait": "r", "stream": "t"},
      {"record": "g", "stream": "t"}, {"wait": "g", "stream": "s"}, {"launch": "C", "stream": "s", "pss": true})")),
              ElementsAre("A>B programmatic", "A>C programmatic", "B>C full"));
  EXPECT_THAT(edges(lower(R"({"launch": "A", "stream": "s", "programmatic_event": "e"}, {"wait": "e", "stream": "s"},
      {"launch": "B", "stream": "s"})")),
              ElementsAre("A>B full"));
}

TEST(LaunchStreams, ASideStreamMustJoinFully) {
  const std::string fork = R"({"launch": "A", "stream": "s", "programmatic_event": "e"}, {"wait": "e", "stream": "t"},
      {"launch": "B", "stream": "t", "programmatic_event": "f"}, {"wait": "f", "stream": "s"}, {"launch": "C", "stream": "s"})";
  const LoweredProgram half = lower(fork);
  ASSERT_THAT(half.findings, SizeIs(1));
  EXPECT_EQ(half.findings[0].rule, Rule::kR8);
  EXPECT_THAT(half.findings[0].message, HasSubstr("'B'"));
  EXPECT_FALSE(prove(half).is_ok());
  EXPECT_THAT(lower(fork + R"(, {"record": "g", "stream": "t"}, {"wait": "g", "stream": "s"})").findings, IsEmpty());
  EXPECT_THAT(lower(fork, "\"capture\": false, \"replays\": 1,").findings, IsEmpty());
}

TEST(LaunchStreams, AProgrammaticEventIntoAMemsetFailsOnlyUnderCapture) {
  const std::string ops = R"({"launch": "A", "stream": "s", "programmatic_event": "e"}, {"wait": "e", "stream": "t"},
      {"launch": "Z", "stream": "t"}, {"record": "g", "stream": "t"}, {"wait": "g", "stream": "s"})";
  const LoweredProgram captured = lower(ops);
  ASSERT_THAT(captured.findings, SizeIs(1));
  EXPECT_EQ(captured.findings[0].severity, Severity::kError);
  EXPECT_THAT(edges(captured), ElementsAre("A>Z full"));
  EXPECT_EQ(lower(ops, "\"capture\": false, \"replays\": 1,").findings.at(0).severity, Severity::kWarning);
}

TEST(LaunchStreams, ReplaysWithoutAGraphRunIntoEachOther) {
  const LoweredProgram p =
      lower(R"({"launch": "A", "stream": "s", "pss": true}, {"launch": "B", "stream": "s", "pss": true},
      {"launch": "B", "stream": "s"})",
            "\"capture\": false, \"replays\": 2,");
  EXPECT_THAT(edges(p), ElementsAre("A>B programmatic", "B>B#2 full", "B#2>A (replay 2) programmatic",
                                    "A (replay 2)>B (replay 2) programmatic", "B (replay 2)>B#2 (replay 2) full"));
}

TEST(LaunchStreams, AWaitForAnEventThatNothingRecordedIsAnError) {
  const auto input = launch_from_json(R"({"launch": 1, "buffers": [], "nodes": [{"name": "A"}], "program": [
    {"launch": "A", "stream": "s"}, {"wait": "e", "stream": "s"}]})");
  ASSERT_FALSE(input);
  EXPECT_EQ(input.error().code, ErrorCode::kParse);
  EXPECT_THAT(input.error().to_string(), HasSubstr("program[1]: stream 's' waits for event 'e'"));
}

}  // namespace
}  // namespace megartp::launch
