// A CUPTI that only pretends: it hands out the records that a test gives it when it is flushed. One at a time, as its
// functions have no object.
#pragma once

#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include "backends/cuda_common/cupti_abi.h"

namespace megartp::test {

class FakeCupti {
 public:
  FakeCupti() {
    current() = this;
    api_.get_version = [](uint32_t* version) {
      *version = 130001;
      return cuda::kCuptiSuccess;
    };
    api_.get_result_string = [](cuda::CuptiStatus, const char** text) {
      *text = "as it was told";
      return cuda::kCuptiSuccess;
    };
    api_.register_callbacks = [](cuda::BufferRequested requested, cuda::BufferCompleted completed) {
      current()->requested_ = requested;
      current()->completed_ = completed;
      return cuda::kCuptiSuccess;
    };
    api_.enable = [](int kind) {
      current()->enabled.push_back(kind);
      if (current()->on_enable) current()->on_enable();
      return current()->enable_status;
    };
    api_.disable = [](int kind) {
      std::erase(current()->enabled, kind);
      return cuda::kCuptiSuccess;
    };
    api_.flush_all = [](uint32_t) { return current()->flush(); };
    api_.get_next_record = [](uint8_t* buffer, size_t num_bytes, cuda::ActivityRecord** record) {
      auto* next = reinterpret_cast<uint8_t*>(*record);
      next = next == nullptr ? buffer : next + record_bytes((*record)->kind);
      if (next >= buffer + num_bytes) return cuda::kCuptiMaxLimitReached;
      *record = reinterpret_cast<cuda::ActivityRecord*>(next);
      return cuda::kCuptiSuccess;
    };
    api_.get_num_dropped = [](cuda::ContextHandle, uint32_t, size_t* count) {
      *count = current()->num_dropped;
      return cuda::kCuptiSuccess;
    };
  }
  ~FakeCupti() { current() = nullptr; }
  FakeCupti(const FakeCupti&) = delete;
  FakeCupti& operator=(const FakeCupti&) = delete;
  const cuda::CuptiApi& api() const { return api_; }

  void add_kernel(uint32_t correlation, uint32_t graph, uint64_t start, uint64_t end) {
    cuda::KernelActivity k;
    k.kind = cuda::kActivityConcurrentKernel;
    k.correlation = correlation;
    k.graph = graph;
    k.start = start;
    k.end = end;
    append(k);
  }
  void add_graph(uint32_t correlation, uint64_t start, uint64_t end) {
    append(cuda::GraphActivity{cuda::kActivityGraphTrace, correlation, start, end});
  }

  std::vector<int> enabled;  // kinds
  cuda::CuptiStatus enable_status = cuda::kCuptiSuccess;
  size_t num_dropped = 0;
  std::function<void()> on_enable, on_flush;

 private:
  static FakeCupti*& current() {
    static FakeCupti* instance = nullptr;
    return instance;
  }
  static size_t record_bytes(int kind) {
    return kind == cuda::kActivityGraphTrace ? sizeof(cuda::GraphActivity) : sizeof(cuda::KernelActivity);
  }
  template <class Record>
  void append(const Record& record) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(&record);
    records_.insert(records_.end(), bytes, bytes + sizeof record);
  }
  cuda::CuptiStatus flush() {
    if (on_flush) on_flush();
    // In buffers of ten kernel records: several of them.
    for (size_t begin = 0; begin < records_.size();) {
      size_t size = 0;
      for (int i = 0; i < 10 && begin + size < records_.size(); ++i) {
        cuda::ActivityRecord front;
        std::memcpy(&front, records_.data() + begin + size, sizeof front);
        size += record_bytes(front.kind);
      }
      uint8_t* buffer = nullptr;
      size_t capacity = 0;
      size_t max_records = 0;
      requested_(&buffer, &capacity, &max_records);
      std::memcpy(buffer, records_.data() + begin, size);
      completed_(nullptr, 0, buffer, capacity, size);
      begin += size;
    }
    records_.clear();
    return cuda::kCuptiSuccess;
  }

  cuda::CuptiApi api_;
  cuda::BufferRequested requested_ = nullptr;
  cuda::BufferCompleted completed_ = nullptr;
  std::vector<uint8_t> records_;
};

}  // namespace megartp::test
