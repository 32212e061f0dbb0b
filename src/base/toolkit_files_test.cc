#include "base/toolkit_files.h"

#include <stdlib.h>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megartp {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::IsEmpty;

class ToolkitFiles : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = (fs::temp_directory_path() / "megartp_toolkit_XXXXXX").string();
    root_ = mkdtemp(pattern.data());
    for (const char* name : {"LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV"})
      if (const char* value = ::getenv(name)) old_.emplace_back(name, value);
  }
  void TearDown() override {
    for (const char* name : {"LD_LIBRARY_PATH", "CUDA_HOME", "VIRTUAL_ENV"}) ::unsetenv(name);
    for (const auto& [name, value] : old_) ::setenv(name.c_str(), value.c_str(), 1);
    fs::remove_all(root_);
  }
  fs::path add(const std::string& file) {
    const fs::path path = root_ / file;
    fs::create_directories(path.parent_path());
    std::ofstream(path) << "x";
    return path;
  }
  fs::path root_;
  std::vector<std::pair<std::string, std::string>> old_;
  static constexpr std::string_view kNames[] = {"libwishes.so.13", "libwishes.so.12"};
};

TEST_F(ToolkitFiles, AreLookedForInOrder) {
  EXPECT_THAT(find_toolkit_files(kNames), IsEmpty());
  const fs::path in_path = add("path/libwishes.so.12");
  const fs::path in_toolkit = add("cuda/lib64/libwishes.so.13");
  const fs::path in_cupti = add("cuda/extras/CUPTI/lib64/libwishes.so.12");
  const fs::path in_python = add("venv/lib/python3.99/site-packages/nvidia/cu13/lib/libwishes.so.13");
  ::setenv("LD_LIBRARY_PATH", (":" + (root_ / "path").string() + ":/nowhere").c_str(), 1);
  ::setenv("CUDA_HOME", (root_ / "cuda").c_str(), 1);
  ::setenv("VIRTUAL_ENV", (root_ / "venv").c_str(), 1);
  EXPECT_THAT(find_toolkit_files(kNames), ElementsAre(in_path, in_toolkit, in_cupti, in_python));
}

TEST_F(ToolkitFiles, APlaceIsAFileOrAFolder) {
  const fs::path old_one = add("lib/libwishes.so.12");
  const fs::path new_one = add("lib/libwishes.so.13");
  EXPECT_THAT(toolkit_files_at(root_ / "lib", kNames), ElementsAre(new_one, old_one));
  EXPECT_THAT(toolkit_files_at(old_one, kNames), ElementsAre(old_one));
  EXPECT_THAT(toolkit_files_at(root_ / "nowhere", kNames), IsEmpty());
}

}  // namespace
}  // namespace megartp
