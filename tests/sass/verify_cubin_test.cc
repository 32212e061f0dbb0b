// megartp verify cubin as a user calls it: exit codes, what stands on stdout, JSON.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/cli_runner.h"

namespace megartp::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using Json = nlohmann::json;

std::string file(const std::string& name) {
  return fmt::format("'{}/tests/faults/cubin/{}'", MEGARTP_SOURCE_DIR, name);
}
CliResult verify(const std::string& cubin, const std::string& contract, const std::string& more = "") {
  return run_cli(fmt::format("verify cubin {} --contract {} {}", file(cubin), file(contract), more));
}

TEST(VerifyCubin, FaultAndTwin) {
  const CliResult faulty = verify("read_before_wait.cubin", "read_before_wait.json");
  EXPECT_EQ(faulty.exit_code, 1);
  EXPECT_THAT(faulty.out,
              HasSubstr("read_before_wait: kernel 'scale_rows', 0x0060: LDG R0, desc[UR4][R2.64] reads 'lengths'"));
  EXPECT_THAT(faulty.out, HasSubstr("1 kernels, 1 findings"));
  const CliResult sound = verify("read_before_wait_ok.cubin", "read_before_wait.json", "-q");
  EXPECT_EQ(sound.exit_code, 0);
  EXPECT_THAT(sound.out, IsEmpty());
  EXPECT_THAT(sound.err, IsEmpty());
}

TEST(VerifyCubin, JsonHoldsFindingsAndScan) {
  const CliResult r = verify("split_loader.cubin", "split_loader.json", "--json");
  EXPECT_EQ(r.exit_code, 1);
  const Json j = Json::parse(r.out);
  EXPECT_EQ(j["schema"], "megartp.verify-cubin.v1");
  const Json& result = j["result"];
  ASSERT_EQ(result["findings"].size(), 1U);
  EXPECT_EQ(result["findings"][0]["rule"], "read_before_wait");
  EXPECT_EQ(result["findings"][0]["kernel"], "multiply");
  const Json& kernel = result["kernels"].at(0);
  EXPECT_EQ(kernel["coverage"], "some-threads");
  bool found = false;
  for (const Json& access : kernel["accesses"]) {
    if (access["offset"] != result["findings"][0]["offset"]) continue;
    found = true;
    EXPECT_EQ(access["order"], "before-wait");
    EXPECT_EQ(access["param_offsets"].at(0), kernel["params"].at(1)["offset"]);
  }
  EXPECT_TRUE(found);
}

TEST(VerifyCubin, WithoutContractItOnlyTells) {
  const CliResult r = run_cli("verify cubin " + file("early_exit.cubin"));
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_THAT(r.out, HasSubstr("waits: some-paths 0x00a0"));
  EXPECT_THAT(r.out, HasSubstr("exit without a wait: 0x0070"));
}

TEST(VerifyCubin, BadFiles) {
  EXPECT_EQ(run_cli("verify cubin /nonexistent.cubin").exit_code, 3);
  const CliResult program = run_cli(fmt::format("verify cubin '{}'", MEGARTP_CLI));
  EXPECT_EQ(program.exit_code, 4);
  EXPECT_THAT(program.err, HasSubstr("not a cubin"));
  const CliResult contract = verify("early_exit.cubin", "cases.json");
  EXPECT_EQ(contract.exit_code, 3);
  EXPECT_THAT(contract.err, HasSubstr("cases.json"));
  EXPECT_EQ(run_cli("verify").exit_code, 2);
}

}  // namespace
}  // namespace megartp::test
