#include "megartp/error.h"

namespace megartp {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument: return "invalid_argument";
    case ErrorCode::kUnsupported: return "unsupported";
    case ErrorCode::kNotFound: return "not_found";
    case ErrorCode::kIo: return "io";
    case ErrorCode::kParse: return "parse";
    case ErrorCode::kOutOfMemory: return "out_of_memory";
    case ErrorCode::kOutOfResources: return "out_of_resources";
    case ErrorCode::kDeviceError: return "device_error";
    case ErrorCode::kTimeout: return "timeout";
    case ErrorCode::kDeadlock: return "deadlock";
    case ErrorCode::kMismatch: return "mismatch";
    case ErrorCode::kCancelled: return "cancelled";
    case ErrorCode::kInternal: return "internal";
  }
  return "internal";
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kMismatch: return 1;
    case ErrorCode::kInvalidArgument: return 2;
    case ErrorCode::kNotFound:
    case ErrorCode::kParse: return 3;
    case ErrorCode::kUnsupported: return 4;
    case ErrorCode::kIo:
    case ErrorCode::kOutOfMemory:
    case ErrorCode::kOutOfResources:
    case ErrorCode::kDeviceError: return 5;
    case ErrorCode::kTimeout:
    case ErrorCode::kDeadlock: return 6;
    case ErrorCode::kCancelled: return 130;
    case ErrorCode::kInternal: return 70;
  }
  return 70;
}

std::string Error::to_string() const {
  std::string s = message;
  if (!context.empty()) {
    s += " (";
    for (size_t i = 0; i < context.size(); ++i) {
      if (i != 0) s += ", ";
      s += context[i].first + "=" + context[i].second;
    }
    s += ")";
  }
  return s;
}

}  // namespace megartp
