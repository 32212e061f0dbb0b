#include "codegen/cubin_cache.h"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/file.h"

namespace megartp::codegen {
namespace {

const CachedCubin kEntry{"_Z1kv",
                         std::string("\x7f"
                                     "ELF\0\1\2\3",
                                     8),
                         "ptxas info: 12 registers"};

class CubinCacheTest : public testing::Test {
 protected:
  std::string folder_ = testing::TempDir() + "/cubin_cache_test_" + std::to_string(::getpid()) + "/nested";
  void TearDown() override { std::filesystem::remove_all(std::filesystem::path(folder_).parent_path()); }
};

TEST(CachedCubin, RoundTrip) {
  EXPECT_EQ(decode_cached_cubin(encode_cached_cubin(kEntry)).value(), kEntry);
  EXPECT_EQ(decode_cached_cubin(encode_cached_cubin({})).value(), CachedCubin{});
}

TEST(CachedCubin, EveryWrongByteIsSeen) {
  const std::string good = encode_cached_cubin(kEntry);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string bad = good;
    bad[i] = static_cast<char>(bad[i] ^ 0x10);
    EXPECT_FALSE(decode_cached_cubin(bad)) << "byte " << i;
    EXPECT_FALSE(decode_cached_cubin(good.substr(0, i))) << "cut at " << i;
  }
  EXPECT_FALSE(decode_cached_cubin(good + "x"));
}

TEST_F(CubinCacheTest, StoresAndFinds) {
  const CubinCache cache(folder_);
  const Hash128 key = hash128(std::string_view("key"));
  CachedCubin found;
  EXPECT_EQ(cache.find(key, found), CubinCache::Found::kAbsent);
  ASSERT_TRUE(cache.store(key, kEntry));
  EXPECT_EQ(cache.find(key, found), CubinCache::Found::kWhole);
  EXPECT_EQ(found, kEntry);
  EXPECT_EQ(cache.find(hash128(std::string_view("other")), found), CubinCache::Found::kAbsent);

  ASSERT_TRUE(write_file_atomic(cache.path_of(key), "MEGARTPK and nothing"));
  EXPECT_EQ(cache.find(key, found), CubinCache::Found::kCorrupt);
}

TEST_F(CubinCacheTest, UnwritableFolder) {
  ASSERT_TRUE(std::filesystem::create_directories(std::filesystem::path(folder_).parent_path()));
  ASSERT_TRUE(write_file_atomic(folder_, "a file where the folder should be"));
  EXPECT_EQ(CubinCache(folder_).store({}, kEntry).error().code, ErrorCode::kIo);
}

TEST(CubinCache, WithoutFolderItIsOff) {
  const CubinCache cache("");
  CachedCubin found;
  EXPECT_TRUE(cache.store({}, kEntry));
  EXPECT_EQ(cache.find({}, found), CubinCache::Found::kAbsent);
}

}  // namespace
}  // namespace megartp::codegen
