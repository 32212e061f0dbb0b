#include "base/file.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace megartp {
namespace {

class FileTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "megartp_file_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::string path(const std::string& name) const { return folder_ + "/" + name; }
  size_t num_entries() const {
    size_t n = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) n += entry.exists() ? 1 : 0;
    return n;
  }

  std::string folder_;
};

TEST_F(FileTest, WritesAndReadsAnyBytes) {
  std::string data;
  for (int i = 0; i < 300000; ++i) data += static_cast<char>(i * 31);
  for (const std::string& d : {std::string(), std::string("x"), std::string("a\0b\n", 4), data}) {
    ASSERT_TRUE(write_file_atomic(path("f"), d));
    const auto back = read_file(path("f"));
    ASSERT_TRUE(back) << back.error().to_string();
    EXPECT_EQ(*back, d);
    EXPECT_EQ(num_entries(), 1U) << "a temporary file is left";
  }
}

TEST_F(FileTest, ReadErrorsNameThePath) {
  const auto missing = read_file(path("nothing"));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find(path("nothing")), std::string::npos);
  EXPECT_NE(missing.error().message.find("No such file"), std::string::npos);
  const auto folder = read_file(folder_);
  ASSERT_FALSE(folder);
  EXPECT_EQ(folder.error().code, ErrorCode::kIo);
  EXPECT_NE(folder.error().message.find("directory"), std::string::npos);
}

TEST_F(FileTest, LimitIsExact) {
  ASSERT_TRUE(write_file_atomic(path("f"), std::string(1000, 'x')));
  EXPECT_TRUE(read_file(path("f"), 1000));
  const auto over = read_file(path("f"), 999);
  ASSERT_FALSE(over);
  EXPECT_EQ(over.error().code, ErrorCode::kParse);
  EXPECT_NE(over.error().message.find("999"), std::string::npos);
  EXPECT_NE(over.error().message.find(path("f")), std::string::npos);
}

TEST_F(FileTest, ReadsPipesAndLimitsThem) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  const std::string data(200000, 'p');
  for (const uint64_t limit : {uint64_t{200000}, uint64_t{1000}}) {
    std::thread writer([&] {
      FILE* f = std::fopen(path("pipe").c_str(), "wb");
      std::fwrite(data.data(), 1, data.size(), f);  // may fail when the reader gives up
      std::fclose(f);
    });
    const auto old = std::signal(SIGPIPE, SIG_IGN);
    const auto got = read_file(path("pipe"), limit);
    writer.join();
    std::signal(SIGPIPE, old);
    EXPECT_EQ(got.has_value(), limit == data.size());
    if (got) {
      EXPECT_EQ(*got, data);
    }
  }
}

TEST_F(FileTest, FailedWritesLeaveTheOldFile) {
  ASSERT_TRUE(write_file_atomic(path("f"), "old"));
  // A file size limit is the one write error that can be had without a special file system.
  struct rlimit saved{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &saved), 0);
  struct rlimit small = saved;
  small.rlim_cur = 4096;
  const auto old = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  const Status failed = write_file_atomic(path("f"), std::string(100000, 'n'));
  ::setrlimit(RLIMIT_FSIZE, &saved);
  std::signal(SIGXFSZ, old);
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, ErrorCode::kIo);
  EXPECT_NE(failed.error().message.find(path("f")), std::string::npos);
  EXPECT_EQ(read_file(path("f")).value(), "old");
  EXPECT_EQ(num_entries(), 1U);
}

TEST_F(FileTest, WriteErrorsNameThePath) {
  const Status missing = write_file_atomic(path("no/such/folder/f"), "x");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("no/such/folder/f"), std::string::npos);
  std::filesystem::create_directory(path("dir"));
  const Status on_folder = write_file_atomic(path("dir"), "x");
  ASSERT_FALSE(on_folder);
  EXPECT_EQ(on_folder.error().code, ErrorCode::kIo);
  EXPECT_EQ(num_entries(), 1U) << "the temporary file is left";
}

TEST_F(FileTest, NothingHappensWithoutCommit) {
  ASSERT_TRUE(write_file_atomic(path("f"), "old"));
  {
    auto writer = AtomicFileWriter::create(path("f"));
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append("half of it"));
    EXPECT_EQ(num_entries(), 2U);
  }
  EXPECT_EQ(num_entries(), 1U);
  EXPECT_EQ(read_file(path("f")).value(), "old");
}

TEST_F(FileTest, WriterMovesAndFinishesOnce) {
  auto first = AtomicFileWriter::create(path("a"));
  auto second = AtomicFileWriter::create(path("b"));
  ASSERT_TRUE(first && second);
  ASSERT_TRUE(first->append("one, "));
  AtomicFileWriter moved(std::move(*first));
  ASSERT_TRUE(moved.append("two"));
  moved = std::move(*second);  // gives up the first
  EXPECT_EQ(num_entries(), 1U);
  ASSERT_TRUE(moved.append("b"));
  ASSERT_TRUE(moved.commit());
  EXPECT_FALSE(moved.commit());
  EXPECT_FALSE(moved.append("more"));
  EXPECT_EQ(read_file(path("b")).value(), "b");
  EXPECT_EQ(num_entries(), 1U);
}

// Renaming over a device or pipe would destroy it; renaming over a link would cut it.
TEST_F(FileTest, PipesAndLinksStayWhatTheyAre) {
  ASSERT_EQ(::mkfifo(path("pipe").c_str(), 0600), 0);
  std::string received;
  std::thread reader([&] { received = read_file(path("pipe")).value_or(""); });
  EXPECT_TRUE(write_file_atomic(path("pipe"), "through"));
  reader.join();
  EXPECT_EQ(received, "through");
  EXPECT_TRUE(std::filesystem::is_fifo(path("pipe")));

  ASSERT_TRUE(write_file_atomic(path("real"), "old"));
  std::filesystem::create_symlink(path("real"), path("link"));
  EXPECT_TRUE(write_file_atomic(path("link"), "new"));
  EXPECT_TRUE(std::filesystem::is_symlink(path("link")));
  EXPECT_EQ(read_file(path("real")).value(), "new");
  EXPECT_EQ(num_entries(), 3U);
}

TEST_F(FileTest, UnfinishedFilesCanBeRemovedAtOnce) {
  auto writer = AtomicFileWriter::create(path("f"));
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->append(std::string_view("half")));
  EXPECT_EQ(num_entries(), 1U);
  unlink_unfinished_files();
  EXPECT_EQ(num_entries(), 0U);
}

TEST_F(FileTest, RelativePathsWork) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  EXPECT_TRUE(write_file_atomic("plain", "x"));
  EXPECT_EQ(read_file("plain").value_or(""), "x");
  std::filesystem::current_path(before);
}

}  // namespace
}  // namespace megartp
