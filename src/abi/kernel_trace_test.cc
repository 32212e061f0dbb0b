// Layout of kernel trace records: offsets and traits. Device code fills the same bytes.
#include "abi/kernel_trace.h"

#include <bit>
#include <cstddef>
#include <type_traits>

#include <gtest/gtest.h>

namespace megartp::abi {
namespace {

static_assert(std::endian::native == std::endian::little, "records are little-endian and copied as they are");
static_assert(std::is_standard_layout_v<KernelTraceTarget> && std::is_trivially_copyable_v<KernelTraceTarget>);
static_assert(std::is_standard_layout_v<KernelTraceRecord> && std::is_trivially_copyable_v<KernelTraceRecord>);
static_assert(std::has_unique_object_representations_v<KernelTraceTarget>, "no padding");
static_assert(std::has_unique_object_representations_v<KernelTraceRecord>, "no padding");

static_assert(offsetof(KernelTraceTarget, records) == 0 && offsetof(KernelTraceTarget, num_records) == 8);
static_assert(offsetof(KernelTraceRecord, enter) == 0 && offsetof(KernelTraceRecord, inputs) == 8);
static_assert(offsetof(KernelTraceRecord, done) == 16 && offsetof(KernelTraceRecord, sm) == 24);
static_assert(offsetof(KernelTraceRecord, cta) == 28 && offsetof(KernelTraceRecord, marks) == 32);

// What this file checks, it checks when it is compiled.
TEST(KernelTraceRecord, IsAWholeNumberOfVectorStores) { EXPECT_EQ(sizeof(KernelTraceRecord) % 16, 0U); }

}  // namespace
}  // namespace megartp::abi
