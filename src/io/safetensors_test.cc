#include "io/safetensors.h"

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megartp {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

class TempFolder {
 public:
  TempFolder() {
    std::string pattern = (fs::temp_directory_path() / "megartp_st_XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }
  ~TempFolder() { fs::remove_all(path_); }
  std::string file(const std::string& name) const { return (path_ / name).string(); }
  size_t num_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(path_), fs::directory_iterator{}));
  }

 private:
  fs::path path_;
};

std::string with_length(const std::string& header, uint64_t length, const std::string& data) {
  std::string s(8, '\0');
  for (size_t i = 0; i < 8; ++i) s[i] = static_cast<char>(length >> (8 * i) & 0xffU);
  return s + header + data;
}
std::string file_of(const std::string& header, size_t data_bytes) {
  return with_length(header, header.size(), std::string(data_bytes, '\x11'));
}
Result<SafetensorsFile> parse(const std::string& bytes) {
  return SafetensorsFile::parse(std::as_bytes(std::span(bytes.data(), bytes.size())));
}
std::string read_all(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}
void write_all(const std::string& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }

TEST(SafetensorsTest, ReadsTensorsScalarsAndMetadata) {
  const std::string bytes = file_of(
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[2,1],"data_offsets":[4,12]},)"
      R"("a":{"dtype":"I32","shape":[],"data_offsets":[0,4]},"e":{"dtype":"BF16","shape":[0,7],"data_offsets":[12,12]}}   )",
      12);
  const auto file = parse(bytes);
  ASSERT_TRUE(file) << file.error().to_string();
  ASSERT_EQ(file->tensors().size(), 3U);
  EXPECT_EQ(file->tensors()[0].name, "a");
  EXPECT_TRUE(file->tensors()[0].dims.empty());
  EXPECT_EQ(file->tensors()[0].num_bytes, 4U);
  EXPECT_EQ(file->tensors()[1].name, "b");
  EXPECT_EQ(file->tensors()[1].dims, (std::vector<int64_t>{2, 1}));
  EXPECT_EQ(reinterpret_cast<const char*>(file->tensors()[1].data), bytes.data() + bytes.size() - 8);
  EXPECT_EQ(file->find("e")->num_bytes, 0U);
  EXPECT_EQ(file->find("missing"), nullptr);
  EXPECT_EQ(file->metadata().at("k"), "v");
}

TEST(SafetensorsTest, EmptyFileOfNoTensors) {
  const auto file = parse(file_of("{}", 0));
  ASSERT_TRUE(file);
  EXPECT_TRUE(file->tensors().empty());
}

TEST(SafetensorsTest, GetNamesWhatIsWrong) {
  const std::string bytes = file_of(R"({"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}})", 24);
  const auto file = parse(bytes);
  ASSERT_TRUE(file);
  const std::vector<int64_t> right{2, 3};
  const std::vector<int64_t> wrong{3, 2};
  EXPECT_TRUE(file->get("w", DType::kF32, right));
  const auto shape = file->get("w", DType::kF32, wrong);
  ASSERT_FALSE(shape);
  EXPECT_EQ(shape.error().code, ErrorCode::kParse);
  EXPECT_EQ(shape.error().to_string(), "tensor 'w' has shape [2, 3], expected [3, 2]");
  const auto dtype = file->get("w", DType::kBF16, right);
  ASSERT_FALSE(dtype);
  EXPECT_EQ(dtype.error().to_string(), "tensor 'w' has dtype F32, expected BF16");
  const auto missing = file->get("x", DType::kBF16, right);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_EQ(missing.error().to_string(), "the file has no tensor 'x'");
}

struct LyingHeader {
  const char* header;
  size_t data_bytes;
  const char* message;
  ErrorCode code = ErrorCode::kParse;
};

TEST(SafetensorsTest, LyingHeadersAreNamed) {
  const LyingHeader kCases[] = {
      {R"()", 0, "the header does not start with '{'"},
      {R"( {})", 0, "the header does not start with '{'"},
      {R"([])", 0, "the header does not start with '{'"},
      {R"({)", 0, "the header is not valid JSON at byte"},
      {R"({}x)", 0, "the header is not valid JSON at byte"},
      {R"({"a":1})", 0, "entry 'a' is a number, expected an object"},
      {R"({"a":null})", 0, "entry 'a' is null, expected an object"},
      {R"({"a":[]})", 0, "entry 'a' is an array, expected an object"},
      {R"({"a":{}})", 0, "tensor 'a' has no \"dtype\""},
      {R"({"a":{"dtype":"U8","shape":[1]}})", 1, "tensor 'a' has no \"data_offsets\""},
      {R"({"a":{"dtype":"U8","data_offsets":[0,1]}})", 1, "tensor 'a' has no \"shape\""},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1],"x":1}})", 1, "tensor 'a' has an unknown field 'x'"},
      {R"({"a":{"dtype":"U8","dtype":"U8"}})", 1, "tensor 'a' has \"dtype\" twice"},
      {R"({"a":{"dtype":3}})", 1, "tensor 'a': \"dtype\" is a number, expected a string"},
      {R"({"a":{"dtype":["U8"]}})", 1, "tensor 'a': \"dtype\" is an array, expected a string"},
      {R"({"a":{"shape":7}})", 1, "tensor 'a': \"shape\" is a number, expected an array"},
      {R"({"a":{"shape":"7"}})", 1, "tensor 'a': \"shape\" is a string, expected an array"},
      {R"({"a":{"shape":["7"]}})", 1, "tensor 'a': \"shape\" is a string, expected a whole number"},
      {R"({"a":{"shape":[[1]]}})", 1, "tensor 'a': \"shape\" is an array, expected a whole number"},
      {R"({"a":{"shape":[true]}})", 1, "tensor 'a': \"shape\" is a boolean, expected a whole number"},
      {R"({"a":{"shape":[-1]}})", 1, "tensor 'a': \"shape\" holds the negative number -1"},
      {R"({"a":{"shape":[1.5]}})", 1, "tensor 'a': \"shape\" holds 1.5, not a whole number"},
      {R"({"a":{"shape":[9223372036854775808]}})", 1,
       "\"shape\" holds 9223372036854775808, not a whole number of at most 63"},
      {R"({"a":{"shape":[99999999999999999999]}})", 1, "\"shape\" holds 99999999999999999999, not a whole number"},
      {R"({"a":{"shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]}})", 1,
       "tensor 'a': \"shape\" holds more than 32 dimensions"},
      {R"({"a":{"data_offsets":[0]}})", 1, "tensor 'a': \"data_offsets\" holds fewer than two numbers"},
      {R"({"a":{"data_offsets":[0,1,2]}})", 1, "tensor 'a': \"data_offsets\" holds more than two numbers"},
      {R"({"a":{"data_offsets":[-1,1]}})", 1, "tensor 'a': \"data_offsets\" holds the negative number -1"},
      {R"({"a":{"dtype":"Q7","shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'a' has unknown dtype 'Q7'"},
      {R"({"a":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})", 2, "tensor 'a' has unsupported dtype 'F16'",
       ErrorCode::kUnsupported},
      {R"({"a":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'a' has unsupported dtype 'F8_E5M2'",
       ErrorCode::kUnsupported},
      {R"({"a":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
       "tensor 'a' has shape [4294967296, 4294967296], whose size overflows"},
      {R"({"a":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0, "whose size overflows"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "tensor 'a' has reversed data_offsets [1, 0]"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})", 1,
       "tensor 'a' ends at byte 2 of the data, but the file holds only 1"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[9223372036854775806,9223372036854775807]}})", 1,
       "tensor 'a' ends at byte 9223372036854775807 of the data"},
      {R"({"a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,8]}})", 8,
       "tensor 'a' (F32 [2, 2]) takes 16 bytes, but its data_offsets [0, 8] span 8"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, "the name 'a' appears twice"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "tensors 'a' and 'b' overlap"},
      {R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}})",
       5, "bytes 2 to 3 of the data, before tensor 'b', belong to no tensor"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "bytes 0 to 1 of the data, before tensor 'a'"},
      {R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 4,
       "3 bytes after the last tensor belong to no tensor"},
      {R"({})", 4, "4 bytes after the last tensor belong to no tensor"},
      {R"({"__metadata__":{"k":1}})", 0, "__metadata__ key 'k' is a number, expected a string"},
      {R"({"__metadata__":{"k":{}}})", 0, "__metadata__ key 'k' is an object, expected a string"},
      {R"({"__metadata__":[]})", 0, "entry '__metadata__' is an array, expected an object"},
      {R"({"__metadata__":{"k":"1","k":"2"}})", 0, "__metadata__ has the key 'k' twice"},
      {"{\"\xff\":{}}", 0, "the header is not valid JSON at byte"},
      {R"({"a\nb":1})", 0, "entry 'a\\x0ab' is a number"},
  };
  for (const LyingHeader& c : kCases) {
    const auto file = parse(file_of(c.header, c.data_bytes));
    ASSERT_FALSE(file) << c.header;
    EXPECT_THAT(file.error().to_string(), HasSubstr(c.message)) << c.header;
    EXPECT_EQ(file.error().code, c.code) << c.header;
    EXPECT_EQ(file.error().to_string().find('\n'), std::string::npos) << c.header;
  }
}

TEST(SafetensorsTest, LyingHeaderLengths) {
  const auto message = [](const std::string& bytes) {
    const auto file = parse(bytes);
    return file ? std::string("accepted") : file.error().to_string();
  };
  EXPECT_EQ(message(""), "the file has 0 bytes; a safetensors file has at least 8");
  EXPECT_EQ(message("1234567"), "the file has 7 bytes; a safetensors file has at least 8");
  EXPECT_EQ(message(with_length("{}", 3, "")), "the header's length is given as 3 bytes, but only 2 follow");
  EXPECT_EQ(message(with_length("{}", 0, "")), "the header does not start with '{'");
  EXPECT_THAT(message(with_length("{}", 100'000'001, "")),
              HasSubstr("100000001 bytes, more than the limit of 100000000"));
  EXPECT_THAT(message(with_length("{}", ~uint64_t{0}, "")),
              HasSubstr("18446744073709551615 bytes, more than the limit"));
}

TEST(SafetensorsTest, DeepNestingEndsWithAnError) {
  std::string header = R"({"a":)";
  for (int i = 0; i < 1'000'000; ++i) header += '[';
  EXPECT_FALSE(parse(file_of(header, 0)));
}

TEST(SafetensorsTest, TruncationAtEveryByteIsAnError) {
  const std::string whole = file_of(
      R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"I32","shape":[],"data_offsets":[0,4]}})",
      12);
  ASSERT_TRUE(parse(whole));
  TempFolder folder;
  for (size_t n = 0; n < whole.size(); ++n) {
    // A heap copy of exactly n bytes: an address sanitizer sees any read beyond them.
    const std::vector<char> part(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n));
    const auto file = SafetensorsFile::parse(std::as_bytes(std::span(part)));
    ASSERT_FALSE(file) << n;
    EXPECT_EQ(file.error().code, ErrorCode::kParse) << n;
    EXPECT_FALSE(file.error().message.empty());
    const std::string path = folder.file("cut");
    write_all(path, whole.substr(0, n));
    const auto opened = SafetensorsFile::open(path);
    ASSERT_FALSE(opened) << n;
    EXPECT_THAT(opened.error().to_string(), HasSubstr(path));
  }
}

TEST(SafetensorsTest, RandomDamageNeverGivesAViewOutside) {
  const std::string whole = file_of(
      R"({"__metadata__":{"k":"v"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"a":{"dtype":"I32","shape":[1,1],)"
      R"("data_offsets":[0,4]}})",
      12);
  std::mt19937 random(1);
  size_t accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string damaged = whole;
    for (auto n = random() % 3 + 1; n > 0; --n)
      damaged[random() % damaged.size()] = "0123456789,:[]{}\"x"[random() % 18];
    const auto file = parse(damaged);
    if (!file) continue;
    ++accepted;
    for (const TensorView& t : file->tensors()) {
      const char* data = reinterpret_cast<const char*>(t.data);
      ASSERT_GE(data, damaged.data());
      ASSERT_LE(data + t.num_bytes, damaged.data() + damaged.size());
    }
  }
  EXPECT_GT(accepted, 0U);  // damage of names and data is legal
  EXPECT_LT(accepted, 10000U);
}

TEST(SafetensorsTest, OpenNamesThePath) {
  TempFolder folder;
  const auto missing = SafetensorsFile::open(folder.file("none"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.error().to_string(), HasSubstr(folder.file("none")));
  const auto directory = SafetensorsFile::open(folder.file(""));
  ASSERT_FALSE(directory);
  EXPECT_EQ(directory.error().code, ErrorCode::kIo);
  write_all(folder.file("empty"), "");
  const auto empty = SafetensorsFile::open(folder.file("empty"));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, ErrorCode::kParse);
}

TEST(SafetensorsTest, WritesWhatItReads) {
  TempFolder folder;
  const std::vector<float> floats{1.0F, -2.5F, 3.0F};
  const int32_t scalar = 42;
  const std::vector<std::byte> odd(7, std::byte{9});
  constexpr int64_t kBig = (int64_t{9} << 20) / 2 * 2 + 128;  // more than two chunks
  const auto fill = [](uint64_t offset, std::span<std::byte> out) -> Status {
    for (size_t i = 0; i < out.size(); ++i) out[i] = static_cast<std::byte>((offset + i) * 7);
    return {};
  };
  const TensorToWrite tensors[] = {{"odd", DType::kU8, {7}, odd.data(), {}},
                                   {"scalar", DType::kI32, {}, &scalar, {}},
                                   {"floats", DType::kF32, {3, 1}, floats.data(), {}},
                                   {"none", DType::kF64, {0}, nullptr, {}},
                                   {"big", DType::kF8E4M3, {2, kBig / 2}, nullptr, fill}};
  std::vector<uint64_t> done;
  uint64_t total = 0;
  const std::string path = folder.file("a.safetensors");
  const Status status = write_safetensors(path, tensors, {{"seed", "7"}}, [&](uint64_t d, uint64_t t) {
    done.push_back(d);
    total = t;
  });
  ASSERT_TRUE(status) << status.error().to_string();
  EXPECT_EQ(folder.num_files(), 1U);
  EXPECT_EQ(total, fs::file_size(path));
  EXPECT_EQ(done.back(), total);
  EXPECT_TRUE(std::is_sorted(done.begin(), done.end()));
  EXPECT_GE(done.size(), 5U);

  const auto file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().to_string();
  EXPECT_EQ(file->metadata().at("seed"), "7");
  for (const TensorView& t : file->tensors())
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.data) % size_in_bytes(t.dtype), 0U) << t.name;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->find("big")->data) % 64, 0U);
  // NOLINTNEXTLINE(bugprone-suspicious-memory-comparison): bits
  EXPECT_EQ(std::memcmp(file->find("floats")->data, floats.data(), 12), 0);
  EXPECT_EQ(std::memcmp(file->find("scalar")->data, &scalar, 4), 0);
  EXPECT_EQ(std::memcmp(file->find("odd")->data, odd.data(), 7), 0);
  EXPECT_EQ(file->find("none")->dims, std::vector<int64_t>{0});
  const TensorView* big = file->find("big");
  for (uint64_t i = 0; i < big->num_bytes; ++i) ASSERT_EQ(big->data[i], static_cast<std::byte>(i * 7)) << i;
}

TEST(SafetensorsTest, FailedWriteLeavesNothingAndKeepsTheOldFile) {
  TempFolder folder;
  const std::string path = folder.file("a.safetensors");
  write_all(path, "old");
  const auto fail = [](uint64_t offset, std::span<std::byte>) -> Status {
    if (offset > 0) return make_error(ErrorCode::kInternal, "generator gave up");
    return {};
  };
  const TensorToWrite tensors[] = {{"w", DType::kU8, {int64_t{8} << 20}, nullptr, fail}};
  const Status status = write_safetensors(path, tensors);
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().to_string(), "generator gave up (tensor=w)");
  EXPECT_EQ(read_all(path), "old");
  EXPECT_EQ(folder.num_files(), 1U);
  const Status no_folder = write_safetensors(folder.file("none/a"), tensors);
  ASSERT_FALSE(no_folder);
  EXPECT_THAT(no_folder.error().to_string(), HasSubstr(folder.file("none/a")));
}

TEST(SafetensorsTest, WriterRefusesWhatTheReaderWould) {
  TempFolder folder;
  const std::string path = folder.file("a");
  const uint8_t byte = 0;
  const auto message = [&](std::vector<TensorToWrite> tensors) {
    const Status status = write_safetensors(path, tensors);
    return status ? std::string("accepted") : status.error().to_string();
  };
  EXPECT_EQ(message({{"a", DType::kU8, {1}, &byte, {}}, {"a", DType::kU8, {1}, &byte, {}}}),
            "tensor 'a' is given twice");
  EXPECT_EQ(message({{"__metadata__", DType::kU8, {1}, &byte, {}}}), "tensor '__metadata__' has a reserved name");
  EXPECT_EQ(message({{"a", DType::kU8, {-1}, &byte, {}}}), "tensor 'a' has an impossible shape [-1]");
  EXPECT_EQ(message({{"a", DType::kU8, {1}, nullptr, {}}}), "tensor 'a' needs either data or a generator");
  EXPECT_THAT(message({{"\xff", DType::kU8, {1}, &byte, {}}}), HasSubstr("not valid UTF-8"));
  EXPECT_EQ(folder.num_files(), 0U);
}

TEST(SafetensorsTest, GoldenFilesRead) {
  const std::string folder = std::string(MEGARTP_SOURCE_DIR) + "/tests/golden/";
  const auto weights = SafetensorsFile::open(folder + "tiny_a_weights.safetensors");
  ASSERT_TRUE(weights) << weights.error().to_string();
  EXPECT_EQ(weights->tensors().size(), 18U);
  EXPECT_EQ(weights->metadata().at("layer"), "6");
  EXPECT_EQ(weights->find("model.layers.6.self_attn.kv_b_proj.weight")->dims, (std::vector<int64_t>{1792, 128}));
  EXPECT_EQ(weights->find("model.layers.6.self_attn.kv_b_proj.weight")->dtype, DType::kF8E4M3);
  const auto io = SafetensorsFile::open(folder + "tiny_a_io.safetensors");
  ASSERT_TRUE(io) << io.error().to_string();
  EXPECT_EQ(io->tensors().size(), 15U);
  EXPECT_EQ(io->find("expect.logits")->dims, (std::vector<int64_t>{6, 300}));
}

}  // namespace
}  // namespace megartp
