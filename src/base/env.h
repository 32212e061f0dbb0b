// The one registry of MEGARTP_* environment variables: what they mean, their defaults, and typed access.
//
// `megartp doctor` and the docs list it. A variable that is unset or empty has its default; a value that makes no sense
// is an Error (kInvalidArgument) that names the variable, the value and what was expected, never a silent default.
// Command-line flags win over variables; that is the caller's business. The environment is read at each call and must
// not be changed meanwhile.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "megartp/error.h"

namespace megartp {

enum class EnvType : uint8_t { kPath, kMilliseconds, kBool, kName };
std::string_view to_string(EnvType type);

struct EnvVar {
  std::string_view name;
  EnvType type = EnvType::kName;
  std::string_view default_text;  // as the docs show it
  std::string_view doc;
};
std::span<const EnvVar> env_vars();

// MEGARTP_CACHE_DIR, else $XDG_CACHE_HOME/megartp, else $HOME/.cache/megartp. Always an absolute path; the folder need
// not exist.
Result<std::string> env_cache_dir();
// MEGARTP_TIMEOUT_MS: a run without progress for this long is given up; 1 ms to 24 h.
Result<int64_t> env_timeout_ms();
// MEGARTP_POISON: fill outputs and workspace with NaN before every run, not only the first.
Result<bool> env_poison();
// MEGARTP_BACKEND: lower-case letters, digits and dashes; whether such a backend exists is not checked here.
Result<std::string> env_backend();

// MEGARTP_NVRTC: the NVRTC library or the folder that holds it; nothing when it is to be looked for. Whether it is
// there is not checked here.
Result<std::optional<std::string>> env_nvrtc();
// MEGARTP_CUPTI: likewise, the CUPTI library.
Result<std::optional<std::string>> env_cupti();

// Checks the values of all variables: the first bad one is the error.
Status check_env();

}  // namespace megartp
