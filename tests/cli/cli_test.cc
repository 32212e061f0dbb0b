// The command-line tool from outside: output, streams, exit codes, JSON.
#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "cli/cli_runner.h"
#include "io/safetensors.h"

namespace megartp::test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::StartsWith;
using Json = nlohmann::json;

TEST(Cli, HelpNamesEveryCommandAndTheExitCodes) {
  const CliResult r = run_cli("--help");
  EXPECT_EQ(r.exit_code, 0);
  for (const char* word : {"run", "plan", "graph", "launch", "bench", "disasm", "explain-fault", "weights", "ops",
                           "doctor", "version", "completion", "Exit codes"})
    EXPECT_THAT(r.out, HasSubstr(word));
  EXPECT_THAT(r.err, IsEmpty());
}

TEST(Cli, EveryCommandHasHelp) {
  for (const char* command : {"run", "plan", "plan diff", "graph", "launch", "bench", "disasm", "explain-fault",
                              "weights synth", "weights inspect", "ops", "doctor", "version", "completion"})
    EXPECT_EQ(run_cli(fmt::format("{} --help", command)).exit_code, 0) << command;
}

TEST(Cli, MisuseIsExitCode2) {
  EXPECT_THAT(run_cli("rn glm52-attention-pre").err, HasSubstr("did you mean 'run'?"));
  for (const char* args : {"rn",
                           "run",
                           "run no-such-model",
                           "run glm52-attention-pre --m x",
                           "run glm52-attention-pre --no-such-flag",
                           "run glm52-attention-pre --backend gpu",
                           "run glm52-attention-pre --packer best",
                           "plan",
                           "disasm",
                           "weights",
                           "weights synth",
                           "weights synth -o x --layers 3-1",
                           "weights synth -o x --layers 1,,2",
                           "weights synth -o x --layers 900",
                           "weights synth -o -",
                           "run glm52-attention-pre --output -",
                           "completion tcsh",
                           "graph",
                           "run glm52-attention-pre --m 0",
                           "run glm52-attention-pre --kv 0",
                           "run glm52-attention-pre --requests 0",
                           "run glm52-attention-pre --m 2 --requests 3",
                           "run glm52-attention-pre --layer 900",
                           "plan glm52-attention-pre --target tpu",
                           "plan glm52-attention-pre --workers 0"}) {
    const CliResult r = run_cli(args);
    EXPECT_EQ(r.exit_code, 2) << args << "\n" << r.err;
    EXPECT_THAT(r.err, StartsWith("megartp: error: ")) << args;
    EXPECT_THAT(r.out, IsEmpty()) << args;
  }
}

TEST(Cli, RunChecksASmallLayer) {
  const CliResult r = run_cli(
      fmt::format("run glm52-attention-pre --config '{}' --m 5 --kv 300 --requests 2 --check", small_config_path()));
  EXPECT_EQ(r.exit_code, 0) << r.err;
  for (const char* word : {"A0", "B0", "C0", "B1", "D1", "D0", "D2", "E1", "q_out", "logits", "PASS"})
    EXPECT_THAT(r.out, HasSubstr(word));
  EXPECT_THAT(r.out, Not(HasSubstr("\x1b")));
}

TEST(Cli, RunJsonHasEveryFigure) {
  const CliResult r =
      run_cli(fmt::format("run glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1 --check --json --repeat 3",
                          small_config_path()));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json j = Json::parse(r.out);
  EXPECT_EQ(j["schema"], "megartp.run.v1");
  EXPECT_EQ(j["command"], "run");
  const Json& result = j["result"];
  EXPECT_EQ(result["shapes"]["M"], 3);
  EXPECT_EQ(result["wall_ns"].size(), 3U);
  EXPECT_EQ(result["ops"].size(), 8U);
  EXPECT_TRUE(result["check"]["passed"].get<bool>());
  for (const Json& t : result["check"]["tensors"]) EXPECT_LE(t["calc_diff"].get<double>(), 1e-6) << t;
}

TEST(Cli, TheReferenceAloneAndALayerWithoutIndexer) {
  const std::string config = small_config_path();
  EXPECT_EQ(
      run_cli(fmt::format(
                  "run glm52-attention-pre --config '{}' --m 2 --kv 65 --requests 1 --backend cpu-reference --check",
                  config))
          .exit_code,
      0);
  const CliResult shared = run_cli(
      fmt::format("run glm52-attention-pre --config '{}' --layer 3 --m 2 --kv 65 --requests 1 --check", config));
  EXPECT_EQ(shared.exit_code, 0) << shared.err;
  EXPECT_THAT(shared.out, Not(HasSubstr("E1")));
}

TEST(Cli, GoldenLayerInAndOut) {
  const std::string golden = std::string(MEGARTP_SOURCE_DIR) + "/tests/golden/tiny_a";
  const std::string out = scratch_path("tiny_out.safetensors");
  const CliResult r =
      run_cli(fmt::format("run glm52-attention-pre --config {0}_config.json --weights {0}_weights.safetensors --input "
                          "{0}_io.safetensors --layer 6 --check "
                          "--keep-intermediates --output '{1}'",
                          golden, out));
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const auto file = SafetensorsFile::open(out);
  ASSERT_TRUE(file) << file.error().to_string();
  const auto expect = [&](const char* name, DType dtype, std::vector<int64_t> dims) {
    const auto t = file->get(name, dtype, dims);
    EXPECT_TRUE(t) << t.error().to_string();
  };
  expect("residual", DType::kBF16, {6, 512});
  expect("q_out", DType::kBF16, {6, 4, 192});
  expect("logits", DType::kF32, {6, 512});
  expect("index_k_cache", DType::kU8, {11, 8448});
  expect("gate", DType::kF32, {6, 4});
  expect("index_q", DType::kF32, {6, 4, 128});
  expect("index_k", DType::kF32, {6, 128});
  EXPECT_NE(file->find("mla_kv_cache"), nullptr);
  EXPECT_NE(file->find("kv_latent"), nullptr);
  EXPECT_NE(file->find("k_pe"), nullptr);
}

TEST(Cli, PlanAgreesWithThePublishedCounts) {
  const CliResult r = run_cli(
      "plan glm52-attention-pre --m 16 --kv 8192 --requests 2 --workers 148 --packer round-robin --finalizer fused "
      "--json");
  ASSERT_EQ(r.exit_code, 0) << r.err;
  const Json result = Json::parse(r.out)["result"];
  EXPECT_EQ(result["tasks"], 732);
  EXPECT_EQ(result["events"], 70);
  EXPECT_EQ(result["workers"], 148);
  EXPECT_EQ(result["queue_depth"], 5);
  const Json per_op = {{"A0", 16},  {"B0", 84},  {"C0", 48},  {"B1", 8},
                       {"D1", 128}, {"D0", 128}, {"D2", 256}, {"E1", 64}};
  EXPECT_EQ(result["tasks_per_op"], per_op);
  EXPECT_EQ(result["events_list"].size(), 70U);
  EXPECT_EQ(result["operand_table"].size(), 8U);
}

TEST(Cli, PlansAreSavedListedAndRun) {
  const std::string config = small_config_path();
  const std::string plan = scratch_path("small.plan");
  const std::string batch = "--m 3 --kv 70 --requests 1";
  ASSERT_EQ(run_cli(fmt::format("plan glm52-attention-pre --config '{}' {} --target cpu --workers 2 -o '{}' -q", config,
                                batch, plan))
                .exit_code,
            0);
  const CliResult listing = run_cli(fmt::format("disasm '{}'", plan));
  EXPECT_EQ(listing.exit_code, 0) << listing.err;
  EXPECT_THAT(listing.out, HasSubstr("qkv_a"));
  const CliResult run =
      run_cli(fmt::format("run glm52-attention-pre --config '{}' {} --plan '{}' --check", config, batch, plan));
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const CliResult other = run_cli(
      fmt::format("run glm52-attention-pre --config '{}' --m 4 --kv 70 --requests 1 --plan '{}'", config, plan));
  EXPECT_EQ(other.exit_code, 2);
  EXPECT_THAT(other.err, HasSubstr("is not for this graph and batch"));
  // Numeric options are part of the plan's specs.
  const CliResult option =
      run_cli(fmt::format("run glm52-attention-pre --config '{}' {} --plan '{}' --hadamard", config, batch, plan));
  EXPECT_EQ(option.exit_code, 2);
  EXPECT_THAT(option.err, HasSubstr("numeric option"));
  const CliResult packing =
      run_cli(fmt::format("run glm52-attention-pre --config '{}' {} --plan '{}' --workers 3", config, batch, plan));
  EXPECT_EQ(packing.exit_code, 2);
}

TEST(Cli, AFullDiskIsAnError) {
  for (const char* args : {"version", "graph glm52-attention-pre --format json", "plan glm52-attention-pre --json"}) {
    const std::string command = fmt::format("'{}' {} > /dev/full 2>'{}'", MEGARTP_CLI, args, scratch_path("full_err"));
    EXPECT_EQ(WEXITSTATUS(std::system(command.c_str())), 5) << args;
    EXPECT_THAT(read_file(scratch_path("full_err")).value(), HasSubstr("cannot write to stdout")) << args;
  }
}

TEST(Cli, UsageErrorsAreJsonTooWhenAskedFor) {
  const CliResult r = run_cli("plan bogus --json");
  EXPECT_EQ(r.exit_code, 2);
  EXPECT_EQ(Json::parse(r.out)["error"]["exit_code"], 2);
}

TEST(Cli, GraphFormsRoundTrip) {
  const std::string config = small_config_path();
  const std::string json = scratch_path("graph.json");
  ASSERT_EQ(
      run_cli(fmt::format("graph glm52-attention-pre --config '{}' --format json -o '{}'", config, json)).exit_code, 0);
  const CliResult again = run_cli(fmt::format("graph --file '{}' --format json", json));
  ASSERT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.out, read_file(json).value());
  EXPECT_THAT(run_cli(fmt::format("graph --file '{}' --format dot", json)).out, StartsWith("digraph"));
  EXPECT_THAT(run_cli(fmt::format("graph --file '{}'", json)).out, HasSubstr("flowchart"));
}

TEST(Cli, WeightsSynthAndInspect) {
  const std::string config = small_config_path();
  const std::string path = scratch_path("w.safetensors");
  const CliResult synth = run_cli(fmt::format("weights synth --config '{}' --layers 3,6 -o '{}'", config, path));
  ASSERT_EQ(synth.exit_code, 0) << synth.err;
  EXPECT_THAT(synth.err, IsEmpty()) << "no progress bar on a pipe";
  const CliResult list = run_cli(fmt::format("weights inspect '{}' --json", path));
  ASSERT_EQ(list.exit_code, 0) << list.err;
  const Json result = Json::parse(list.out)["result"];
  bool found = false;
  for (const Json& t : result["tensors"])
    found = found || t["name"] == "model.layers.6.self_attn.indexer.wk.weight_scale_inv";
  EXPECT_TRUE(found);
}

TEST(Cli, OpsDoctorVersionCompletion) {
  EXPECT_THAT(run_cli("ops").out, HasSubstr("indexer_score"));
  EXPECT_GE(Json::parse(run_cli("ops --json").out)["result"].size(), 11U);
  EXPECT_THAT(run_cli("doctor").out, HasSubstr("hardware threads"));
  EXPECT_EQ(Json::parse(run_cli("version --json").out)["result"]["abi"], 1);
  for (const char* shell : {"bash", "zsh", "fish"})
    EXPECT_THAT(run_cli(fmt::format("completion {}", shell)).out, HasSubstr("keep-intermediates"));
}

TEST(Cli, PlansComeOutOfATemplate) {
  const std::string batch = fmt::format("plan glm52-attention-pre --config '{}' --m 13 --kv 500", small_config_path());
  const CliResult cut = run_cli(batch + " --template-m 16 --template-kv 600");
  ASSERT_EQ(cut.exit_code, 0) << cut.err;
  EXPECT_THAT(cut.out, HasSubstr("template for M = 16, KV = 600 made in "));
  EXPECT_THAT(cut.out, HasSubstr("instantiated in "));
  const CliResult fresh = run_cli(batch);
  // The same tasks of the same ops.
  EXPECT_EQ(cut.out.substr(cut.out.find("\n\n")), fresh.out.substr(fresh.out.find("\n\n")));
  const CliResult misfit = run_cli(batch + " --template-m 12");
  EXPECT_EQ(misfit.exit_code, 2);
  EXPECT_THAT(misfit.err, HasSubstr("M = 13 does not fit"));
  EXPECT_THAT(misfit.err, HasSubstr("M up to 12"));
}

TEST(Cli, CompletionIsValidBash) {
  const std::string script = scratch_path("completion.bash");
  ASSERT_TRUE(write_file_atomic(script, run_cli("completion bash").out));
  EXPECT_EQ(std::system(fmt::format("bash -n '{}'", script).c_str()), 0);
  const std::string probe = fmt::format(
      "bash -c 'source {}; COMP_WORDS=(megartp weights sy); COMP_CWORD=2; _megartp; test \"${{COMPREPLY[*]}}\" = "
      "synth'",
      script);
  EXPECT_EQ(std::system(probe.c_str()), 0);
}

TEST(Cli, AClosedPipeIsNoError) {
  const std::string err = scratch_path("pipe_err");
  const std::string command = fmt::format(
      "bash -c '\"{}\" graph glm52-attention-pre --format json | head -1 >/dev/null; exit ${{PIPESTATUS[0]}}' 2>'{}'",
      MEGARTP_CLI, err);
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_THAT(read_file(err).value(), IsEmpty());
}

}  // namespace
}  // namespace megartp::test
