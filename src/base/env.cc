#include "base/env.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <optional>

#include <fmt/format.h>

namespace megartp {
namespace {

constexpr std::array<EnvVar, 6> kVars{{
    {"MEGARTP_CACHE_DIR", EnvType::kPath, "$XDG_CACHE_HOME/megartp or ~/.cache/megartp",
     "folder for synthetic checkpoints and compiled code"},
    {"MEGARTP_TIMEOUT_MS", EnvType::kMilliseconds, "10000",
     "a run that makes no progress for this long ends with exit code 6"},
    {"MEGARTP_POISON", EnvType::kBool, "off",
     "poison workspace and outputs before every run of `megartp run --repeat`, not only the first"},
    {"MEGARTP_BACKEND", EnvType::kName, "cpu-threads", "backend of `megartp run` when --backend is not given"},
    {"MEGARTP_NVRTC", EnvType::kPath, "looked for in the usual places",
     "the NVRTC library (libnvrtc.so.13 or .12) that compiles GPU kernels, or its folder"},
    {"MEGARTP_CUPTI", EnvType::kPath, "looked for in the usual places",
     "the CUPTI library (libcupti.so.13 or .12) that times kernels for `megartp bench`, or its folder"},
}};
constexpr int64_t kMaxTimeoutMs = 24LL * 3600 * 1000;

// The value of a variable; nothing when unset or empty.
std::optional<std::string> value_of(const char* name) {
  const char* v = std::getenv(name);
  if (v == nullptr || *v == '\0') return std::nullopt;
  return std::string(v);
}

tl::unexpected<Error> bad_value(std::string_view name, std::string_view value, std::string_view expected) {
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("environment variable {} is '{}', expected {}", name, value, expected));
}

Result<std::optional<std::string>> absolute_path(const char* name) {
  auto text = value_of(name);
  if (text && text->front() != '/') return bad_value(name, *text, "an absolute path");
  return text;
}

}  // namespace

std::string_view to_string(EnvType type) {
  switch (type) {
    case EnvType::kPath: return "path";
    case EnvType::kMilliseconds: return "milliseconds";
    case EnvType::kBool: return "bool";
    case EnvType::kName: return "name";
  }
  return "?";
}

std::span<const EnvVar> env_vars() { return kVars; }

Result<std::string> env_cache_dir() {
  if (const auto dir = value_of("MEGARTP_CACHE_DIR")) {
    if (dir->front() != '/') return bad_value("MEGARTP_CACHE_DIR", *dir, "an absolute path");
    return *dir;
  }
  // The XDG specification says that a relative path is to be ignored.
  if (const auto dir = value_of("XDG_CACHE_HOME"); dir && dir->front() == '/') return *dir + "/megartp";
  if (const auto home = value_of("HOME"); home && home->front() == '/') return *home + "/.cache/megartp";
  return make_error(ErrorCode::kInvalidArgument,
                    "no cache folder: none of MEGARTP_CACHE_DIR, XDG_CACHE_HOME and HOME holds an absolute path");
}

Result<int64_t> env_timeout_ms() {
  const auto text = value_of("MEGARTP_TIMEOUT_MS");
  if (!text) return 10000;
  int64_t ms = 0;
  const char* last = text->data() + text->size();
  const auto [end, error] = std::from_chars(text->data(), last, ms);
  if (error != std::errc{} || end != last || ms < 1 || ms > kMaxTimeoutMs)
    return bad_value("MEGARTP_TIMEOUT_MS", *text, fmt::format("a whole number from 1 to {}", kMaxTimeoutMs));
  return ms;
}

Result<bool> env_poison() {
  const auto text = value_of("MEGARTP_POISON");
  if (!text) return false;
  for (const std::string_view yes : {"1", "on", "true", "yes"})
    if (*text == yes) return true;
  for (const std::string_view no : {"0", "off", "false", "no"})
    if (*text == no) return false;
  return bad_value("MEGARTP_POISON", *text, "one of 1, on, true, yes, 0, off, false, no");
}

Result<std::string> env_backend() {
  const auto text = value_of("MEGARTP_BACKEND");
  if (!text) return std::string("cpu-threads");
  const bool is_name = std::all_of(text->begin(), text->end(),
                                   [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
  if (!is_name) return bad_value("MEGARTP_BACKEND", *text, "the name of a backend (see `megartp doctor`)");
  return *text;
}

Result<std::optional<std::string>> env_nvrtc() { return absolute_path("MEGARTP_NVRTC"); }
Result<std::optional<std::string>> env_cupti() { return absolute_path("MEGARTP_CUPTI"); }

Status check_env() {
  MEGARTP_TRY(env_cache_dir());
  MEGARTP_TRY(env_timeout_ms());
  MEGARTP_TRY(env_poison());
  MEGARTP_TRY(env_backend());
  MEGARTP_TRY(env_nvrtc());
  MEGARTP_TRY(env_cupti());
  return {};
}

}  // namespace megartp
