#include "backends/backend.h"

#include <fmt/format.h>

namespace megartp {

Status Executable::record_trace(uint32_t /*records_per_worker*/) {
  return make_error(ErrorCode::kUnsupported, "this backend does not record traces");
}

std::string_view to_string(Schedule schedule) { return schedule == Schedule::kStatic ? "static" : "dynamic"; }

std::string_view to_string(Dispatch dispatch) {
  switch (dispatch) {
    case Dispatch::kMixed: return "mixed";
    case Dispatch::kAhead: return "ahead";
    case Dispatch::kJustInTime: return "just-in-time";
  }
  return "?";
}

Result<Schedule> parse_schedule(std::string_view name) {
  for (const Schedule s : {Schedule::kStatic, Schedule::kDynamic})
    if (to_string(s) == name) return s;
  return make_error(ErrorCode::kInvalidArgument, fmt::format("unknown schedule '{}'; known: static, dynamic", name));
}

Result<Dispatch> parse_dispatch(std::string_view name) {
  for (const Dispatch d : {Dispatch::kMixed, Dispatch::kAhead, Dispatch::kJustInTime})
    if (to_string(d) == name) return d;
  return make_error(ErrorCode::kInvalidArgument,
                    fmt::format("unknown dispatch '{}'; known: mixed, ahead, just-in-time", name));
}

}  // namespace megartp
