#include "backends/cuda_common/cupti.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <mutex>
#include <new>

#include <fmt/format.h>

#include "base/dynamic_library.h"
#include "base/env.h"
#include "base/toolkit_files.h"

namespace megartp::cuda {
namespace {

constexpr std::array<std::string_view, 2> kCuptiNames{"libcupti.so.13", "libcupti.so.12"};
// A record takes some 200 bytes; more only costs memory.
constexpr size_t kActivityBufferBytes = size_t{1} << 20U;

Result<CuptiApi> load_cupti() {
  std::vector<std::filesystem::path> found;
  if (const auto named = MEGARTP_TRY(env_cupti()))
    found = toolkit_files_at(*named, kCuptiNames);
  else
    found = find_toolkit_files(kCuptiNames);
  if (found.empty())
    return make_error(ErrorCode::kUnsupported,
                      "CUPTI (libcupti.so.13 or .12), which times kernels on the device, is not there: looked in the "
                      "library path, CUDA_HOME, /usr/local/cuda and Python's nvidia packages, or where MEGARTP_CUPTI "
                      "says");
  std::vector<std::string> names;
  for (const auto& path : found) names.push_back(path.string());
  const DynamicLibrary library = MEGARTP_TRY(DynamicLibrary::open("CUPTI", names));
  CuptiApi api;
#define MEGARTP_CUPTI_LOAD(member, symbol_name, parameters) \
  api.member = reinterpret_cast<CuptiStatus(*) parameters>(MEGARTP_TRY(library.symbol(#symbol_name)));
  MEGARTP_CUPTI_FUNCTIONS(MEGARTP_CUPTI_LOAD)
#undef MEGARTP_CUPTI_LOAD
  return api;
}

Status check_cupti(const CuptiApi& api, CuptiStatus status, std::string_view call) {
  if (status == kCuptiSuccess) return {};
  const char* text = nullptr;
  if (api.get_result_string(status, &text) != kCuptiSuccess || text == nullptr) text = "unknown error";
  return make_error(ErrorCode::kDeviceError, fmt::format("CUPTI's {}: {} ({})", call, text, status));
}

}  // namespace

Result<const CuptiApi*> cupti() {
  static const Result<CuptiApi> loaded = load_cupti();
  if (!loaded) return tl::unexpected(loaded.error());
  return &*loaded;
}

// The library's callbacks carry no object, and come from threads of its own.
struct ActivityTrace::Shared {
  std::mutex mutex;
  ActivityTrace* active = nullptr;
  std::map<uint32_t, LaunchSpan> spans;  // by correlation
  size_t num_dropped = 0;
};
ActivityTrace::Shared& ActivityTrace::shared() {
  static Shared instance;
  return instance;
}

int ActivityTrace::kind() const {
  return source_ == ActivitySource::kKernels ? kActivityConcurrentKernel : kActivityGraphTrace;
}

void ActivityTrace::on_request(uint8_t** buffer, size_t* num_bytes, size_t* max_num_records) {
  *buffer = static_cast<uint8_t*>(std::aligned_alloc(kActivityAlignment, kActivityBufferBytes));
  *num_bytes = *buffer == nullptr ? 0 : kActivityBufferBytes;
  *max_num_records = 0;  // as many as fit
}

void ActivityTrace::on_complete(ContextHandle context, uint32_t stream, uint8_t* buffer, size_t,
                                size_t num_valid_bytes) {
  {
    Shared& s = shared();
    const std::scoped_lock lock(s.mutex);
    if (s.active != nullptr) {
      s.active->read(buffer, num_valid_bytes);
      size_t dropped = 0;
      if (s.active->api_.get_num_dropped(context, stream, &dropped) == kCuptiSuccess) s.num_dropped += dropped;
    }
  }
  std::free(buffer);
}

void ActivityTrace::read(uint8_t* buffer, size_t num_valid_bytes) {
  const auto add = [](uint32_t correlation, uint64_t start, uint64_t end, uint32_t num_kernels) {
    LaunchSpan& span = shared().spans[correlation];
    const bool is_first = span.end_ns == 0;
    span.start_ns = is_first ? start : std::min(span.start_ns, start);
    span.end_ns = std::max(span.end_ns, end);
    span.num_kernels += num_kernels;
  };
  ActivityRecord* record = nullptr;
  while (num_valid_bytes > 0 && api_.get_next_record(buffer, num_valid_bytes, &record) == kCuptiSuccess) {
    if (record->kind != kind()) continue;
    if (source_ == ActivitySource::kKernels) {
      const auto* k = reinterpret_cast<const KernelActivity*>(record);
      if (k->graph != 0 && k->end != 0) add(k->correlation, k->start, k->end, 1);
    } else {
      const auto* g = reinterpret_cast<const GraphActivity*>(record);
      if (g->end != 0) add(g->correlation, g->start, g->end, 0);
    }
  }
}

Result<std::unique_ptr<ActivityTrace>> ActivityTrace::start(const CuptiApi& api, ActivitySource source) {
  std::unique_ptr<ActivityTrace> trace(new ActivityTrace(api, source));
  {
    Shared& s = shared();
    const std::scoped_lock lock(s.mutex);
    if (s.active != nullptr) return make_error(ErrorCode::kInternal, "another activity trace is recording");
    s.active = trace.get();
    s.spans.clear();
    s.num_dropped = 0;
  }
  MEGARTP_TRY(check_cupti(api, api.register_callbacks(on_request, on_complete), "cuptiActivityRegisterCallbacks"));
  MEGARTP_TRY(check_cupti(api, api.enable(trace->kind()), "cuptiActivityEnable"));
  trace->is_enabled_ = true;
  return trace;
}

ActivityTrace::~ActivityTrace() {
  if (is_enabled_) {
    api_.flush_all(kActivityFlushForced);
    api_.disable(kind());
  }
  Shared& s = shared();
  const std::scoped_lock lock(s.mutex);
  if (s.active == this) s.active = nullptr;
}

Result<std::vector<LaunchSpan>> ActivityTrace::finish() {
  MEGARTP_TRY(check_cupti(api_, api_.flush_all(kActivityFlushForced), "cuptiActivityFlushAll"));
  is_enabled_ = false;
  MEGARTP_TRY(check_cupti(api_, api_.disable(kind()), "cuptiActivityDisable"));
  Shared& s = shared();
  const std::scoped_lock lock(s.mutex);
  if (s.num_dropped > 0)
    return make_error(ErrorCode::kDeviceError, fmt::format("CUPTI dropped {} records", s.num_dropped));
  std::vector<LaunchSpan> spans;
  for (const auto& [correlation, span] : s.spans) spans.push_back(span);
  std::ranges::sort(spans, {}, &LaunchSpan::start_ns);
  return spans;
}

}  // namespace megartp::cuda
