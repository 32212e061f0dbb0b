// tests/faults/launch: NAME.json breaks the rule that NAME.expect.json names, NAME.ok.json does not.
#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "verify/launch/launch_explore.h"
#include "verify/launch/launch_json.h"
#include "verify/launch/launch_prover.h"
#include "verify/launch/launch_test_support.h"

namespace megartp::launch::test {
namespace {

using testing::HasSubstr;
using Json = nlohmann::json;

LoweredProgram load(const std::string& file) {
  const auto input = launch_from_json(read_file(fault_path(file)).value());
  EXPECT_TRUE(input) << file << ": " << input.error().to_string();
  return input ? to_graph(*input).value() : LoweredProgram{};
}

std::string all_text(const LoweredProgram& program, const Proof& proof) {
  std::string text;
  for (const Finding& f : proof.findings) text += finding_text(program.graph, f);
  return text;
}

class LaunchFault : public testing::TestWithParam<std::string> {};

// Whether one finding has the rule, the severity and every word.
bool has_finding(const LoweredProgram& program, const Proof& proof, const Json& expect) {
  const std::string head =
      fmt::format("{} {}: ", expect.at("rule").get<std::string>(), expect.at("severity").get<std::string>());
  return std::ranges::any_of(proof.findings, [&](const Finding& f) {
    const std::string text = finding_text(program.graph, f);
    const auto holds = [&](const Json& words) {
      return std::ranges::all_of(words,
                                 [&](const Json& w) { return text.find(w.get<std::string>()) != std::string::npos; });
    };
    return text.starts_with(head) && holds(expect.at("mentions")) && holds(expect.value("passes_when", Json::array()));
  });
}

TEST_P(LaunchFault, IsRejectedWithAMessageThatNamesThePlace) {
  const LoweredProgram program = load(GetParam() + ".json");
  const Json expect = Json::parse(read_file(fault_path(GetParam() + ".expect.json")).value());
  const Proof proof = prove(program);
  EXPECT_EQ(proof.is_ok(), expect.at("severity") == "warning") << all_text(program, proof);
  EXPECT_TRUE(has_finding(program, proof, expect)) << expect.dump() << " is not in\n" << all_text(program, proof);
  for (const Finding& f : proof.findings) {
    if (f.severity != Severity::kError || f.steps.empty()) continue;
    const auto raced = replay_story(program.graph, *f.conflict, f.steps);
    ASSERT_TRUE(raced) << raced.error().to_string();
    EXPECT_TRUE(*raced) << finding_text(program.graph, f);
  }
}

TEST_P(LaunchFault, HasATwinThatIsAccepted) {
  const LoweredProgram program = load(GetParam() + ".ok.json");
  const Json expect = Json::parse(read_file(fault_path(GetParam() + ".expect.json")).value());
  const Proof proof = prove(program);
  EXPECT_TRUE(proof.is_ok()) << all_text(program, proof);
  EXPECT_FALSE(has_finding(program, proof, expect)) << all_text(program, proof);
  for (const EdgeProof& e : proof.edges) {
    EXPECT_TRUE(e.holds) << e.text;
    EXPECT_THAT(e.text, testing::AnyOf(HasSubstr("because"), HasSubstr("although"))) << e.text;
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, LaunchFault, testing::ValuesIn(fault_names()),
                         [](const auto& fault) { return fault.param; });

TEST(LaunchFaults, TheFolderIsComplete) {
  const std::vector<std::string> names = fault_names();
  EXPECT_GE(names.size(), 42U);
  for (int p = 1; p <= 13; ++p)
    EXPECT_TRUE(std::ranges::any_of(names, [&](const std::string& n) {
      return n.starts_with(fmt::format("p{:02}_", p));
    })) << p;
}

}  // namespace
}  // namespace megartp::launch::test
