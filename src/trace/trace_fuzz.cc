// Fuzzer of the trace reader, and of the analysis and exporters on what it lets through. Half of the inputs get a right
// checksum, so that mutations reach what lies behind it.
#include <cstddef>
#include <cstdint>
#include <string>

#include "trace/export.h"
#include "trace/trace.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megartp::trace;
  std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const bool seal : {false, true}) {
    if (seal) seal_trace_bytes(bytes);
    auto trace = parse_trace(bytes);
    if (!trace) continue;
    const std::string written = serialize_trace(*trace);
    const auto again = parse_trace(written);
    if (!again || serialize_trace(*again) != written) __builtin_trap();
    AnalysedTrace t{std::move(*trace), {}};
    t.analysis = analyse(t.trace);
    if (!t.trace.tasks.empty() && t.analysis.critical_ns() != t.trace.meta.span_ns) __builtin_trap();
    const std::span<const AnalysedTrace> all(&t, 1);
    if (to_chrome(all).empty() || to_csv(all).empty() || to_viewer_json(all).empty() || to_svg(t).empty() ||
        to_text(t, {}).empty())
      __builtin_trap();
    (void)to_perfetto(all);
  }
  return 0;
}
