#include "trace/viewer/viewer_page.h"

#include <gtest/gtest.h>

namespace megartp::trace {
namespace {

TEST(ViewerPage, HoldsTheDataWhereTheMarkerStood) {
  const std::string page = viewer_page(R"({"version":1})");
  EXPECT_EQ(page.find("MEGARTP_TRACE_DATA"), std::string::npos);
  EXPECT_NE(page.find(R"(<script type="application/json" id="trace-data">{"version":1}</script>)"), std::string::npos);
  EXPECT_EQ(page.rfind("<!doctype html>", 0), 0u);
  EXPECT_NE(page.rfind("</html>\n"), std::string::npos);
}

TEST(ViewerPage, DataCannotEndTheirElement) {
  const std::string page = viewer_page(R"({"name":"</script><b>"})");
  EXPECT_NE(page.find(R"({"name":"\u003c/script>\u003cb>"})"), std::string::npos);
}

TEST(ViewerPage, NeedsNothingFromElsewhere) {
  const std::string page = viewer_page("{}");
  // The one address is the name space of pictures inside the page, which nobody fetches.
  for (size_t at = page.find("http"); at != std::string::npos; at = page.find("http", at + 1)) {
    EXPECT_EQ(page.compare(at, 18, "http://www.w3.org/"), 0) << page.substr(at, 60);
  }
  for (const char* word : {"src=\"", "@import", "fetch(", "XMLHttpRequest", "/* include "}) {
    EXPECT_EQ(page.find(word), std::string::npos) << word;
  }
}

}  // namespace
}  // namespace megartp::trace
