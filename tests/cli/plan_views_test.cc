// `megartp plan diff`, `plan --explain` and `plan --format mpk` from outside.
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
using testing::StartsWith;
using Json = nlohmann::json;

std::string save_plan_file(const std::string& name, const std::string& arguments) {
  const std::string path = scratch_path(name);
  const CliResult r = run_cli(
      fmt::format("plan glm52-attention-pre --config '{}' {} -q -o '{}'", small_config_path(), arguments, path));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  return path;
}

TEST(CliPlanDiff, ThePlanTwiceIsIdentical) {
  const std::string a = save_plan_file("same_a.plan", "--m 3 --kv 70 --requests 1 --workers 4");
  const std::string b = save_plan_file("same_b.plan", "--m 3 --kv 70 --requests 1 --workers 4");
  const CliResult text = run_cli(fmt::format("plan diff '{}' '{}'", a, b));
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("identical"));
  const CliResult json = run_cli(fmt::format("plan diff '{}' '{}' --json", a, b));
  EXPECT_EQ(json.exit_code, 0);
  const Json result = Json::parse(json.out)["result"];
  EXPECT_TRUE(result["identical"].get<bool>());
  for (const char* part : {"header", "ops", "tensors", "specs", "placement"}) EXPECT_TRUE(result[part].empty()) << part;
}

TEST(CliPlanDiff, AnotherShapeIsExitCode1WithItsFacts) {
  const std::string a = save_plan_file("shape_a.plan", "--m 3 --kv 70 --requests 1 --workers 4");
  const std::string b = save_plan_file("shape_b.plan", "--m 9 --kv 70 --requests 1 --workers 5");
  const CliResult text = run_cli(fmt::format("plan diff '{}' '{}'", a, b));
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.err, IsEmpty());
  for (const char* word : {"shape M", "workers", "hidden_q", "wait_thresholds", "other worker"})
    EXPECT_THAT(text.out, HasSubstr(word));
  EXPECT_THAT(text.out, Not(HasSubstr("packer")));
  const CliResult json = run_cli(fmt::format("plan diff '{}' '{}' --json", a, b));
  EXPECT_EQ(json.exit_code, 1);
  const Json j = Json::parse(json.out);
  EXPECT_EQ(j["schema"], "megartp.plan-diff.v1");
  EXPECT_FALSE(j["result"]["identical"].get<bool>());
  EXPECT_EQ(j["result"]["header"]["shape M"], Json({{"a", 3}, {"b", 9}}));
  EXPECT_EQ(j["result"]["header"]["workers"], Json({{"a", 4}, {"b", 5}}));
  bool found = false;
  for (const Json& t : j["result"]["tensors"])
    if (t["name"] == "hidden_q") {
      found = true;
      EXPECT_EQ(t["fields"]["dims"]["b"], "[9, 512]");
    }
  EXPECT_TRUE(found);
}

TEST(CliPlanDiff, AnotherPackerMovesTasks) {
  const std::string a = save_plan_file("pack_a.plan", "--m 8 --kv 300 --workers 4 --packer round-robin");
  const std::string b = save_plan_file("pack_b.plan", "--m 8 --kv 300 --workers 4 --packer critical-path");
  const CliResult r = run_cli(fmt::format("plan diff '{}' '{}' --json", a, b));
  EXPECT_EQ(r.exit_code, 1);
  const Json result = Json::parse(r.out)["result"];
  EXPECT_TRUE(result["ops"].empty());
  EXPECT_TRUE(result["header"].contains("packer"));
  uint64_t moved = 0;
  for (const Json& p : result["placement"]) {
    moved += p["other_worker"].get<uint64_t>() + p["other_slot"].get<uint64_t>();
    EXPECT_EQ(p["other_contents"], 0);
  }
  EXPECT_GT(moved, 0U);
}

TEST(CliPlanDiff, UnreadableFilesAndMisuse) {
  const std::string plan = save_plan_file("good.plan", "--m 1 --kv 64");
  const std::string bad = scratch_path("bad.plan");
  ASSERT_TRUE(write_file_atomic(bad, "not a plan"));
  for (const std::string& other : {bad, scratch_path("missing.plan")}) {
    const CliResult r = run_cli(fmt::format("plan diff '{}' '{}'", plan, other));
    EXPECT_EQ(r.exit_code, 3) << r.err;
    EXPECT_THAT(r.err, AllOf(StartsWith("megartp: error: "), HasSubstr(other)));
    EXPECT_THAT(r.out, IsEmpty());
  }
  EXPECT_EQ(run_cli("plan diff").exit_code, 2);
  EXPECT_EQ(run_cli(fmt::format("plan diff '{}'", plan)).exit_code, 2);
}

TEST(CliPlanDiff, HelpAndCompletionKnowIt) {
  EXPECT_EQ(run_cli("plan diff --help").exit_code, 0);
  EXPECT_THAT(run_cli("plan --help").out, AllOf(HasSubstr("diff"), HasSubstr("model")));
  EXPECT_THAT(run_cli("completion bash").out, HasSubstr("\"plan diff\"*)"));
  EXPECT_THAT(run_cli("completion fish").out, HasSubstr("__fish_seen_subcommand_from plan' -a diff"));
}

TEST(CliPlanExplain, TheTableNamesEveryEdgeAndTheSummaryAddsUp) {
  const std::string batch = fmt::format("--config '{}' --m 5 --kv 300 --workers 4", small_config_path());
  const CliResult text = run_cli(fmt::format("plan glm52-attention-pre {} --explain", batch));
  ASSERT_EQ(text.exit_code, 0) << text.err;
  for (const char* word :
       {"producer", "hidden_q", "tile_reduce", "granularity", "live edges by granularity", "task pairs"})
    EXPECT_THAT(text.out, HasSubstr(word));
  const CliResult quiet = run_cli(fmt::format("plan glm52-attention-pre {} --explain -q", batch));
  EXPECT_THAT(quiet.out, StartsWith("producer"));

  const CliResult json = run_cli(fmt::format("plan glm52-attention-pre {} --explain --json", batch));
  ASSERT_EQ(json.exit_code, 0) << json.err;
  const Json result = Json::parse(json.out)["result"];
  const Json& explain = result["explain"];
  EXPECT_EQ(explain["events"], result["events"]);
  const Json& live = explain["live_edges"];
  EXPECT_EQ(live["per_tile"].get<size_t>() + live["groups"].get<size_t>() + live["barrier"].get<size_t>() +
                explain["implied_edges"].get<size_t>(),
            explain["edges"].size());
  // Pairs, from the plan's own list of events.
  uint64_t pairs = 0;
  for (const Json& event : result["events_list"]) {
    uint64_t consumers = 0;
    for (const auto& [op, entry] : event["consumers"].items()) consumers += entry["count"].get<uint64_t>();
    pairs += event["producers"]["count"].get<uint64_t>() * consumers;
  }
  EXPECT_EQ(explain["task_pairs"], pairs);
  bool found = false;
  for (const Json& edge : explain["edges"])
    if (edge["producer"] == "C0" && edge["tensor"] == "gate_partials") {
      found = true;
      EXPECT_EQ(edge["consumer"], "D1");
      EXPECT_EQ(edge["policy"], "tile_reduce");
      EXPECT_EQ(edge["hazards"], Json({"raw"}));
      EXPECT_GE(edge["num_events"], 1);
    }
  EXPECT_TRUE(found);
}

TEST(CliPlanMpk, TheFileHasTheirShapeBeforeAndAfterTheRewrite) {
  for (const char* format : {"mpk", "mpk-launch"}) {
    const std::string path = scratch_path(format);
    const CliResult r =
        run_cli(fmt::format("plan glm52-attention-pre --config '{}' --layer 3 --m 9 --kv 70 --format {} "
                            "-o '{}' --json",
                            small_config_path(), format, path));
    ASSERT_EQ(r.exit_code, 0) << r.err;
    const Json summary = Json::parse(r.out)["result"];
    const Json file = Json::parse(read_file(path).value());
    const Json& tasks = file["all_tasks"];
    const Json& events = file["all_events"];
    EXPECT_EQ(tasks.size(), summary["tasks"].get<size_t>() + 2);
    EXPECT_EQ(events.size(), summary["events"].get<size_t>() + 3);
    EXPECT_EQ(file["first_tasks"].size(), 9U) << "one tile of A0 a row";
    uint64_t triggers = 0;
    uint64_t released = file["first_tasks"].size();
    for (size_t e = 2; e < events.size(); ++e) {
      triggers += events[e]["num_triggers"].get<uint64_t>();
      released += events[e]["last_task_id"].get<uint64_t>() - events[e]["first_task_id"].get<uint64_t>();
      if (e + 1 < events.size())
        EXPECT_EQ(events[e]["event_type"] == 900, std::string_view(format) == "mpk") << events[e];
    }
    EXPECT_EQ(triggers, summary["tasks"]);
    EXPECT_EQ(released, summary["tasks"]);
    EXPECT_EQ(events[1]["last_task_id"],
              2 + (std::string_view(format) == "mpk" ? summary["tasks"].get<size_t>() : size_t{9}));
    EXPECT_EQ(tasks[2]["task_name"], "add_rmsnorm_quant");
    EXPECT_EQ(tasks[2]["inputs"][0]["base_ptr"], "x");
  }
}

// Its ops have several producers and several consumers: relays make them fit.
TEST(CliPlanMpk, AWholeLayerIsNormalised) {
  const CliResult r =
      run_cli(fmt::format("plan glm52-attention-pre --config '{}' --m 5 --kv 300 --format mpk", small_config_path()));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json file = Json::parse(r.out);
  bool has_relays = false;
  for (const Json& task : file["all_tasks"]) has_relays = has_relays || task["task_name"] == "relay";
  EXPECT_TRUE(has_relays);
}

TEST(CliPlan, ContradictionsAreMisuse) {
  for (const char* args : {"plan", "plan --json", "plan --m 4", "plan glm52-attention-pre --explain -o -",
                           "plan glm52-attention-pre --explain --format mpk", "plan glm52-attention-pre --format dot",
                           "plan glm52-attention-pre --format mpk --json"}) {
    const CliResult r = run_cli(args);
    EXPECT_EQ(r.exit_code, 2) << args;
    EXPECT_THAT(r.err, StartsWith("megartp: error: ")) << args;
  }
}

}  // namespace
}  // namespace megartp::test
