#include "plan/plan_diff.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "plan/plan_test_support.h"

namespace megartp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::packed_chain;

const FieldDiff* find_field(const std::vector<FieldDiff>& fields, std::string_view name) {
  const auto it = std::ranges::find(fields, name, &FieldDiff::field);
  return it == fields.end() ? nullptr : &*it;
}
template <class T>
const T* find_item(const std::vector<T>& items, std::string_view name) {
  const auto it = std::ranges::find(items, name, &T::name);
  return it == items.end() ? nullptr : &*it;
}
std::vector<std::string> names_of(const std::vector<FieldDiff>& fields) {
  std::vector<std::string> names;
  for (const FieldDiff& f : fields) names.push_back(f.field);
  return names;
}

TEST(PlanDiff, APlanIsIdenticalToItself) {
  const KernelPlan plan = packed_chain(3, 40, 4);
  const PlanDiff diff = diff_plans(plan, plan);
  EXPECT_TRUE(diff.is_identical);
  EXPECT_THAT(diff.header, IsEmpty());
  EXPECT_THAT(diff.ops, IsEmpty());
  EXPECT_THAT(diff.tensors, IsEmpty());
  EXPECT_THAT(diff.specs, IsEmpty());
  EXPECT_THAT(diff.placement, IsEmpty());
}

TEST(PlanDiff, AnotherShapeChangesSizesTasksAndTensors) {
  const KernelPlan a = packed_chain(2, 16, 4);
  const KernelPlan b = packed_chain(2, 40, 4);
  ASSERT_NE(a.num_tasks, b.num_tasks);
  const PlanDiff diff = diff_plans(a, b);
  EXPECT_FALSE(diff.is_identical);
  const FieldDiff* m = find_field(diff.header, "shape M");
  ASSERT_NE(m, nullptr);
  EXPECT_EQ(m->a, DiffValue(uint64_t{16}));
  EXPECT_EQ(m->b, DiffValue(uint64_t{40}));
  const FieldDiff* tasks = find_field(diff.header, "tasks");
  ASSERT_NE(tasks, nullptr);
  EXPECT_EQ(tasks->b, DiffValue(uint64_t{b.num_tasks}));
  EXPECT_EQ(find_field(diff.header, "packer"), nullptr);
  const ItemDiff* op = find_item(diff.ops, "add1");
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->presence, Presence::kBoth);
  for (const char* field : {"tasks", "events_in", "waits_per_task"})
    EXPECT_NE(find_field(op->fields, field), nullptr) << field;
  EXPECT_EQ(find_field(op->fields, "opcode"), nullptr);
  const ItemDiff* x = find_item(diff.tensors, "x");
  ASSERT_NE(x, nullptr);
  EXPECT_THAT(names_of(x->fields), ElementsAre("dims", "bytes"));
  EXPECT_EQ(x->fields[0].b, DiffValue(std::string("[40, 64]")));
}

TEST(PlanDiff, OpsOfOnePlanOnlyAreNamedWithTheirFacts) {
  const PlanDiff diff = diff_plans(packed_chain(3, 16, 2), packed_chain(2, 16, 2));
  const ItemDiff* op = find_item(diff.ops, "add2");
  ASSERT_NE(op, nullptr);
  EXPECT_EQ(op->presence, Presence::kOnlyA);
  const FieldDiff* tasks = find_field(op->fields, "tasks");
  ASSERT_NE(tasks, nullptr);
  EXPECT_EQ(tasks->b, DiffValue());
  const PlanDiff mirror = diff_plans(packed_chain(2, 16, 2), packed_chain(3, 16, 2));
  ASSERT_NE(find_item(mirror.ops, "add2"), nullptr);
  EXPECT_EQ(find_item(mirror.ops, "add2")->presence, Presence::kOnlyB);
}

TEST(PlanDiff, AnotherPackerMovesTasksAndChangesNothingElse) {
  KernelPlan a = packed_chain(2, 40, 4);
  KernelPlan b = a;
  // Swap the first tasks of two workers, and two slots of a third.
  const size_t depth = a.queue_depth;
  ASSERT_GE(depth, 2U);
  std::swap(b.instructions[0], b.instructions[depth]);
  std::swap(b.instructions[2 * depth], b.instructions[2 * depth + 1]);
  const PlanDiff diff = diff_plans(a, b);
  EXPECT_FALSE(diff.is_identical);
  EXPECT_THAT(diff.header, IsEmpty());
  EXPECT_THAT(diff.ops, IsEmpty());
  uint32_t other_worker = 0;
  uint32_t other_slot = 0;
  for (const PlacementDiff& p : diff.placement) {
    other_worker += p.num_other_worker;
    other_slot += p.num_other_slot;
    EXPECT_EQ(p.num_other_contents, 0U);
  }
  EXPECT_EQ(other_worker, 2U);
  EXPECT_EQ(other_slot, 2U);
}

TEST(PlanDiff, ChangedWordsAreCountedPerOp) {
  const KernelPlan a = packed_chain(2, 40, 4);
  KernelPlan b = a;
  const auto waiting = std::ranges::find_if(
      b.instructions, [](const abi::Instruction& i) { return i.opcode != abi::kOpcodeNoOp && abi::num_waits(i) == 1; });
  ASSERT_NE(waiting, b.instructions.end());
  waiting->waits[0].threshold += 1;
  const PlanDiff diff = diff_plans(a, b);
  ASSERT_EQ(diff.placement.size(), 1U);
  EXPECT_EQ(diff.placement[0].name, "add1");
  EXPECT_EQ(diff.placement[0].num_other_contents, 1U);
  EXPECT_EQ(diff.placement[0].num_other_worker, 0U);
  const ItemDiff* op = find_item(diff.ops, "add1");
  ASSERT_NE(op, nullptr);
  EXPECT_THAT(names_of(op->fields), ElementsAre("wait_thresholds"));
}

TEST(PlanDiff, SpecsAndOffsetsAreCompared) {
  const KernelPlan a = packed_chain(2, 16, 2);
  KernelPlan b = a;
  ASSERT_FALSE(b.specs.empty());
  b.specs[0].words[0] += 1;
  const auto inside = std::ranges::find_if(b.tensors, [](const PlanTensor& t) { return t.arena_offset != kExternal; });
  ASSERT_NE(inside, b.tensors.end());
  inside->arena_offset += 256;
  const PlanDiff diff = diff_plans(a, b);
  ASSERT_EQ(diff.specs.size(), 1U);
  EXPECT_NE(find_field(diff.specs[0].fields, "words"), nullptr);
  ASSERT_EQ(diff.tensors.size(), 1U);
  EXPECT_EQ(diff.tensors[0].name, inside->name);
  EXPECT_THAT(names_of(diff.tensors[0].fields), ElementsAre("arena_offset"));
  EXPECT_FALSE(diff.is_identical);
}

TEST(PlanDiff, ADifferenceInNumbersAloneIsStillADifference) {
  const KernelPlan a = packed_chain(1, 40, 2);
  KernelPlan b = a;
  for (abi::Instruction& i : b.instructions)
    if (i.opcode != abi::kOpcodeNoOp) i.reserved0 = 7;  // no reader accepts it; nothing here names it
  const PlanDiff diff = diff_plans(a, b);
  EXPECT_FALSE(diff.is_identical);
  EXPECT_THAT(diff.placement, IsEmpty());
}

TEST(PlanDiff, ValuesHaveText) {
  EXPECT_EQ(to_string(DiffValue{}), "-");
  EXPECT_EQ(to_string(DiffValue(uint64_t{12})), "12");
  EXPECT_EQ(to_string(Histogram{}), "none");
  EXPECT_EQ(to_string(Histogram{{1, 84}, {2, 16}}), "84 x 1, 16 x 2");
  EXPECT_THAT(to_string(Histogram{{1, 1}, {2, 1}, {3, 1}, {4, 1}, {5, 1}, {6, 1}, {7, 1}}), HasSubstr("(7 values)"));
}

}  // namespace
}  // namespace megartp
