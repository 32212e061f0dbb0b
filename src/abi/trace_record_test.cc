// Layout of the trace records: offsets, traits and golden bytes. Device code fills the same bytes.
#include "abi/trace_record.h"

#include <array>
#include <cstddef>
#include <cstring>
#include <type_traits>

#include <gtest/gtest.h>

namespace megartp::abi {
namespace {

template <class Record>
constexpr bool kIsPlainRecord = std::is_standard_layout_v<Record> && std::is_trivially_copyable_v<Record> &&
                                std::has_unique_object_representations_v<Record>;
static_assert(kIsPlainRecord<TraceRecord> && kIsPlainRecord<TraceRoleRecord>);
static_assert(offsetof(TraceRecord, flags) == 12 && offsetof(TraceRecord, visible) == 16);
static_assert(offsetof(TraceRecord, ready) == 24 && offsetof(TraceRecord, done) == 32);
static_assert(offsetof(TraceRoleRecord, role) == 8 && offsetof(TraceRoleRecord, begin) == 16);

TEST(TraceRecord, GoldenBytes) {
  const TraceRecord r{2, 5, 311, kTraceSent, 0x100000002ULL, 7, 9, 0};
  const std::array<uint32_t, 12> golden = {2, 5, 311, 1, 2, 1, 7, 0, 9, 0, 0, 0};
  std::array<uint32_t, 12> words{};
  static_assert(sizeof words == sizeof r);
  std::memcpy(words.data(), &r, sizeof r);
  EXPECT_EQ(words, golden);
}

}  // namespace
}  // namespace megartp::abi
