#include "codegen/param_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megartp::codegen {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What the compiler makes of the same members.
struct alignas(64) Map {
  uint64_t opaque[16];
};
struct Mixed {
  uint32_t rows;
  const void* x;
  float eps;
  Map map;
  uint32_t flags;
};

TEST(ParamLayout, FollowsTheCompiler) {
  const std::vector<DeviceParam> params{DeviceParam::u32("rows", 1), DeviceParam::pointer("x", 0),
                                        DeviceParam::f32("eps", 1e-5F), DeviceParam::tensor_map("map", 0, {}),
                                        DeviceParam::u32("flags", 0)};
  const ParamLayout layout = param_layout(params);
  EXPECT_THAT(layout.offsets, ElementsAre(offsetof(Mixed, rows), offsetof(Mixed, x), offsetof(Mixed, eps),
                                          offsetof(Mixed, map), offsetof(Mixed, flags)));
  EXPECT_EQ(layout.num_bytes, sizeof(Mixed));
  EXPECT_EQ(layout.alignment, alignof(Mixed));
}

TEST(ParamLayout, WordsAloneNeedNoPadding) {
  const std::vector<DeviceParam> params{DeviceParam::u32("a", 1), DeviceParam::f32("b", 2), DeviceParam::u32("c", 3)};
  const ParamLayout layout = param_layout(params);
  EXPECT_THAT(layout.offsets, ElementsAre(0, 4, 8));
  EXPECT_EQ(layout.num_bytes, 12U);
  EXPECT_EQ(layout.alignment, 4U);
}

TEST(ParamLayout, OfNothing) {
  const ParamLayout layout = param_layout({});
  EXPECT_THAT(layout.offsets, IsEmpty());
  EXPECT_EQ(layout.num_bytes, 0U);
}

}  // namespace
}  // namespace megartp::codegen
