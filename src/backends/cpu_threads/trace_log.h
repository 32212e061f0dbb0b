// Where one worker writes its trace records down: memory that is there before the run, one owner, no lock. Records that
// find no room are counted, and the run goes on.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "abi/trace_record.h"

namespace megartp {

inline uint64_t trace_clock_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

class alignas(64) TraceLog {
 public:
  explicit TraceLog(uint32_t capacity) : records_(capacity) {}
  void clear() { num_records_ = num_lost_ = 0; }
  void add(const abi::TraceRecord& record) {
    if (num_records_ == records_.size())
      ++num_lost_;
    else
      records_[num_records_++] = record;
  }
  // Only while no worker runs.
  uint64_t num_lost() const { return num_lost_; }
  void append_to(std::vector<abi::TraceRecord>& out) const {
    out.insert(out.end(), records_.begin(), records_.begin() + static_cast<std::ptrdiff_t>(num_records_));
  }

 private:
  std::vector<abi::TraceRecord> records_;
  size_t num_records_ = 0;
  uint64_t num_lost_ = 0;
};

}  // namespace megartp
