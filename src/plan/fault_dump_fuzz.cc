// Fuzzer of the fault dump reader: what it accepts survives a round trip in both forms and can be explained.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "plan/fault_dump.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace megartp;
  const auto dump = parse_fault_dump(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!dump) return 0;
  const std::string bytes = serialize_fault_dump(*dump);
  const auto from_json = parse_fault_dump(fault_dump_to_json(*dump));
  if (!from_json || serialize_fault_dump(*from_json) != bytes) __builtin_trap();
  const auto again = parse_fault_dump(bytes);
  if (!again || serialize_fault_dump(*again) != bytes) __builtin_trap();
  const auto explained = explain_fault(*dump, nullptr);
  if (!explained || explained->sentence.empty() || explained->lines.size() != dump->records.size()) __builtin_trap();
  return 0;
}
