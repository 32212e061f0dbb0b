#include "models/glm52/weights.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/float8.h"
#include "models/glm52/outputs.h"
#include "ops/common/paged_cache.h"

namespace megartp::glm52 {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

Config weights_config() {
  Config c;
  c.hidden_size = 320;  // ragged in K
  c.num_hidden_layers = 8;
  c.num_attention_heads = 2;
  c.q_lora_rank = 256;
  c.kv_lora_rank = 192;  // ragged in N, with rope
  c.index_n_heads = 2;
  return c;
}

class WeightsTest : public testing::Test {
 protected:
  WeightsTest() {
    std::string pattern = (fs::temp_directory_path() / "megartp_w_XXXXXX").string();
    folder_ = mkdtemp(pattern.data());
  }
  ~WeightsTest() override { fs::remove_all(folder_); }
  std::string file(const char* name) const { return (folder_ / name).string(); }

  // A checkpoint of layer 6 with one tensor replaced or (dims empty) left out.
  std::string load_with(const std::string& name, const Buffer* other) {
    EXPECT_TRUE(synth_weights(weights_config(), {6}, 1, file("good")));
    const auto good = SafetensorsFile::open(file("good"));
    EXPECT_TRUE(good);
    std::vector<TensorToWrite> tensors;
    for (const TensorView& t : good->tensors()) {
      if (t.name != name) tensors.push_back({t.name, t.dtype, t.dims, t.data, {}});
      if (t.name == name && other != nullptr)
        tensors.push_back({t.name, other->dtype, other->dims, other->bytes.get(), {}});
    }
    EXPECT_TRUE(write_safetensors(file("bad"), tensors));
    const auto weights = load_weights(weights_config(), 6, file("bad"));
    if (!weights) EXPECT_THAT(weights.error().to_string(), HasSubstr(file("bad")));
    if (!weights)
      EXPECT_TRUE(weights.error().code == ErrorCode::kParse || weights.error().code == ErrorCode::kNotFound);
    return weights ? std::string("accepted") : weights.error().message;
  }
  Buffer copy_of(const std::string& name) {
    EXPECT_TRUE(synth_weights(weights_config(), {6}, 1, file("good")));
    const auto good = SafetensorsFile::open(file("good"));
    const TensorView* t = good->find(name);
    Buffer b = Buffer::make(t->dtype, t->dims);
    std::memcpy(b.bytes.get(), t->data, t->num_bytes);
    return b;
  }

  fs::path folder_;
};

TEST_F(WeightsTest, GoldenCheckpointBinds) {
  const std::string golden = std::string(MEGARTP_SOURCE_DIR) + "/tests/golden/";
  const auto config = load_config(golden + "tiny_a_config.json");
  ASSERT_TRUE(config);
  const auto weights = load_weights(*config, 6, golden + "tiny_a_weights.safetensors");
  ASSERT_TRUE(weights) << weights.error().to_string();
  EXPECT_EQ(weights->items.size(), 18U);
  const auto* q_b = weights->find("model.layers.6.self_attn.q_b_proj.weight");
  ASSERT_NE(q_b, nullptr);
  EXPECT_EQ(q_b->num_bytes, 1024U * 256U);
  for (const auto& item : weights->items)
    EXPECT_EQ(reinterpret_cast<uintptr_t>(item.data) % 16, 0U) << item.graph_tensor;
  const auto other_layer = load_weights(*config, 2, golden + "tiny_a_weights.safetensors");
  ASSERT_FALSE(other_layer);
  EXPECT_EQ(other_layer.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(other_layer.error().to_string(), HasSubstr("no tensor 'model.layers.2.input_layernorm.weight'"));
}

TEST_F(WeightsTest, SynthesisedCheckpointBindsWithoutCopies) {
  ASSERT_TRUE(synth_weights(weights_config(), {5, 6, 8}, 7, file("w")));
  for (const int64_t layer : {5, 6, 8}) {
    const auto weights = load_weights(weights_config(), layer, file("w"));
    ASSERT_TRUE(weights) << weights.error().to_string();
    EXPECT_EQ(weights->items.size(), layer == 5 ? 11U : 18U);
  }
  const auto weights = load_weights(weights_config(), 6, file("w"));
  const auto* q_b = weights->find("model.layers.6.self_attn.q_b_proj.weight");
  EXPECT_EQ(q_b->data, weights->file->find("model.layers.6.self_attn.q_b_proj.weight")->data);
}

TEST_F(WeightsTest, ALayersBytesDependOnSeedAndLayerOnly) {
  ASSERT_TRUE(synth_weights(weights_config(), {6}, 7, file("a")));
  ASSERT_TRUE(synth_weights(weights_config(), {2, 5, 6}, 7, file("b")));
  ASSERT_TRUE(synth_weights(weights_config(), {6}, 8, file("c")));
  const auto a = load_weights(weights_config(), 6, file("a"));
  const auto b = load_weights(weights_config(), 6, file("b"));
  const auto c = load_weights(weights_config(), 6, file("c"));
  const auto other = load_weights(weights_config(), 2, file("b"));
  ASSERT_TRUE(a && b && c && other);
  for (size_t i = 0; i < a->items.size(); ++i) {
    EXPECT_EQ(std::memcmp(a->items[i].data, b->items[i].data, a->items[i].num_bytes), 0) << a->items[i].graph_tensor;
    EXPECT_NE(std::memcmp(a->items[i].data, c->items[i].data, a->items[i].num_bytes), 0) << a->items[i].graph_tensor;
    EXPECT_NE(std::memcmp(a->items[i].data, other->items[i].data, a->items[i].num_bytes), 0)
        << a->items[i].graph_tensor;
  }
}

TEST_F(WeightsTest, ChunksDoNotShowInTheBytes) {
  // 2304 x 2304 = 5.06 MiB: two chunks, of which the first ends inside a row.
  Config config = weights_config();
  config.hidden_size = 2304;
  config.q_lora_rank = 2304;
  ASSERT_TRUE(synth_weights(config, {6}, 3, file("big")));
  const auto weights = load_weights(config, 6, file("big"));
  ASSERT_TRUE(weights) << weights.error().to_string();
  const auto* q_a = weights->find("model.layers.6.self_attn.q_a_proj.weight");
  ASSERT_EQ(q_a->num_bytes, 2304U * 2304U);
  const auto* codes = reinterpret_cast<const uint8_t*>(q_a->data);
  for (int64_t bn = 0; bn < 18; ++bn)
    for (int64_t bk = 0; bk < 18; ++bk) {
      int peaks = 0;
      for (int64_t n = bn * 128; n < bn * 128 + 128; ++n)
        for (int64_t k = bk * 128; k < bk * 128 + 128; ++k) peaks += (codes[n * 2304 + k] & 0x7f) == 0x7e ? 1 : 0;
      ASSERT_GE(peaks, 1) << bn << " " << bk;
      ASSERT_LT(peaks, 40);
    }
}

TEST_F(WeightsTest, ValuesLookLikeARealCheckpoint) {
  ASSERT_TRUE(synth_weights(weights_config(), {6}, 7, file("w")));
  const auto weights = load_weights(weights_config(), 6, file("w"));
  ASSERT_TRUE(weights);
  for (const WeightSpec& spec : layer_weights(weights_config(), 6)) {
    if (spec.kind != WeightSpec::Kind::kFp8) continue;
    const auto* codes = reinterpret_cast<const e4m3*>(weights->find(spec.name)->data);
    const std::string scale_name = spec.name + "_scale_inv";
    const auto* scales = reinterpret_cast<const float*>(weights->find(scale_name)->data);
    const int64_t rows = spec.dims[0];
    const int64_t columns = spec.dims[1];
    const int64_t blocks_k = (columns + 127) / 128;
    double squares = 0;
    double sum = 0;
    int64_t zeros = 0;
    std::vector<float> amax(static_cast<size_t>((rows + 127) / 128 * blocks_k));
    for (int64_t n = 0; n < rows; ++n)
      for (int64_t k = 0; k < columns; ++k) {
        const float v = to_float(codes[n * columns + k]);
        const auto block = static_cast<size_t>(n / 128 * blocks_k + k / 128);
        amax[block] = std::max(amax[block], std::fabs(v));
        zeros += v == 0 ? 1 : 0;
        const double w = static_cast<double>(v) * static_cast<double>(scales[block]);
        sum += w;
        squares += w * w;
      }
    const auto n = static_cast<double>(rows * columns);
    EXPECT_LT(static_cast<double>(zeros), 0.01 * n) << spec.name;
    for (const float a : amax) EXPECT_EQ(a, 448.0F) << spec.name;
    const double expected = 1 / std::sqrt(static_cast<double>(columns));
    EXPECT_NEAR(std::sqrt(squares / n) / expected, 1.0, 0.35) << spec.name;
    EXPECT_NEAR(sum / n / expected, 0.0, 0.05) << spec.name;
    if (amax.size() > 1) EXPECT_NE(scales[0], scales[1]) << spec.name;
  }
}

TEST_F(WeightsTest, ProgressEndsAtTheFileSize) {
  uint64_t last = 0;
  uint64_t total = 0;
  ASSERT_TRUE(synth_weights(weights_config(), {6}, 7, file("w"), [&](uint64_t d, uint64_t t) {
    EXPECT_GE(d, last);
    last = d;
    total = t;
  }));
  EXPECT_EQ(last, total);
  EXPECT_EQ(total, fs::file_size(file("w")));
}

TEST_F(WeightsTest, BadTensorsAreNamed) {
  const std::string q_b = "model.layers.6.self_attn.q_b_proj.weight";
  EXPECT_EQ(load_with("none", nullptr), "accepted");
  EXPECT_EQ(load_with(q_b, nullptr), "the file has no tensor '" + q_b + "'");
  const Buffer bf16_weight = Buffer::make(DType::kBF16, {512, 256});
  EXPECT_EQ(load_with(q_b, &bf16_weight), "tensor '" + q_b + "' has dtype BF16, expected F8_E4M3");
  const Buffer transposed = Buffer::make(DType::kF8E4M3, {256, 512});
  EXPECT_EQ(load_with(q_b, &transposed), "tensor '" + q_b + "' has shape [256, 512], expected [512, 256]");
  const Buffer scales = Buffer::make(DType::kF32, {4, 3});
  EXPECT_EQ(load_with(q_b + "_scale_inv", &scales), "tensor '" + q_b + "_scale_inv' has shape [4, 3], expected [4, 2]");
}

TEST_F(WeightsTest, BadValuesAreNamedWithTheirIndex) {
  const std::string q_b = "model.layers.6.self_attn.q_b_proj.weight";
  for (const uint8_t nan : {uint8_t{0x7f}, uint8_t{0xff}}) {
    const Buffer b = copy_of(q_b);
    b.as<uint8_t>()[300 * 256 + 17] = nan;
    b.as<uint8_t>()[511 * 256 + 255] = nan;  // the first one is reported
    EXPECT_EQ(load_with(q_b, &b), fmt::format("tensor '{}' has the NaN code {:#04x} at [300][17]", q_b, nan));
  }
  for (const float value : {0.0F, -1.0F, INFINITY, NAN}) {
    const Buffer b = copy_of(q_b + "_scale_inv");
    b.as<float>()[5] = value;
    EXPECT_EQ(load_with(q_b + "_scale_inv", &b),
              fmt::format("tensor '{}_scale_inv' has the scale {} at [2][1]", q_b, value));
  }
  const std::string norm = "model.layers.6.input_layernorm.weight";
  const Buffer b = copy_of(norm);
  b.as<bf16>()[319] = bf16{0x7f80};
  EXPECT_EQ(load_with(norm, &b), "tensor '" + norm + "' has the value inf at [319]");
}

TEST_F(WeightsTest, ScanCanBeLeftOut) {
  const std::string q_b = "model.layers.6.self_attn.q_b_proj.weight";
  const Buffer b = copy_of(q_b);
  b.as<uint8_t>()[0] = 0x7f;
  EXPECT_NE(load_with(q_b, &b), "accepted");
  EXPECT_TRUE(load_weights(weights_config(), 6, file("bad"), false));
}

TEST_F(WeightsTest, MisalignedTensorsAreCopied) {
  ASSERT_TRUE(synth_weights(weights_config(), {6}, 7, file("good")));
  const auto good = SafetensorsFile::open(file("good"));
  std::vector<TensorToWrite> tensors;
  for (const TensorView& t : good->tensors()) tensors.push_back({t.name, t.dtype, t.dims, t.data, {}});
  ASSERT_TRUE(write_safetensors(file("aligned"), tensors));
  // One byte more of padding in the header, and every tensor is misaligned.
  std::string bytes;
  {
    std::ifstream in(file("aligned"), std::ios::binary);
    bytes.assign(std::istreambuf_iterator<char>(in), {});
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  bytes.insert(8 + length, " ");
  ++length;
  std::memcpy(bytes.data(), &length, 8);
  std::ofstream(file("shifted"), std::ios::binary) << bytes;
  const auto aligned = load_weights(weights_config(), 6, file("aligned"));
  const auto shifted = load_weights(weights_config(), 6, file("shifted"));
  ASSERT_TRUE(aligned && shifted);
  // The writer can align every tensor whose size is a multiple of 16 bytes; only odd-sized small ones are copied.
  for (const Buffer& copy : aligned->copies) EXPECT_NE(copy.num_bytes % 16, 0U) << copy.num_bytes;
  EXPECT_EQ(shifted->copies.size(), 18U);
  for (size_t i = 0; i < aligned->items.size(); ++i) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(shifted->items[i].data) % 64, 0U);
    EXPECT_EQ(std::memcmp(aligned->items[i].data, shifted->items[i].data, aligned->items[i].num_bytes), 0);
  }
}

TEST_F(WeightsTest, LayersThatDoNotExist) {
  EXPECT_THAT(synth_weights(weights_config(), {9}, 1, file("w")).error().to_string(),
              HasSubstr("layer 9 does not exist"));
  EXPECT_THAT(load_weights(weights_config(), -1, file("w")).error().to_string(), HasSubstr("layer -1 does not exist"));
  EXPECT_THAT(synth_weights(weights_config(), {}, 1, file("w")).error().to_string(), HasSubstr("no layers"));
  EXPECT_THAT(synth_weights(weights_config(), {6, 6}, 1, file("w")).error().to_string(), HasSubstr("is given twice"));
  EXPECT_FALSE(fs::exists(file("w")));
}

// --- outputs.h
// ---------------------------------------------------------------------------------------------------------

TEST(OutputsTest, DequantisesIndexKeysBySlot) {
  Buffer cache = Buffer::make(DType::kU8, {2, ops::index_page_bytes(4)});
  std::byte* page = cache.as<std::byte>() + ops::index_page_bytes(4);
  const e4m3 codes[4] = {to_e4m3(1.0F), to_e4m3(-2.0F), to_e4m3(448.0F), to_e4m3(0.0F)};
  std::memcpy(page + 3 * 4, codes, 4);
  const float scale = 0.5F;
  std::memcpy(page + 64 * 4 + 3 * 4, &scale, 4);
  const std::span<const std::byte> bytes(cache.as<std::byte>(), cache.num_bytes);
  const std::vector<int32_t> slots{64 + 3, 0};
  const auto keys = dequantize_index_k(bytes, slots, 4);
  ASSERT_TRUE(keys);
  EXPECT_EQ(keys->dims, (std::vector<int64_t>{2, 4}));
  const auto* v = keys->as<float>();
  EXPECT_EQ(std::vector<float>(v, v + 8), (std::vector<float>{0.5F, -1.0F, 224.0F, 0, 0, 0, 0, 0}));
  const std::vector<int32_t> outside{0, 128};
  EXPECT_EQ(dequantize_index_k(bytes, outside, 4).error().to_string(),
            "slot_mapping[1] is 128, outside the cache of 128 slots");
  EXPECT_FALSE(dequantize_index_k(bytes.first(100), slots, 4));
}

TEST(OutputsTest, DequantisesIndexQueries) {
  const e4m3 q[4] = {to_e4m3(1.0F), to_e4m3(2.0F), to_e4m3(3.0F), to_e4m3(-4.0F)};
  const float scale[2] = {2.0F, 0.25F};
  const Buffer out = dequantize_index_q(q, scale, 1, 2, 2);
  EXPECT_EQ(out.dims, (std::vector<int64_t>{1, 2, 2}));
  const auto* v = out.as<float>();
  EXPECT_EQ(std::vector<float>(v, v + 4), (std::vector<float>{2, 4, 0.75F, -1}));
}

TEST(OutputsTest, SplitsKv) {
  std::vector<bf16> kv;
  for (int i = 0; i < 10; ++i) kv.push_back(to_bf16(static_cast<float>(i)));
  const Buffer latent = bf16_columns(kv.data(), 2, 5, 0, 3);
  const Buffer k_pe = bf16_columns(kv.data(), 2, 5, 3, 5);
  EXPECT_EQ(std::vector<float>(latent.as<float>(), latent.as<float>() + 6), (std::vector<float>{0, 1, 2, 5, 6, 7}));
  EXPECT_EQ(std::vector<float>(k_pe.as<float>(), k_pe.as<float>() + 4), (std::vector<float>{3, 4, 8, 9}));
  EXPECT_EQ(k_pe.dims, (std::vector<int64_t>{2, 2}));
}

}  // namespace
}  // namespace megartp::glm52
