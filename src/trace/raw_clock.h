// Ticks of a raw trace -> nanoseconds from the begin of the run.
#pragma once

#include <cmath>
#include <cstdint>
#include <optional>

#include "backends/raw_trace.h"

namespace megartp::trace {

class RawClock {
 public:
  explicit RawClock(const RawTrace& raw) : raw_(raw) {}
  bool is_valid() const {
    return raw_.begin <= raw_.end && raw_.ns_per_tick > 0 &&
           static_cast<double>(raw_.end - raw_.begin) * raw_.ns_per_tick < 4e18;
  }
  // Nothing for a time outside the run.
  std::optional<uint64_t> ns(uint64_t ticks) const {
    if (ticks < raw_.begin || ticks > raw_.end) return std::nullopt;
    return static_cast<uint64_t>(std::llround(static_cast<double>(ticks - raw_.begin) * raw_.ns_per_tick));
  }
  uint64_t span_ns() const { return *ns(raw_.end); }
  uint64_t begin_ns() const {
    return static_cast<uint64_t>(std::llround(static_cast<double>(raw_.begin) * raw_.ns_per_tick));
  }

 private:
  const RawTrace& raw_;
};

}  // namespace megartp::trace
