// megartp plan --partition-graph and --events from outside.
#include <algorithm>
#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/cli_runner.h"

namespace megartp::test {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

constexpr std::string_view kChain = R"({"partition_graph": 1, "ops": [
 {"name": "P", "grid": [96, 1, 1], "outputs": [{"tensor": "t", "map": [0, -1, -1]}]},
 {"name": "C", "grid": [64, 1, 1], "inputs": [{"tensor": "t", "map": [0, -1, -1]}]}]})";

std::string graph_file(std::string_view text, std::string_view name = "graph.json") {
  const std::string path = scratch_path(name);
  EXPECT_TRUE(write_file_atomic(path, text));
  return path;
}

Json plan_of(std::string_view text, const std::string& arguments = "") {
  const CliResult r = run_cli(fmt::format("plan --partition-graph '{}' --json {}", graph_file(text), arguments));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.err, IsEmpty());
  const Json j = Json::parse(r.out);
  EXPECT_EQ(j["schema"], "megartp.plan.v1");
  EXPECT_EQ(j["command"], "plan");
  return j["result"];
}

TEST(PlanPartition, JsonHasCountsAndEdges) {
  const Json exact = plan_of(kChain);
  EXPECT_EQ(exact["mode"], "exact");
  EXPECT_EQ(exact["tasks"], 160);
  EXPECT_EQ(exact["relay_tasks"], 0);
  EXPECT_EQ(exact["events"], 64);
  EXPECT_EQ(exact["roots"], 96);
  EXPECT_EQ(exact["end_triggers"], 64);
  EXPECT_EQ(exact["implied_edges"], Json::array());
  EXPECT_EQ(exact["warnings"], Json::array());
  EXPECT_EQ(exact["edges"], Json::parse(R"([{"producer": "P", "consumer": "C", "tensor": "t", "hazards": ["raw"],
    "policy": "tile_cover", "events": [{"triggers": 2, "consumers": 1, "count": 64}]}])"));
}

TEST(PlanPartition, EventsChoosesTheMode) {
  const auto events = [](const char* mode) {
    const Json result = plan_of(kChain, fmt::format("--events {}", mode));
    EXPECT_EQ(result["mode"], mode);
    return result["edges"][0]["events"];
  };
  EXPECT_EQ(events("gcd"), Json::parse(R"([{"triggers": 3, "consumers": 2, "count": 32}])"));
  EXPECT_EQ(events("whole"), Json::parse(R"([{"triggers": 96, "consumers": 64, "count": 1}])"));
  EXPECT_FALSE(events("auto").empty());
}

TEST(PlanPartition, ReadsStdin) {
  const std::string out = scratch_path("from_stdin.json");
  const std::string command =
      fmt::format("'{}' plan --partition-graph - --json < '{}' > '{}'", MEGARTP_CLI, graph_file(kChain), out);
  ASSERT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(Json::parse(read_file(out).value())["result"], plan_of(kChain));
}

TEST(PlanPartition, TablesNameOpsAndEdgesAndWarningsGoToStderr) {
  constexpr std::string_view kRepeated = R"({"partition_graph": 1, "ops": [
    {"name": "writer", "grid": [4, 8, 1], "outputs": [{"tensor": "buffer", "map": [0, -1, -1]}]},
    {"name": "reader", "grid": [4, 1, 1], "inputs": [{"tensor": "buffer", "map": [0, -1, -1]}]}]})";
  const std::string path = graph_file(kRepeated);
  const CliResult r = run_cli(fmt::format("plan --partition-graph '{}'", path));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  EXPECT_THAT(r.out, AllOf(HasSubstr("2 ops: 36 tasks"), HasSubstr("4 x 8 x 1"), HasSubstr("writer -> reader"),
                           HasSubstr("buffer"), HasSubstr("raw"), HasSubstr("8 -> 1 x4")));
  EXPECT_THAT(r.err,
              AllOf(HasSubstr("megartp: warning: op 'writer': 8 tasks write each region"), Not(HasSubstr("error"))));
  const CliResult quiet = run_cli(fmt::format("plan --partition-graph '{}' -q", path));
  EXPECT_EQ(quiet.exit_code, 0);
  EXPECT_THAT(quiet.out + quiet.err, IsEmpty());
  EXPECT_EQ(plan_of("{\"partition_graph\": 1, \"ops\": [{\"name\": \"A\", \"grid\": [2, 1, 1], \"outputs\": "
                    "[{\"tensor\": \"t\", \"map\": [-1, -1, -1]}]}]}")["warnings"]
                .size(),
            1U);
}

TEST(PlanPartition, GoesWithoutModelOptions) {
  const std::string path = graph_file(kChain);
  for (const char* option :
       {"glm52-attention-pre", "--config x", "--layer 3", "--layers 2", "--hadamard", "--m 3", "--kv 70",
        "--requests 1", "--target h100", "--workers 4", "--packer round-robin", "--finalizer tasks", "-o x.plan"}) {
    const CliResult r = run_cli(fmt::format("plan --partition-graph '{}' {}", path, option));
    EXPECT_EQ(r.exit_code, 2) << option << "\n" << r.err;
    EXPECT_THAT(r.err,
                AllOf(testing::StartsWith("megartp: error: plan: --partition-graph"), HasSubstr("goes without it")))
        << option;
    EXPECT_THAT(r.out, IsEmpty()) << option;
  }
  EXPECT_EQ(run_cli(fmt::format("plan --partition-graph '{}' --events fine", path)).exit_code, 2);
  EXPECT_THAT(run_cli("plan").err, HasSubstr("a model name or --partition-graph"));
}

TEST(PlanPartition, BadFilesAreExitCode3) {
  struct Case {
    std::string_view text;
    std::vector<std::string> words;
  };
  const Case cases[] = {
      {"{\"partition_graph\": 1,\n \"ops\": [}", {"line 2"}},
      {"[]", {"expected an object"}},
      {R"({"partition_graph": 3, "ops": []})", {"expected 1"}},
      {R"({"partition_graph": 1, "ops": []})", {"no ops"}},
      {R"({"partition_graph": 1, "ops": [{"name": "A", "grid": [1, 1, 1], "maps": 3}]})", {"'maps'", "ops[0]"}},
      {R"({"partition_graph": 1, "ops": [{"name": "A", "grid": [1, 1]}]})", {"op 'A'", "ops[0].grid"}},
      {R"({"partition_graph": 1, "tensors": {"t": {"shape": [4]}}, "ops": [{"name": "A", "grid": [4, 1, 1],
           "inputs": [{"tensor": "t", "map": [1, -1, -1]}]}]})",
       {"op 'A' reads tensor 't'", "axis x", "[4]"}},
      {R"({"partition_graph": 1, "ops": [{"name": "A", "grid": [1048576, 4096, 1]}]})", {"op 'A'", "tasks"}},
  };
  for (const Case& c : cases) {
    const std::string path = graph_file(c.text, "bad_graph.json");
    const CliResult r = run_cli(fmt::format("plan --partition-graph '{}'", path));
    EXPECT_EQ(r.exit_code, 3) << c.text << "\n" << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_THAT(r.err, AllOf(testing::StartsWith("megartp: error: "), HasSubstr(path)));
    for (const std::string& word : c.words) EXPECT_THAT(r.err, HasSubstr(word));
    EXPECT_THAT(r.out, IsEmpty());
    const CliResult json = run_cli(fmt::format("plan --partition-graph '{}' --json", path));
    EXPECT_EQ(Json::parse(json.out)["error"]["exit_code"], 3);
  }
  EXPECT_EQ(run_cli("plan --partition-graph /no/such/file").exit_code, 3);
}

TEST(PlanEvents, AreAnOptionOfModelsToo) {
  const std::string config = small_config_path();
  for (const char* mode : {"exact", "auto", "gcd", "whole"}) {
    const CliResult r = run_cli(fmt::format(
        "run glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1 --events {} --check", config, mode));
    EXPECT_EQ(r.exit_code, 0) << mode << "\n" << r.err;
  }
  const auto num_events = [&](const char* mode) {
    const CliResult r =
        run_cli(fmt::format("plan glm52-attention-pre --m 16 --kv 8192 --requests 2 --events {} --json", mode));
    EXPECT_EQ(r.exit_code, 0) << r.err;
    return Json::parse(r.out)["result"]["events"].get<int>();
  };
  EXPECT_LT(num_events("whole"), num_events("exact"));
  EXPECT_EQ(run_cli("plan glm52-attention-pre --events fine").exit_code, 2);
  const std::string plan = scratch_path("events.plan");
  const std::string batch = fmt::format("--config '{}' --m 3 --kv 70 --requests 1", config);
  ASSERT_EQ(run_cli(fmt::format("plan glm52-attention-pre {} --workers 2 -q -o '{}'", batch, plan)).exit_code, 0);
  const CliResult fixed = run_cli(fmt::format("run glm52-attention-pre {} --plan '{}' --events whole", batch, plan));
  EXPECT_EQ(fixed.exit_code, 2);
  EXPECT_THAT(fixed.err, HasSubstr("--events"));
}

}  // namespace
}  // namespace megartp::test
