// The command-line tool on faults: a run that gets stuck, its dump and the explanation; other schedules; exploring.
#include <cstdio>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/cli_runner.h"
#include "plan/kernel_plan.h"

namespace megartp::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

std::string small_run(const std::string& more) {
  return fmt::format("run glm52-attention-pre --config '{}' --m 2 --kv 70 --requests 1 {}", small_config_path(), more);
}

// A saved plan of the small layer, and a task of it that others wait for.
std::string saved_plan() {
  const std::string path = scratch_path("fault.plan");
  const CliResult r = run_cli(fmt::format(
      "plan glm52-attention-pre --config '{}' --m 2 --kv 70 --requests 1 --target cpu --workers 3 --packer round-robin "
      "-q -o '{}'",
      small_config_path(), path));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  return path;
}
uint32_t victim(const std::string& path) {
  const auto plan = load_plan(path);
  EXPECT_TRUE(plan);
  for (const abi::Instruction& i : plan->instructions)
    if (i.opcode != abi::kOpcodeNoOp && abi::num_signals(i) != 0 && i.join_counter == abi::kNoJoin) return i.task_id;
  ADD_FAILURE() << "no task signals";
  return 0;
}

TEST(CliFault, AStuckRunIsExplained) {
  const std::string plan = saved_plan();
  const uint32_t task = victim(plan);
  for (const char* schedule : {"static", "dynamic"}) {
    for (const char* extension : {"dump", "json"}) {
      SCOPED_TRACE(fmt::format("{} {}", schedule, extension));
      const std::string dump = scratch_path(fmt::format("hang.{}", extension));
      std::remove(dump.c_str());
      const CliResult stuck = run_cli(small_run(
          fmt::format("--plan '{}' --schedule {} --lose-signals-of {} --fault-dump '{}'", plan, schedule, task, dump)));
      EXPECT_EQ(stuck.exit_code, 6) << stuck.err;
      EXPECT_THAT(stuck.err, HasSubstr("megartp: error: deadlock: "));
      EXPECT_THAT(stuck.err, HasSubstr("cause: "));
      const CliResult explained = run_cli(fmt::format("explain-fault '{}' --plan '{}'", dump, plan));
      EXPECT_EQ(explained.exit_code, 0) << explained.err;
      EXPECT_THAT(explained.out, HasSubstr(fmt::format("; task {} (", task)));
      EXPECT_THAT(explained.out.substr(0, explained.out.find('\n')),
                  HasSubstr("never signalled because it ran to its end and its signal was lost"));
      EXPECT_THAT(explained.out, HasSubstr(fmt::format("3 workers, {} schedule", schedule)));
    }
  }
  const CliResult bare = run_cli(fmt::format("explain-fault '{}' -q", scratch_path("hang.dump")));
  EXPECT_EQ(bare.exit_code, 0);
  EXPECT_THAT(bare.out, HasSubstr(fmt::format("task {} never signalled", task)));
  const CliResult json = run_cli(fmt::format("explain-fault '{}' --plan '{}' --json", scratch_path("hang.dump"), plan));
  const Json j = Json::parse(json.out);
  EXPECT_EQ(j["schema"], "megartp.explain-fault.v1");
  EXPECT_THAT(j["result"]["cause"].get<std::string>(), HasSubstr("its signal was lost"));
  EXPECT_EQ(j["result"]["lines"].size(), j["result"]["dump"]["records"].size());
}

TEST(CliFault, ARunThatEndsLeavesNoDump) {
  const std::string dump = scratch_path("none.dump");
  EXPECT_EQ(run_cli(small_run(fmt::format("--fault-dump '{}'", dump))).exit_code, 0);
  EXPECT_FALSE(read_file(dump));
}

TEST(CliFault, BadDumpsAreExitCode3) {
  const std::string path = scratch_path("bad.dump");
  EXPECT_EQ(run_cli("explain-fault /no/such/file").exit_code, 3);
  for (const char* text : {"", "MRTPFALT", "{}", "[]", "hello"}) {
    ASSERT_TRUE(write_file_atomic(path, text));
    const CliResult r = run_cli(fmt::format("explain-fault '{}'", path));
    EXPECT_EQ(r.exit_code, 3) << text;
    EXPECT_THAT(r.err, StartsWith("megartp: error: ")) << text;
    EXPECT_THAT(r.err, HasSubstr("bad.dump")) << text;
    EXPECT_THAT(r.out, IsEmpty());
  }
}

TEST(CliFault, TheDynamicScheduleChecksToo) {
  for (const char* dispatch : {"mixed", "ahead", "just-in-time"}) {
    const CliResult r = run_cli(small_run(
        fmt::format("--check --workers 4 --schedule dynamic --schedulers 2 --dispatch {} --repeat 3", dispatch)));
    EXPECT_EQ(r.exit_code, 0) << r.err;
    EXPECT_THAT(r.out, HasSubstr("PASS"));
  }
  EXPECT_EQ(run_cli(small_run("--workers 2 --schedule dynamic --schedulers 3")).exit_code, 2);
}

TEST(CliFault, ExploreReportsEveryOrder) {
  const CliResult clean = run_cli(small_run("--workers 2 --finalizer tasks --explore"));
  EXPECT_EQ(clean.exit_code, 0) << clean.err;
  EXPECT_THAT(clean.out, StartsWith("1 execution (all that can differ): 0 deadlocks, 0 with outputs"));
  const CliResult bounded = run_cli(small_run("--workers 2 --explore --max-executions 5 --json"));
  EXPECT_EQ(bounded.exit_code, 0) << bounded.err;
  const Json explore = Json::parse(bounded.out)["result"]["explore"];
  EXPECT_EQ(explore["executions"], 5);
  EXPECT_FALSE(explore["complete"].get<bool>());
  EXPECT_EQ(explore["different"], 0);
  EXPECT_THAT(bounded.err, Not(HasSubstr("executions of")));
  EXPECT_THAT(run_cli(small_run("--workers 2 --finalizer tasks --explore --max-executions 1000000")).err,
              HasSubstr("up to 1000000 executions"));
  EXPECT_EQ(run_cli(small_run("--explore --check")).exit_code, 2);
  EXPECT_EQ(run_cli(small_run("--explore --workers 65")).exit_code, 4);
}

}  // namespace
}  // namespace megartp::test
