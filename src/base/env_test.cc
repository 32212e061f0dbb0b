#include "base/env.h"

#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace megartp {
namespace {

// Clears all variables and puts them back.
class EnvTest : public ::testing::Test {
 protected:
  EnvTest() {
    for (const EnvVar& v : env_vars()) save(std::string(v.name));
    save("XDG_CACHE_HOME");
    save("HOME");
  }
  ~EnvTest() override {
    for (const auto& [name, value] : saved_) {
      if (value) {
        ::setenv(name.c_str(), value->c_str(), 1);
      } else {
        ::unsetenv(name.c_str());
      }
    }
  }
  static void set(const char* name, const char* value) { ::setenv(name, value, 1); }

 private:
  void save(const std::string& name) {
    const char* v = std::getenv(name.c_str());
    saved_[name] = v == nullptr ? std::nullopt : std::optional<std::string>(v);
    ::unsetenv(name.c_str());
  }
  std::map<std::string, std::optional<std::string>> saved_;
};

template <class T>
void expect_bad(const Result<T>& result, const char* name, const char* value) {
  ASSERT_FALSE(result) << name << "=" << value;
  EXPECT_EQ(result.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(result.error().message.find(name), std::string::npos) << result.error().message;
  EXPECT_NE(result.error().message.find(value), std::string::npos) << result.error().message;
  const Status all = check_env();
  ASSERT_FALSE(all);
  EXPECT_EQ(all.error().message, result.error().message);
}

TEST_F(EnvTest, RegistryIsComplete) {
  std::set<std::string_view> names;
  for (const EnvVar& v : env_vars()) {
    EXPECT_TRUE(v.name.starts_with("MEGARTP_")) << v.name;
    EXPECT_FALSE(v.doc.empty());
    EXPECT_FALSE(v.default_text.empty());
    EXPECT_NE(to_string(v.type), "?");
    names.insert(v.name);
  }
  EXPECT_EQ(names, (std::set<std::string_view>{"MEGARTP_CACHE_DIR", "MEGARTP_TIMEOUT_MS", "MEGARTP_POISON",
                                               "MEGARTP_BACKEND", "MEGARTP_NVRTC", "MEGARTP_CUPTI"}));
}

TEST_F(EnvTest, Defaults) {
  set("HOME", "/homes/someone");
  EXPECT_EQ(env_cache_dir().value(), "/homes/someone/.cache/megartp");
  EXPECT_EQ(env_timeout_ms().value(), 10000);
  EXPECT_FALSE(env_poison().value());
  EXPECT_EQ(env_backend().value(), "cpu-threads");
  EXPECT_TRUE(check_env());
  for (const EnvVar& v : env_vars()) set(std::string(v.name).c_str(), "");  // empty is unset
  EXPECT_TRUE(check_env());
  EXPECT_EQ(env_timeout_ms().value(), 10000);
}

TEST_F(EnvTest, CacheFolder) {
  expect_bad(env_cache_dir(), "MEGARTP_CACHE_DIR", "HOME");
  set("HOME", "/homes/someone");
  set("XDG_CACHE_HOME", "relative/path");  // ignored, as the XDG specification says
  EXPECT_EQ(env_cache_dir().value(), "/homes/someone/.cache/megartp");
  set("XDG_CACHE_HOME", "/var/cache");
  EXPECT_EQ(env_cache_dir().value(), "/var/cache/megartp");
  set("MEGARTP_CACHE_DIR", "/big/disk");
  EXPECT_EQ(env_cache_dir().value(), "/big/disk");
  set("MEGARTP_CACHE_DIR", "big/disk");
  expect_bad(env_cache_dir(), "MEGARTP_CACHE_DIR", "big/disk");
}

TEST_F(EnvTest, Timeout) {
  set("HOME", "/");
  for (const char* bad : {"0", "-5", "ten", "10s", " 10", "1.5", "86400001", "99999999999999999999"}) {
    set("MEGARTP_TIMEOUT_MS", bad);
    expect_bad(env_timeout_ms(), "MEGARTP_TIMEOUT_MS", bad);
  }
  set("MEGARTP_TIMEOUT_MS", "1");
  EXPECT_EQ(env_timeout_ms().value(), 1);
  set("MEGARTP_TIMEOUT_MS", "86400000");
  EXPECT_EQ(env_timeout_ms().value(), 86400000);
}

TEST_F(EnvTest, Poison) {
  set("HOME", "/");
  for (const char* yes : {"1", "on", "true", "yes"}) {
    set("MEGARTP_POISON", yes);
    EXPECT_TRUE(env_poison().value());
  }
  for (const char* no : {"0", "off", "false", "no"}) {
    set("MEGARTP_POISON", no);
    EXPECT_FALSE(env_poison().value());
  }
  set("MEGARTP_POISON", "maybe");
  expect_bad(env_poison(), "MEGARTP_POISON", "maybe");
}

TEST_F(EnvTest, Backend) {
  set("HOME", "/");
  set("MEGARTP_BACKEND", "cpu-reference");
  EXPECT_EQ(env_backend().value(), "cpu-reference");
  set("MEGARTP_BACKEND", "CPU threads");
  expect_bad(env_backend(), "MEGARTP_BACKEND", "CPU threads");
  set("MEGARTP_BACKEND", "");
}

TEST_F(EnvTest, Nvrtc) {
  set("HOME", "/");
  EXPECT_EQ(env_nvrtc().value(), std::nullopt);
  set("MEGARTP_NVRTC", "/opt/cuda/lib64");
  EXPECT_EQ(env_nvrtc().value(), "/opt/cuda/lib64");
  set("MEGARTP_NVRTC", "lib64");
  expect_bad(env_nvrtc(), "MEGARTP_NVRTC", "lib64");
}

TEST_F(EnvTest, Cupti) {
  set("HOME", "/");
  EXPECT_EQ(env_cupti().value(), std::nullopt);
  set("MEGARTP_CUPTI", "/opt/cuda/extras/CUPTI/lib64");
  EXPECT_EQ(env_cupti().value(), "/opt/cuda/extras/CUPTI/lib64");
  set("MEGARTP_CUPTI", "lib64");
  expect_bad(env_cupti(), "MEGARTP_CUPTI", "lib64");
}

}  // namespace
}  // namespace megartp
