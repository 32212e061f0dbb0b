// Error and Result: how every fallible call of MegaRTP reports.
//
// No exception crosses a public function. An Error carries a code (which fixes the exit code of the command-line tool),
// one sentence, and key/value context added on the way up ("op", "tensor", "shape", "path"), so that a failure always
// names the thing that is wrong.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

namespace megartp {

enum class ErrorCode : uint8_t {
  kInvalidArgument,  // the caller asked for something that has no meaning (bad shape, bad option)
  kUnsupported,      // meaningful, but not available here (no device, missing op or backend)
  kNotFound,         // a named file, tensor or op does not exist
  kIo,               // the operating system refused a read or a write
  kParse,            // a file is malformed
  kOutOfMemory,
  kOutOfResources,  // a fixed capacity (instruction slots, queue, operand row) is exceeded
  kDeviceError,
  kTimeout,
  kDeadlock,  // a plan cannot make progress
  kMismatch,  // a comparison failed
  kCancelled,
  kInternal,  // our own bug
};

// "invalid_argument", "parse", ...
std::string_view to_string(ErrorCode code);

// Exit code of the command-line tool for an error: 1 mismatch, 2 usage, 3 bad input file, 4 unsupported here, 5
// run-time failure, 6 timeout or deadlock, 70 internal, 130 interrupted.
int exit_code(ErrorCode code);

struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;
  std::vector<std::pair<std::string, std::string>> context;
  std::string details;  // further lines, e.g. what each worker of a stuck run waits for; empty for most errors

  Error() = default;
  Error(ErrorCode error_code, std::string sentence, std::vector<std::pair<std::string, std::string>> pairs = {})
      : code(error_code), message(std::move(sentence)), context(std::move(pairs)) {}

  // Adds one key/value pair and returns *this, for use while forwarding.
  Error&& with(std::string_view key, std::string_view value) && {
    context.emplace_back(key, value);
    return std::move(*this);
  }
  // One line: "message (key=value, key=value)".
  std::string to_string() const;
};

template <class T>
using Result = tl::expected<T, Error>;
using Status = Result<void>;

inline tl::unexpected<Error> make_error(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message), {}});
}

namespace detail {
template <class T>
T take_value(Result<T>&& result) {
  return std::move(*result);
}
inline void take_value(Result<void>&& /*result*/) {}
}  // namespace detail

}  // namespace megartp

// Evaluates a Result; on error returns it from the enclosing function, else yields the value. May be nested.
#define MEGARTP_TRY(expr) MEGARTP_TRY_AS_(expr, MEGARTP_CONCAT_(megartp_result_, __COUNTER__))
#define MEGARTP_CONCAT_(a, b) MEGARTP_CONCAT2_(a, b)
#define MEGARTP_CONCAT2_(a, b) a##b
#define MEGARTP_TRY_AS_(expr, result)                                \
  (__extension__({                                                   \
    auto result = (expr);                                            \
    if (!result) return ::tl::unexpected(std::move(result).error()); \
    ::megartp::detail::take_value(std::move(result));                \
  }))
