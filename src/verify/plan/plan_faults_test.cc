// The faulty plans of tests/faults/plan: each is refused with a sentence that names the place, its twin is proved.
#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "plan/plan_structure.h"
#include "support/plan_judge.h"
#include "support/plan_text.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;
using Json = nlohmann::json;

std::vector<std::string> fault_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(MEGARTP_SOURCE_DIR "/tests/faults/plan"))
    if (entry.path().extension() == ".json") names.push_back(entry.path().stem().string());
  std::ranges::sort(names);
  return names;
}

class PlanFaults : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto text = read_file(MEGARTP_SOURCE_DIR "/tests/faults/plan/" + GetParam() + ".json", 1 << 20);
    ASSERT_TRUE(text);
    file_ = Json::parse(*text);
  }
  // The plan as a file would give it.
  static test::TextPlan build(const Json& plan) {
    auto made = test::parse_text_plan(plan.dump());
    EXPECT_TRUE(made) << made.error().to_string();
    if (!made) return {};
    const std::string bytes = serialize_plan(made->plan);
    auto read = parse_plan_structure(bytes);
    EXPECT_TRUE(read) << read.error().to_string();
    if (read) made->plan = std::move(*read);
    return std::move(*made);
  }
  static std::string text(const PlanProof& proof) {
    std::string out;
    for (const PlanFinding& f : proof.findings) out += std::string(to_string(f.fault)) + ": " + f.message + "\n";
    return out;
  }
  Json file_;
};

TEST_P(PlanFaults, IsRefusedWithAPlace) {
  const test::TextPlan built = build(file_["plan"]);
  const PlanProof proof = prove_plan(built.plan, built.limits);
  ASSERT_FALSE(proof.findings.empty());
  const bool is_warning = file_.value("is_warning", false);
  EXPECT_EQ(proof.is_proved(), is_warning);
  const PlanFinding& f = proof.findings[0];
  EXPECT_EQ(to_string(f.fault), file_["expect"].get<std::string>()) << text(proof);
  EXPECT_EQ(f.is_warning, is_warning);
  for (const Json& part : file_["says"]) EXPECT_THAT(f.message, HasSubstr(part.get<std::string>()));
  if (is_warning) return;
  const Status gate = require_proved(built.plan, built.limits);
  ASSERT_FALSE(gate);
  EXPECT_THAT(gate.error().message, HasSubstr(f.message));
}

TEST_P(PlanFaults, TwinIsProved) {
  Json plan = file_["plan"];
  ASSERT_FALSE(file_["twin"].empty());
  for (const auto& [field, value] : file_["twin"].items()) plan[field] = value;
  const test::TextPlan built = build(plan);
  EXPECT_TRUE(check_plan(built.plan));
  const PlanProof proof = prove_plan(built.plan, built.limits);
  EXPECT_TRUE(proof.findings.empty()) << text(proof);
  EXPECT_TRUE(require_proved(built.plan, built.limits));
  EXPECT_TRUE(require_proved(built.plan, built.limits)) << "the second time it is remembered";
  EXPECT_FALSE(test::judge_plan(built.plan).is_harmful);
}

// The gate remembers contents, not objects: a plan that changes after it passed is looked at again.
TEST(PlanGate, LooksAgainAtAPlanThatHasChanged) {
  auto made = test::parse_text_plan(R"({
    "tensors": {"x": {"storage": "argument", "dims": [2, 8]}, "y": {"storage": "activation", "dims": [2, 8]},
                "out": {"storage": "output", "dims": [2, 8]}},
    "stages": [{"name": "A", "op": "add", "operands": ["x", "x", "y"]},
               {"name": "B", "op": "add", "operands": ["y", "x", "out"]}],
    "queues": [["A 0..1 -> e"], ["B 0..1 <- e>=2"]]})");
  ASSERT_TRUE(made) << made.error().to_string();
  KernelPlan& plan = made->plan;
  ASSERT_TRUE(require_proved(plan));
  abi::Instruction& b = plan.instructions[plan.queue_depth];
  b.waits[0] = {};
  b.counts = abi::make_counts(0, 0, 1);
  const Status refused = require_proved(plan);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kMismatch);
  PlanLimits limits;
  limits.max_workers = 1;
  EXPECT_EQ(require_proved(plan, limits).error().code, ErrorCode::kOutOfResources);
}

INSTANTIATE_TEST_SUITE_P(Files, PlanFaults, ::testing::ValuesIn(fault_names()),
                         [](const auto& name) { return name.param; });

}  // namespace
}  // namespace megartp
