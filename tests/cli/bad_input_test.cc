// Bad input: each case is one line on stderr that names the culprit, the right exit code, and no file left behind.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "cli/cli_runner.h"
#include "io/safetensors.h"
#include "plan/kernel_plan.h"

namespace megartp::test {
namespace {

using testing::HasSubstr;

const std::string& golden() {
  static const std::string path = std::string(MEGARTP_SOURCE_DIR) + "/tests/golden/tiny_a";
  return path;
}

// A safetensors file with some tensors changed: `edit` gets name, dtype, dims and bytes, and returns false to drop the
// tensor.
struct EditableTensor {
  std::string name;
  DType dtype;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
};
template <class Edit>
std::string edited(const std::string& from, const std::string& to, Edit edit) {
  const auto file = SafetensorsFile::open(from);
  EXPECT_TRUE(file);
  std::vector<std::unique_ptr<EditableTensor>> kept;
  std::vector<TensorToWrite> out;
  for (const TensorView& v : file->tensors()) {
    auto t = std::make_unique<EditableTensor>(EditableTensor{v.name, v.dtype, v.dims, {v.data, v.data + v.num_bytes}});
    if (!edit(*t)) continue;
    TensorToWrite w;
    w.name = t->name;
    w.dtype = t->dtype;
    w.dims = t->dims;
    w.data = t->bytes.data();
    out.push_back(std::move(w));
    kept.push_back(std::move(t));
  }
  const std::string path = scratch_path(to);
  EXPECT_TRUE(write_safetensors(path, out));
  return path;
}

CliResult run_golden(const std::string& weights, const std::string& input) {
  const std::string out = scratch_path("must_not_exist.safetensors");
  CliResult r = run_cli(fmt::format(
      "run glm52-attention-pre --config {0}_config.json --weights '{1}' --input '{2}' --layer 6 --output '{3}'",
      golden(), weights.empty() ? golden() + "_weights.safetensors" : weights,
      input.empty() ? golden() + "_io.safetensors" : input, out));
  EXPECT_EQ(std::filesystem::exists(out), r.exit_code == 0);
  std::filesystem::remove(out);
  return r;
}

void expect_error(const CliResult& r, int exit_code, const std::vector<std::string>& words) {
  EXPECT_EQ(r.exit_code, exit_code) << r.err;
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  EXPECT_TRUE(r.err.starts_with("megartp: error: ")) << r.err;
  for (const std::string& w : words) EXPECT_THAT(r.err, HasSubstr(w));
}

template <class T>
auto set_element(const char* tensor, size_t index, T value) {
  return [=](EditableTensor& t) {
    if (t.name == tensor) std::memcpy(t.bytes.data() + index * sizeof(T), &value, sizeof(T));
    return true;
  };
}

TEST(BadInput, Files) {
  expect_error(run_golden("/no/such/file", ""), 3, {"/no/such/file"});
  expect_error(run_golden(scratch_path(""), ""), 5, {scratch_path("")});
  const std::string whole = read_file(golden() + "_weights.safetensors").value();
  const std::string path = scratch_path("broken.safetensors");
  ASSERT_TRUE(write_file_atomic(path, whole.substr(0, 100)));
  expect_error(run_golden(path, ""), 3, {path, "header"});
  ASSERT_TRUE(write_file_atomic(path, whole.substr(0, whole.size() - 1)));
  expect_error(run_golden(path, ""), 3, {path});
  std::string lying = whole;
  lying[7] = '\x7f';
  ASSERT_TRUE(write_file_atomic(path, lying));
  expect_error(run_golden(path, ""), 3, {path, "header"});
}

TEST(BadInput, Weights) {
  const std::string from = golden() + "_weights.safetensors";
  const char* wk = "model.layers.6.self_attn.indexer.wk.weight";
  expect_error(run_golden(edited(from, "w1", [&](EditableTensor& t) { return t.name != wk; }), ""), 3, {wk});
  expect_error(run_golden(edited(from, "w2",
                                 [&](EditableTensor& t) {
                                   if (t.name == wk) t.dtype = DType::kU8;
                                   return true;
                                 }),
                          ""),
               3, {wk, "U8", "F8_E4M3"});
  expect_error(run_golden(edited(from, "w3",
                                 [&](EditableTensor& t) {
                                   if (t.name == wk) t.dims = {512, 128};
                                   return true;
                                 }),
                          ""),
               3, {wk, "[512, 128]", "[128, 512]"});
  expect_error(run_golden(edited(from, "w4", set_element<uint8_t>(wk, 777, 0xff)), ""), 3, {wk, "NaN"});
  expect_error(
      run_golden(edited(from, "w5", set_element<float>("model.layers.6.self_attn.q_b_proj.weight_scale_inv", 3, -1.0F)),
                 ""),
      3, {"q_b_proj.weight_scale_inv"});
}

TEST(BadInput, Inputs) {
  const std::string from = golden() + "_io.safetensors";
  const auto bad = [&](auto edit, const std::vector<std::string>& words) {
    expect_error(run_golden("", edited(from, "io", edit)), 3, words);
  };
  bad([](EditableTensor& t) { return t.name != "positions"; }, {"positions"});
  bad(set_element<int32_t>("block_table", 1, 11), {"block_table", "11"});
  bad(set_element<int32_t>("block_table", 0, -1), {"block_table"});
  bad(set_element<int32_t>("context_lens", 0, 0), {"context_lens"});
  bad(set_element<int32_t>("context_lens", 2, 100000), {"context_lens", "100000"});
  bad(set_element<int32_t>("positions", 1, -5), {"positions", "-5"});
  bad(set_element<uint16_t>("x", 513, 0x7fc0), {"'x'", "[1, 1]"});
  bad(set_element<uint16_t>("residual", 0, 0xff80), {"'residual'", "inf", "[0, 0]"});
  bad(
      [](EditableTensor& t) {
        if (t.name == "x") t.dtype = DType::kU8, t.dims = {6, 1024};
        return true;
      },
      {"'x'", "U8"});
  bad(
      [](EditableTensor& t) {
        if (t.name != "x") return true;
        t.dims = {0, 512};
        t.bytes.clear();
        return true;
      },
      {"'x'"});
}

TEST(BadInput, Configs) {
  const std::string path = scratch_path("bad_config.json");
  const std::string good = read_file(small_config_path()).value();
  const auto with = [&](const std::string& from, const std::string& to, const std::vector<std::string>& words) {
    std::string text = good;
    const size_t at = text.find(from);
    ASSERT_NE(at, std::string::npos);
    text.replace(at, from.size(), to);
    ASSERT_TRUE(write_file_atomic(path, text));
    expect_error(run_cli(fmt::format("run glm52-attention-pre --config '{}'", path)), 3, words);
  };
  with("\"hidden_size\": 512", "\"hidden_size\": -4", {"hidden_size"});
  with("\"hidden_size\": 512", "\"hidden_size\": \"big\"", {"hidden_size"});
  with("\"qk_rope_head_dim\": 64", "\"qk_rope_head_dim\": 63", {"qk_rope_head_dim"});
  with("\"index_head_dim\": 128", "\"index_head_dim\": 32", {"index_head_dim"});
  with("{", "[", {"JSON"});
}

TEST(BadInput, Plans) {
  const std::string path = scratch_path("bad.plan");
  ASSERT_TRUE(write_file_atomic(path, "not a plan"));
  expect_error(run_cli(fmt::format("disasm '{}'", path)), 3, {path});
  ASSERT_EQ(run_cli(fmt::format("plan glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1 -q -o '{}'",
                                small_config_path(), path))
                .exit_code,
            0);
  std::string bytes = read_file(path).value();
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  ASSERT_TRUE(write_file_atomic(path, bytes));
  expect_error(run_cli(fmt::format("disasm '{}'", path)), 3, {path, "checksum"});
  expect_error(run_cli(fmt::format("run glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1 --plan '{}'",
                                   small_config_path(), path)),
               3, {path});
}

// A plan whose queues contradict its events is structurally sound; its run must end by itself, with a name for the
// cause.
TEST(BadInput, APlanThatCannotProgressIsExitCode6BeforeItRuns) {
  const std::string path = scratch_path("stuck.plan");
  const std::string made = fmt::format(
      "plan glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1 --target cpu --workers 2 --packer round-robin "
      "-q -o '{}'",
      small_config_path(), path);
  ASSERT_EQ(run_cli(made).exit_code, 0);
  KernelPlan plan = load_plan(path).value();
  std::reverse(plan.instructions.begin(), plan.instructions.begin() + plan.queue_depth);
  const Status saved = save_plan(plan, path);
  ASSERT_TRUE(saved) << saved.error().to_string();
  const CliResult r = run_cli(fmt::format(
      "run glm52-attention-pre --config '{}' --m 3 --kv 70 --requests 1 --plan '{}'", small_config_path(), path));
  EXPECT_EQ(r.exit_code, 6);
  EXPECT_THAT(r.err, HasSubstr("plan refused (queue_cycle)"));
  EXPECT_THAT(r.err, HasSubstr("worker 0 slot 0 ("));
  EXPECT_THAT(r.err, HasSubstr("worker 1 slot "));
  EXPECT_THAT(r.err, HasSubstr("waits for event "));
}

}  // namespace
}  // namespace megartp::test
