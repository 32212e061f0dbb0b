// Compiled kernels with one fault each, and their sound twins: tests/faults/cubin, listed in cases.json there.
#include <filesystem>
#include <set>
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "verify/sass/kernel_contract.h"

namespace megartp::sass {
namespace {

using Json = nlohmann::ordered_json;

std::string folder() { return std::string(MEGARTP_SOURCE_DIR) + "/tests/faults/cubin/"; }

const Json& cases() {
  static const Json json = Json::parse(read_file(folder() + "cases.json").value());
  return json["cases"];
}

class CubinFaults : public testing::TestWithParam<size_t> {};

TEST_P(CubinFaults, IsJudged) {
  const Json& c = cases().at(GetParam());
  const auto cubin = load_cubin(folder() + c["cubin"].get<std::string>() + ".cubin");
  ASSERT_TRUE(cubin) << cubin.error().to_string();
  const auto contract = load_cubin_contract(folder() + c["contract"].get<std::string>() + ".json");
  ASSERT_TRUE(contract) << contract.error().to_string();
  const auto found = compare_with_contract(scan_cubin(*cubin), *contract);
  const Json& expected = c["findings"];
  std::string all;
  for (const CubinFinding& f : found) all += f.rule + ": " + f.message + "\n";
  ASSERT_EQ(found.size(), expected.size()) << all;
  for (size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].rule, expected[i]["rule"].get<std::string>()) << all;
    const auto at = expected[i]["at"].get<std::string>();
    EXPECT_EQ(found[i].offset ? fmt::format("{:#06x}", *found[i].offset) : "", at) << all;
    EXPECT_THAT(found[i].message, testing::HasSubstr("kernel '" + found[i].kernel + "'"));
    if (!at.empty()) EXPECT_THAT(found[i].message, testing::HasSubstr(at));
    for (const Json& part : expected[i]["says"])
      EXPECT_THAT(found[i].message, testing::HasSubstr(part.get<std::string>()));
  }
}

INSTANTIATE_TEST_SUITE_P(All, CubinFaults, testing::Range<size_t>(0, cases().size()), [](const auto& which) {
  return cases().at(which.param)["cubin"].template get<std::string>();
});

TEST(CubinFaultFolder, EverythingIsListed) {
  std::set<std::string> cubins, sources, listed;
  for (const auto& entry : std::filesystem::directory_iterator(folder())) {
    if (entry.path().extension() == ".cubin") cubins.insert(entry.path().stem());
    if (entry.path().extension() == ".cu") sources.insert(entry.path().stem());
  }
  size_t faulty = 0, sound = 0;
  for (const Json& c : cases()) {
    listed.insert(c["cubin"].get<std::string>());
    ++(c["findings"].empty() ? sound : faulty);
  }
  EXPECT_EQ(cubins, listed);
  EXPECT_EQ(sources, listed);
  EXPECT_GE(faulty, 15U);
  EXPECT_GE(sound, 15U);
}

}  // namespace
}  // namespace megartp::sass
