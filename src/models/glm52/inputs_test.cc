#include "models/glm52/inputs.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numbers>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "io/safetensors.h"
#include "ops/common/paged_cache.h"

namespace megartp::glm52 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const std::string kGolden = std::string(MEGARTP_SOURCE_DIR) + "/tests/golden/";

Config tiny_config() {
  Config c;
  c.hidden_size = 512;
  c.num_hidden_layers = 8;
  c.num_attention_heads = 4;
  c.q_lora_rank = 256;
  c.kv_lora_rank = 128;
  c.index_n_heads = 4;
  return c;
}

Inputs make(const std::vector<RequestShape>& requests, uint64_t seed = 1, const Options& options = {}) {
  auto shapes = batch_shapes(requests);
  EXPECT_TRUE(shapes) << shapes.error().to_string();
  auto inputs = synth_inputs(tiny_config(), options, *shapes, seed);
  EXPECT_TRUE(inputs) << inputs.error().to_string();
  return std::move(*inputs);
}

bool same_bytes(const Buffer& a, const Buffer& b) {
  return a.num_bytes == b.num_bytes && std::memcmp(a.bytes.get(), b.bytes.get(), a.num_bytes) == 0;
}

TEST(BufferTest, AlignedZeroedAndCloned) {
  const Buffer b = Buffer::make(DType::kF32, {3, 5});
  EXPECT_EQ(b.num_bytes, 60U);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b.bytes.get()) % 64, 0U);
  for (int i = 0; i < 15; ++i) EXPECT_EQ(b.as<float>()[i], 0.0F);
  const Buffer c = b.clone();
  c.as<float>()[0] = 1;
  EXPECT_EQ(b.as<float>()[0], 0.0F);
}

TEST(SynthInputsTest, SeededAndConsistent) {
  const Inputs a = make({{3, 300}, {1, 65}, {2, 2}});
  const Inputs b = make({{3, 300}, {1, 65}, {2, 2}});
  const Inputs other = make({{3, 300}, {1, 65}, {2, 2}}, 2);
  ASSERT_EQ(a.tensors.size(), 9U);
  for (const auto& [name, buffer] : a.tensors) EXPECT_TRUE(same_bytes(buffer, b.tensors.at(name))) << name;
  for (const char* name : {"x", "residual", "block_table", "index_k_cache", "mla_kv_cache"})
    EXPECT_FALSE(same_bytes(a.tensors.at(name), other.tensors.at(name))) << name;

  const auto* positions = a.tensors.at("positions").as<int32_t>();
  const auto* lens = a.tensors.at("context_lens").as<int32_t>();
  EXPECT_EQ(std::vector<int32_t>(positions, positions + 6), (std::vector<int32_t>{297, 298, 299, 64, 0, 1}));
  EXPECT_EQ(std::vector<int32_t>(lens, lens + 6), (std::vector<int32_t>{298, 299, 300, 65, 1, 2}));
  const auto* table = a.tensors.at("block_table").as<int32_t>();
  std::set<int32_t> pages;
  const std::vector<int32_t> blocks(table, table + 15);
  for (const int32_t page : blocks)
    if (page >= 0) EXPECT_TRUE(pages.insert(page).second) << "page " << page << " twice";
  EXPECT_EQ(pages.size(), 5U + 2U + 1U);
  EXPECT_FALSE(std::is_sorted(blocks.begin(), blocks.begin() + 5));
}

TEST(SynthInputsTest, EarlierKeysAreUnitNormalAndNewSlotsAreNan) {
  const Inputs in = make({{2, 200}});
  const Buffer& cache = in.tensors.at("index_k_cache");
  const auto* table = in.tensors.at("block_table").as<int32_t>();
  double sum = 0;
  double squares = 0;
  for (int64_t s = 0; s < 200; ++s) {
    const int64_t slot = ops::cache_slot(table, 4, 0, static_cast<int32_t>(s));
    const std::byte* page = cache.as<std::byte>() + slot / 64 * 8448;
    const auto* codes = reinterpret_cast<const e4m3*>(page + slot % 64 * 128);
    float scale = 0;
    std::memcpy(&scale, page + 8192 + slot % 64 * 4, 4);
    for (int64_t d = 0; d < 128; ++d) {
      ASSERT_EQ(is_nan(codes[d]), s >= 198) << s;
      if (s >= 198) continue;
      const double v = static_cast<double>(to_float(codes[d])) * static_cast<double>(scale);
      sum += v;
      squares += v * v;
    }
    ASSERT_EQ(std::isnan(scale), s >= 198);
  }
  EXPECT_NEAR(sum / (198 * 128), 0, 0.03);
  EXPECT_NEAR(squares / (198 * 128), 1, 0.03);
}

TEST(SynthInputsTest, ScalesArePowersOfTwoWhereAsked) {
  const Inputs in = make({{1, 64}}, 1, Options{.index_k_pow2_scale = true});
  const auto* table = in.tensors.at("block_table").as<int32_t>();
  const std::byte* page = in.tensors.at("index_k_cache").as<std::byte>() + table[0] * 8448;
  for (int t = 0; t < 63; ++t) {
    float scale = 0;
    std::memcpy(&scale, page + 8192 + t * 4, 4);
    int exponent = 0;
    EXPECT_EQ(std::frexp(scale, &exponent), 0.5F);
  }
}

TEST(CosSinTest, PlainTable) {
  const Config config = tiny_config();
  const Buffer table = make_cos_sin(config, 5000);
  ASSERT_EQ(table.dims, (std::vector<int64_t>{5000, 64}));
  for (const int64_t p : {0, 1, 37, 4999}) {
    for (int64_t i = 0; i < 32; ++i) {
      const auto theta = static_cast<float>(std::pow(8e6, -static_cast<double>(i) / 32));
      const double angle = static_cast<double>(static_cast<float>(p) * theta);
      EXPECT_EQ(table.as<float>()[p * 64 + i], static_cast<float>(std::cos(angle)));
      EXPECT_EQ(table.as<float>()[p * 64 + 32 + i], static_cast<float>(std::sin(angle)));
    }
  }
}

TEST(CosSinTest, YarnKeepsFastAndDividesSlowFrequencies) {
  Config config = deepseek_v3_2_config();
  const auto angle_at_1 = [&](int64_t i) {
    const Buffer table = make_cos_sin(config, 2);
    return std::atan2(table.as<float>()[64 + 32 + i], table.as<float>()[64 + i]);
  };
  const auto plain = [](int64_t i) { return std::pow(1e4, -static_cast<double>(i) / 32); };
  // Correction range of base 10000, 64 dims, 4096 positions, beta 32 and 1: floor(10.47) = 10 to ceil(22.51) = 23.
  for (int64_t i = 0; i <= 10; ++i) EXPECT_NEAR(angle_at_1(i), plain(i), 1e-6 * plain(i) + 1e-7) << i;
  for (int64_t i = 23; i < 32; ++i) EXPECT_NEAR(angle_at_1(i), plain(i) / 40, 1e-6 * plain(i)) << i;
  EXPECT_NEAR(angle_at_1(12), plain(12) * (11.0 / 13) + plain(12) / 40 * (2.0 / 13), 1e-6);
  // mscale = mscale_all_dim: the table is not scaled; with mscale_all_dim = 0 it grows by 0.1 ln 40 + 1.
  EXPECT_EQ(make_cos_sin(config, 1).as<float>()[0], 1.0F);
  config.yarn_mscale_all_dim = 0;
  EXPECT_FLOAT_EQ(make_cos_sin(config, 1).as<float>()[0], 1.3688879F);
}

TEST(LoadInputsTest, GoldenFile) {
  const auto config = load_config(kGolden + "tiny_a_config.json");
  ASSERT_TRUE(config);
  const auto in = load_inputs(*config, kGolden + "tiny_a_io.safetensors");
  ASSERT_TRUE(in) << in.error().to_string();
  EXPECT_EQ(in->shapes.requests, (std::vector<RequestShape>{{3, 300}, {3, 181}}));
  EXPECT_EQ(*in->shapes.eval("M"), 6);
  EXPECT_EQ(*in->shapes.eval("KV"), 300);
  EXPECT_EQ(*in->shapes.eval("TABLE"), 5);
  EXPECT_EQ(*in->shapes.eval("PAGES"), 11);
  EXPECT_EQ(in->tensors.at("context_lens").dims, std::vector<int64_t>{6});
  EXPECT_EQ(in->tensors.at("positions").as<int32_t>()[5], 180);
  const auto* table = in->tensors.at("block_table").as<int32_t>();
  EXPECT_EQ(in->tensors.at("slot_mapping").as<int32_t>()[0], table[297 / 64] * 64 + 297 % 64);
  EXPECT_EQ(in->tensors.at("mla_kv_cache").dims, (std::vector<int64_t>{11, 64 * (128 + 4 + 128)}));
}

// --- bad inputs
// --------------------------------------------------------------------------------------------------------

class BadInputsTest : public testing::Test {
 protected:
  BadInputsTest() : in_(make({{2, 130}, {2, 70}})) {}
  int32_t* ints(const char* name) { return in_.tensors.at(name).as<int32_t>(); }
  std::string message() {
    const Status status = check_inputs(tiny_config(), in_);
    return status ? std::string("accepted") : status.error().to_string();
  }
  // The slot of a token, as a pointer into the index-K cache.
  std::byte* key(int32_t request, int32_t token) {
    const int64_t slot = ops::cache_slot(ints("block_table"), 3, request, token);
    return in_.tensors.at("index_k_cache").as<std::byte>() + slot / 64 * 8448 + slot % 64 * 128;
  }
  Inputs in_;
};

TEST_F(BadInputsTest, GoodOnesPass) { EXPECT_EQ(message(), "accepted"); }

TEST_F(BadInputsTest, NoRows) {
  in_.shapes.set("M", 0);
  EXPECT_EQ(message(), "M = 0: the batch is empty");
}
TEST_F(BadInputsTest, MissingSymbol) {
  in_.shapes.symbols.erase("TABLE");
  EXPECT_EQ(message(), "the batch gives no value for TABLE");
}
TEST_F(BadInputsTest, RequestsDoNotAddUp) {
  in_.shapes.requests[0].num_rows = 1;
  EXPECT_EQ(message(), "the requests have 3 rows together, but M = 4");
}
TEST_F(BadInputsTest, MissingTensor) {
  in_.tensors.erase("cos_sin");
  EXPECT_EQ(message(), "the inputs have no tensor 'cos_sin'");
}
TEST_F(BadInputsTest, WrongDtype) {
  in_.tensors["x"] = Buffer::make(DType::kF32, {4, 512});
  EXPECT_EQ(message(), "tensor 'x' has dtype F32, expected BF16");
}
TEST_F(BadInputsTest, WrongShape) {
  in_.tensors["index_k_cache"] = Buffer::make(DType::kU8, {9, 8447});
  EXPECT_EQ(message(), "tensor 'index_k_cache' has shape [9, 8447], expected [9, 8448]");
}
TEST_F(BadInputsTest, LengthZero) {
  ints("context_lens")[2] = 0;
  EXPECT_EQ(message(), "context_lens[2] is 0, expected at least 1");
}
TEST_F(BadInputsTest, LengthBeyondTheTable) {
  ints("context_lens")[1] = 193;
  EXPECT_EQ(message(), "context_lens[1] is 193, beyond the 192 tokens that block_table reaches");
}
TEST_F(BadInputsTest, LengthUnlikeTheBatch) {
  ints("context_lens")[1] = 131;
  EXPECT_EQ(message(), "request 0 has a length of 131 in context_lens, but of 130 in the batch");
}
TEST_F(BadInputsTest, PositionNegative) {
  ints("positions")[0] = -1;
  EXPECT_THAT(message(), HasSubstr("positions[0] is -1, expected 0 to 128"));
}
TEST_F(BadInputsTest, PositionBeyondItsLength) {
  ints("positions")[3] = 70;
  EXPECT_THAT(message(), HasSubstr("positions[3] is 70, expected 0 to 69"));
}
TEST_F(BadInputsTest, PositionBeyondTheTableOfAngles) {
  in_.shapes.set("POS", 129);
  in_.tensors["cos_sin"] = make_cos_sin(tiny_config(), 129);
  EXPECT_EQ(message(), "positions[1] is 129, but cos_sin has 129 rows");
}
TEST_F(BadInputsTest, PageOutsideTheCache) {
  ints("block_table")[4] = 9;
  EXPECT_EQ(message(), "block_table[1][1] is 9, outside the cache of 9 pages");
}
TEST_F(BadInputsTest, UsedPageMissing) {
  ints("block_table")[2] = -1;
  EXPECT_EQ(message(), "block_table[0][2] is -1, outside the cache of 9 pages");
}
TEST_F(BadInputsTest, UnusedEntryOutside) {
  ints("block_table")[5] = 1000;
  EXPECT_EQ(message(), "block_table[1][2] is 1000, outside the cache of 9 pages");
}
TEST_F(BadInputsTest, TwoNewTokensInOneSlot) {
  ints("positions")[1] = ints("positions")[0];
  ints("slot_mapping")[1] = ints("slot_mapping")[0];
  EXPECT_THAT(message(), HasSubstr("positions[0] and positions[1] put two new tokens into one cache slot"));
}
TEST_F(BadInputsTest, SlotsUnlikeTheTable) {
  ints("slot_mapping")[2] += 1;
  EXPECT_THAT(message(), HasSubstr("slot_mapping[2] is"));
}
TEST_F(BadInputsTest, NanCodeAmongVisibleKeys) {
  key(1, 67)[5] = std::byte{0x7f};
  EXPECT_THAT(message(), HasSubstr("index_k_cache: the key of request 1, token 67 (page "));
  EXPECT_THAT(message(), HasSubstr("has a NaN code"));
}
TEST_F(BadInputsTest, BadScaleAmongVisibleKeys) {
  const float infinite = INFINITY;
  const int64_t slot = ops::cache_slot(ints("block_table"), 3, 0, 5);
  std::memcpy(in_.tensors.at("index_k_cache").as<std::byte>() + slot / 64 * 8448 + 8192 + slot % 64 * 4, &infinite, 4);
  EXPECT_THAT(message(), HasSubstr("the scale of request 0, token 5 (page "));
}
TEST_F(BadInputsTest, InvisibleKeysMayBeAnything) {
  std::memset(in_.tensors.at("index_k_cache").as<std::byte>() + ints("block_table")[4] * 8448 + 20 * 128, 0xff,
              44 * 128);
  EXPECT_EQ(message(), "accepted");
}

// --- bad files
// ---------------------------------------------------------------------------------------------------------

class InputFileTest : public testing::Test {
 protected:
  InputFileTest() {
    std::string pattern = (fs::temp_directory_path() / "megartp_in_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
    const Inputs in = make({{2, 130}, {1, 70}});
    tensors_ = in.tensors;
    for (const char* name : {"slot_mapping", "cos_sin"}) tensors_.erase(name);
    Buffer starts = Buffer::make(DType::kI32, {3});
    starts.as<int32_t>()[1] = 2;
    starts.as<int32_t>()[2] = 3;
    tensors_["query_start_loc"] = starts;
    // New tokens' slots hold NaN, which is legal; the rest is as in a file from elsewhere.
  }
  ~InputFileTest() override { fs::remove_all(folder_); }

  Result<Inputs> load() {
    std::vector<TensorToWrite> out;
    for (const auto& [name, b] : tensors_) out.push_back({name, b.dtype, b.dims, b.bytes.get(), {}});
    const std::string path = (folder_ / "in.safetensors").string();
    EXPECT_TRUE(write_safetensors(path, out));
    return load_inputs(tiny_config(), path);
  }
  std::string message() {
    const auto in = load();
    if (!in) EXPECT_THAT(in.error().to_string(), HasSubstr("in.safetensors"));
    if (!in) EXPECT_TRUE(in.error().code == ErrorCode::kParse || in.error().code == ErrorCode::kNotFound);
    return in ? std::string("accepted") : in.error().message;
  }

  fs::path folder_;
  std::map<std::string, Buffer, std::less<>> tensors_;
};

TEST_F(InputFileTest, RaggedRequests) {
  const auto in = load();
  ASSERT_TRUE(in) << in.error().to_string();
  EXPECT_EQ(in->shapes.requests, (std::vector<RequestShape>{{2, 130}, {1, 70}}));
  EXPECT_TRUE(same_bytes(in->tensors.at("mla_kv_cache"), tensors_.at("mla_kv_cache")));
  EXPECT_EQ(in->tensors.at("cos_sin").dims[0], 130);
}
TEST_F(InputFileTest, MissingTensors) {
  for (const char* name : {"x", "residual", "positions", "context_lens", "block_table", "index_k_cache"}) {
    const Buffer kept = tensors_.at(name);
    tensors_.erase(name);
    EXPECT_EQ(message(), "the file has no tensor '" + std::string(name) + "'");
    tensors_[name] = kept;
  }
}
TEST_F(InputFileTest, NoRows) {
  tensors_["x"] = Buffer::make(DType::kBF16, {0, 512});
  EXPECT_EQ(message(), "tensor 'x' has no rows (M = 0)");
}
TEST_F(InputFileTest, WrongShapesAndDtypes) {
  tensors_["residual"] = Buffer::make(DType::kBF16, {4, 512});
  EXPECT_EQ(message(), "tensor 'residual' has shape [4, 512], expected [3, 512]");
  tensors_["residual"] = Buffer::make(DType::kF32, {3, 512});
  EXPECT_EQ(message(), "tensor 'residual' has dtype F32, expected BF16");
  tensors_["x"] = Buffer::make(DType::kBF16, {3});
  EXPECT_EQ(message(), "tensor 'x' has shape [3], expected two dimensions");
  tensors_["x"] = Buffer::make(DType::kBF16, {3, 256});
  EXPECT_EQ(message(), "tensor 'x' has shape [3, 256], expected [3, 512]");
}
TEST_F(InputFileTest, LengthsNeedTwoDimensionsOrStarts) {
  tensors_.erase("query_start_loc");
  EXPECT_THAT(message(), HasSubstr("tensor 'context_lens' has shape [3], expected [requests, new tokens] for 3 rows"));
  tensors_["context_lens"] = Buffer::make(DType::kI32, {2, 2});
  EXPECT_THAT(message(), HasSubstr("tensor 'context_lens' has shape [2, 2], expected"));
  tensors_["context_lens"] = Buffer::make(DType::kI64, {3, 1});
  EXPECT_EQ(message(), "tensor 'context_lens' has dtype I64, expected I32");
}
TEST_F(InputFileTest, BadStarts) {
  auto* starts = tensors_.at("query_start_loc").as<int32_t>();
  starts[0] = 1;
  EXPECT_EQ(message(), "query_start_loc[0] is 1, expected 0");
  starts[0] = 0;
  starts[1] = 0;
  EXPECT_EQ(message(), "query_start_loc[1] is 0, not above the entry before it, 0");
  starts[1] = 2;
  starts[2] = 4;
  EXPECT_EQ(message(), "query_start_loc[2] is 4, expected the number of rows, 3");
}
TEST_F(InputFileTest, TableOfOtherRequests) {
  tensors_["block_table"] = Buffer::make(DType::kI32, {3, 3});
  EXPECT_EQ(message(), "tensor 'block_table' has shape [3, 3], expected one row for each of 2 requests");
}
TEST_F(InputFileTest, HugeLengthIsAnErrorAndNoAllocation) {
  tensors_.at("context_lens").as<int32_t>()[1] = 2'000'000'000;
  EXPECT_EQ(message(), "context_lens[1] is 2000000000, beyond the 192 tokens that block_table reaches");
}
TEST_F(InputFileTest, HugePositionIsAnError) {
  tensors_.at("positions").as<int32_t>()[0] = 2'000'000'000;
  EXPECT_THAT(message(), HasSubstr("positions[0] is 2000000000, expected 0 to 128"));
}
TEST_F(InputFileTest, MlaCacheOfAnotherSize) {
  tensors_["mla_kv_cache"] = Buffer::make(DType::kU8, {1, 64 * 260});
  EXPECT_THAT(message(), HasSubstr("tensor 'mla_kv_cache' has shape [1, 16640], expected"));
}

}  // namespace
}  // namespace megartp::glm52
