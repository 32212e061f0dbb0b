#include "base/dynamic_library.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megartp {
namespace {

using testing::HasSubstr;

TEST(DynamicLibrary, TakesTheFirstNameThatLoads) {
  const std::array<std::string, 2> names{"libmegartp_is_not_here.so.1", "libm.so.6"};
  const auto library = DynamicLibrary::open("the mathematics library", names);
  ASSERT_TRUE(library) << library.error().to_string();
  EXPECT_THAT(library->path(), HasSubstr("libm.so.6"));
  EXPECT_TRUE(library->symbol("cos"));
  const auto missing = library->symbol("megartp_has_no_such_function");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(missing.error().message, HasSubstr("megartp_has_no_such_function"));
}

TEST(DynamicLibrary, SaysWhatIsMissing) {
  const std::array<std::string, 1> names{"libmegartp_is_not_here.so.1"};
  const auto library = DynamicLibrary::open("the library of wishes", names);
  ASSERT_FALSE(library);
  EXPECT_EQ(library.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(library.error().message, HasSubstr("the library of wishes"));
  EXPECT_THAT(library.error().message, HasSubstr("libmegartp_is_not_here.so.1"));
}

}  // namespace
}  // namespace megartp
