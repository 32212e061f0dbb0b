// `megartp verify launch` from outside.
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
using testing::StartsWith;
using Json = nlohmann::json;

std::string fault(const std::string& file) {
  return fmt::format("{}/tests/faults/launch/{}", MEGARTP_SOURCE_DIR, file);
}

TEST(CliVerifyLaunch, AFaultIsExitCode1WithItsInterleaving) {
  const CliResult text = run_cli(fmt::format("verify launch '{}'", fault("not_transitive.json")));
  EXPECT_EQ(text.exit_code, 1);
  EXPECT_THAT(text.err, IsEmpty());
  EXPECT_THAT(text.out, AllOf(HasSubstr("3 nodes, 2 edges"), HasSubstr("R2 error: RAW: C reads x[0,64)"),
                              HasSubstr("C reads x[0,64) before A writes it"), HasSubstr("passes when B waits"),
                              HasSubstr("R1 error: B"), HasSubstr("refused: 2 errors")));
  const CliResult quiet = run_cli(fmt::format("verify launch -q '{}'", fault("not_transitive.json")));
  EXPECT_EQ(quiet.exit_code, 1);
  EXPECT_THAT(quiet.out, IsEmpty());

  const CliResult json = run_cli(fmt::format("verify launch '{}' --json", fault("not_transitive.json")));
  EXPECT_EQ(json.exit_code, 1);
  const Json j = Json::parse(json.out);
  EXPECT_EQ(j["schema"], "megartp.verify-launch.v1");
  const Json& result = j["result"];
  EXPECT_FALSE(result["ok"].get<bool>());
  EXPECT_EQ(result["errors"], 2);
  EXPECT_EQ(result["edges"].size(), 2U);
  EXPECT_EQ(result["edges"][0]["kind"], "programmatic");
  const Json& finding = result["findings"][0];
  EXPECT_EQ(finding["rule"], "R2");
  EXPECT_EQ(finding["nodes"], Json({"A", "C"}));
  EXPECT_EQ(finding["buffer"], "x");
  EXPECT_EQ(finding["range"], Json({0, 64}));
  EXPECT_GT(finding["interleaving"].size(), 3U);
  EXPECT_FALSE(finding["passes_when"].empty());
}

TEST(CliVerifyLaunch, AGoodGraphIsExitCode0WithAProofForEveryEdge) {
  const CliResult r = run_cli(fmt::format("verify launch '{}'", fault("not_transitive.ok.json")));
  EXPECT_EQ(r.exit_code, 0) << r.out;
  EXPECT_THAT(r.out, AllOf(HasSubstr("A -> B: programmatic, because"), HasSubstr("B -> C: programmatic, because"),
                           HasSubstr("ok: 0 errors")));
}

TEST(CliVerifyLaunch, AWarningAloneIsExitCode0) {
  const CliResult r = run_cli(fmt::format("verify launch '{}'", fault("poll_then_tma.json")));
  EXPECT_EQ(r.exit_code, 0);
  EXPECT_THAT(r.out, AllOf(HasSubstr("R6 warning"), HasSubstr("ok: 0 errors, 2 warnings")));
}

TEST(CliVerifyLaunch, UnreadableFilesAndMisuse) {
  const std::string bad = scratch_path("bad_launch.json");
  ASSERT_TRUE(write_file_atomic(
      bad, R"({"launch": 1, "buffers": [], "nodes": [{"name": "A", "waits": "maybe"}], "edges": []})"));
  const CliResult r = run_cli(fmt::format("verify launch '{}'", bad));
  EXPECT_EQ(r.exit_code, 3);
  EXPECT_THAT(r.err,
              AllOf(StartsWith("megartp: error: "), HasSubstr(bad), HasSubstr("nodes[0].waits"), HasSubstr("'maybe'")));
  EXPECT_EQ(run_cli(fmt::format("verify launch '{}'", scratch_path("missing.json"))).exit_code, 3);
  EXPECT_EQ(run_cli("verify launch").exit_code, 2);
  EXPECT_EQ(run_cli("verify").exit_code, 2);
  EXPECT_THAT(run_cli("verify --help").out, HasSubstr("launch"));
}

}  // namespace
}  // namespace megartp::test
