// megartp launch, bench and run on GPU backends from outside, on machines without a GPU.
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/cli_runner.h"

namespace megartp::test {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

bool has_gpu() { return access("/dev/nvidiactl", F_OK) == 0; }

TEST(CliLaunch, MisuseIsExitCode2) {
  for (const char* args :
       {"launch", "launch no-such-model", "launch glm52-attention-pre --backend cpu-threads",
        "launch glm52-attention-pre --edge A0", "launch glm52-attention-pre --edge A0-\\>B0.gemm=soon",
        "launch glm52-attention-pre --level soon", "launch glm52-attention-pre --m 0",
        "bench glm52-attention-pre --backends cpu-threads", "bench glm52-attention-pre --pdl-case 3",
        "run glm52-attention-pre --backend cpu-threads --replays 3", "run glm52-attention-pre --edge A0-\\>C0=full",
        "run glm52-attention-pre --backend cmp --workers 3", "run glm52-attention-pre --backend cmp --explore",
        "run glm52-attention-pre --backend mega --explore", "run glm52-attention-pre --backend mega --finalizer fused",
        "run glm52-attention-pre --backend mega --schedule dynamic", "run glm52-attention-pre --backend mega --only A0",
        "bench glm52-attention-pre --backends mega --packer best"}) {
    const CliResult r = run_cli(args);
    EXPECT_EQ(r.exit_code, 2) << args << "\n" << r.err;
    EXPECT_THAT(r.err, StartsWith("megartp: error: ")) << args;
  }
}

TEST(CliLaunch, WithoutAGpuBenchAndRunSayWhatIsMissing) {
  if (has_gpu()) GTEST_SKIP() << "this machine has a GPU";
  for (const char* args :
       {"bench glm52-attention-pre", "bench glm52-attention-pre --tune-edges --json",
        "run glm52-attention-pre --backend cmp --check", "run glm52-attention-pre --backend serial",
        "run glm52-attention-pre --backend mega --check", "bench glm52-attention-pre --backends cmp,mega"}) {
    const CliResult r = run_cli(args);
    EXPECT_EQ(r.exit_code, 4) << args << "\n" << r.err;
    EXPECT_THAT(r.err, StartsWith("megartp: error: ")) << args;
    EXPECT_THAT(r.err, HasSubstr("libcuda")) << args;
  }
}

TEST(CliLaunch, APlanReadsBackIntoTheProver) {
  const CliResult plan = run_cli("launch glm52-attention-pre --m 4 --kv 200 --requests 2 --json");
  if (plan.exit_code == 4) GTEST_SKIP() << plan.err;  // a family has no device code yet
  ASSERT_EQ(plan.exit_code, 0) << plan.err;
  const std::string file = scratch_path("launch.json");
  ASSERT_EQ(
      run_cli(fmt::format("launch glm52-attention-pre --m 4 --kv 200 --requests 2 --json -o '{}'", file)).exit_code, 0);
  const CliResult proof = run_cli(fmt::format("verify launch '{}'", file));
  EXPECT_EQ(proof.exit_code, 0) << proof.out;
  EXPECT_THAT(proof.out, HasSubstr("A0 -> C0: programmatic"));
  const CliResult text = run_cli("launch glm52-attention-pre --explain --edge 'A0->C0=full'");
  EXPECT_THAT(text.out, HasSubstr("A0 -> C0: full, as asked"));
  const CliResult unknown = run_cli("launch glm52-attention-pre --edge 'A0->E1=full'");
  EXPECT_EQ(unknown.exit_code, 2);
  EXPECT_THAT(unknown.err, HasSubstr("mode cmp has no edge 'A0->E1'"));
}

}  // namespace
}  // namespace megartp::test
