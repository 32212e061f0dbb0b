// `megartp verify MODEL` and `megartp verify plan` from outside.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <algorithm>
#include <iterator>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/cli_runner.h"
#include "plan/kernel_plan.h"

namespace megartp::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using Json = nlohmann::json;

std::string save_plan_file(const std::string& name) {
  const std::string path = scratch_path(name);
  const CliResult r =
      run_cli(fmt::format("plan glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1 --workers 4 -q -o '{}'",
                          small_config_path(), path));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  return path;
}

// The first task of this op waits for nothing any more.
void drop_waits(const std::string& path, std::string_view op) {
  KernelPlan plan = load_plan(path).value();
  for (abi::Instruction& i : plan.instructions) {
    if (i.opcode == abi::kOpcodeNoOp || plan.operand_rows[i.operand_row].name != op || abi::num_waits(i) == 0) continue;
    std::fill(std::begin(i.waits), std::end(i.waits), abi::Wait{});
    i.counts = abi::make_counts(0, abi::num_signals(i), abi::num_payload(i));
    ASSERT_TRUE(save_plan(plan, path));
    return;
  }
  FAIL() << "no task of " << op << " has a wait";
}

TEST(CliVerify, AModelAndItsPlanAreProved) {
  const std::string model =
      fmt::format("verify glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1", small_config_path());
  const CliResult text = run_cli(model);
  EXPECT_EQ(text.exit_code, 0) << text.err;
  EXPECT_THAT(text.out, HasSubstr("for h200: proved"));
  EXPECT_THAT(text.err, IsEmpty());
  const CliResult json = run_cli(fmt::format("verify plan '{}' --json", save_plan_file("proved.plan")));
  EXPECT_EQ(json.exit_code, 0) << json.err;
  const Json j = Json::parse(json.out);
  EXPECT_EQ(j["schema"], "megartp.verify-plan.v1");
  EXPECT_TRUE(j["result"]["proved"].get<bool>());
  EXPECT_TRUE(j["result"]["findings"].empty());
  EXPECT_GT(j["result"]["statistics"]["orderings"].get<int>(), 10);
  EXPECT_EQ(j["result"]["statistics"]["workers"], 4);
}

TEST(CliVerify, ARaceIsExitCode1WithItsPlace) {
  const std::string path = save_plan_file("race.plan");
  drop_waits(path, "E1");
  const CliResult text = run_cli(fmt::format("verify plan '{}'", path));
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.out, HasSubstr("error read_before_write: worker "));
  EXPECT_THAT(text.out, HasSubstr("(E1 tile "));
  EXPECT_THAT(text.out, HasSubstr("NOT proved"));
  const CliResult json = run_cli(fmt::format("verify plan '{}' --json", path));
  EXPECT_EQ(json.exit_code, 1);
  const Json finding = Json::parse(json.out)["result"]["findings"][0];
  EXPECT_EQ(finding["severity"], "error");
  EXPECT_THAT(finding["places"][0]["name"].get<std::string>(), HasSubstr("E1 tile"));
}

TEST(CliVerify, WrongSumsAreFindingsNotBadFiles) {
  const std::string path = save_plan_file("sums.plan");
  KernelPlan plan = load_plan(path).value();
  ++plan.events[0].total;
  ASSERT_TRUE(save_plan(plan, path));
  const CliResult r = run_cli(fmt::format("verify plan '{}'", path));
  EXPECT_EQ(r.exit_code, 1);
  EXPECT_THAT(r.out, HasSubstr("error stale_epoch: event 0"));
  EXPECT_EQ(run_cli(fmt::format("disasm '{}'", path)).exit_code, 3);
}

TEST(CliVerify, LimitsOfTheRunner) {
  const std::string path = save_plan_file("limits.plan");
  EXPECT_EQ(run_cli(fmt::format("verify plan '{}' --target h100 --pages 6 --scratch-bytes 4096", path)).exit_code, 0);
  const CliResult pages = run_cli(fmt::format("verify plan '{}' --pages 14 --scratch-bytes 4096", path));
  EXPECT_EQ(pages.exit_code, 1);
  EXPECT_THAT(pages.out, HasSubstr("smem_budget"));
  const CliResult ring = run_cli(fmt::format("verify plan '{}' --max-queue-depth 2", path));
  EXPECT_EQ(ring.exit_code, 1);
  EXPECT_THAT(ring.out, HasSubstr("queue_overflow"));
  const CliResult workers = run_cli("verify glm52-attention-pre --target h200 --workers 300");
  EXPECT_EQ(workers.exit_code, 1);
  EXPECT_THAT(workers.out, HasSubstr("over_subscribe: the plan has 300 workers, but h200 keeps only 264 resident"));
}

TEST(CliVerify, MisuseAndBadFiles) {
  EXPECT_EQ(run_cli("verify").exit_code, 2);
  EXPECT_EQ(run_cli("verify plan").exit_code, 2);
  EXPECT_EQ(run_cli("verify plan a.plan --target nothing").exit_code, 3) << "the file is missed first";
  EXPECT_EQ(run_cli("verify no-such-model").exit_code, 2);
  const std::string path = save_plan_file("cut.plan");
  ASSERT_TRUE(write_file_atomic(path, read_file(path, 1 << 30).value().substr(0, 1000)));
  const CliResult r = run_cli(fmt::format("verify plan '{}'", path));
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err, HasSubstr("cut.plan"));
}

}  // namespace
}  // namespace megartp::test
