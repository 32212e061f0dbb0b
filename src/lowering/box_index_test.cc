#include "lowering/box_index.h"

#include <algorithm>
#include <limits>
#include <set>

#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include "lowering/unit_sets.h"

namespace megartp::lowering {
namespace {

constexpr uint64_t kNoLimit = std::numeric_limits<uint64_t>::max();

std::vector<uint32_t> find(const BoxIndex& index, const Box& query) {
  std::vector<uint32_t> found;
  uint64_t work = 0;
  EXPECT_TRUE(index.find(index.cells(query), found, work, kNoLimit));
  std::ranges::sort(found);
  found.erase(std::ranges::unique(found).begin(), found.end());
  return found;
}

Box random_box(uint32_t rank, int limit) {
  Box b;
  b.rank = rank;
  for (uint32_t d = 0; d < rank; ++d) {
    b.begin[d] = *rc::gen::inRange(0, limit);
    b.end[d] = *rc::gen::inRange(b.begin[d] + 1, limit + 2);
  }
  return b;
}

RC_GTEST_PROP(BoxIndex, FindsExactlyTheOverlappingBoxes, ()) {
  const auto rank = *rc::gen::inRange<uint32_t>(1, 5);
  const int limit = *rc::gen::element(3, 10, 100);
  std::vector<Box> boxes;
  for (int i = *rc::gen::inRange(1, 40); i > 0; --i) boxes.push_back(random_box(rank, limit));
  const BoxIndex index(boxes);
  for (int q = 0; q < 10; ++q) {
    const Box query = random_box(rank, limit);
    std::vector<uint32_t> expected;
    for (uint32_t i = 0; i < boxes.size(); ++i)
      if (boxes[i].overlaps(query)) expected.push_back(i);
    RC_ASSERT(find(index, query) == expected);
  }
}

TEST(BoxIndex, RegularTilingsAreDenseAndScatteredBoxesAreNot) {
  std::vector<Box> grid;
  std::vector<Box> diagonal;
  for (int i = 0; i < 32; ++i)
    for (int j = 0; j < 8; ++j) grid.push_back(Box::of({{i * 4, i * 4 + 4}, {j * 16, j * 16 + 16}}));
  for (int i = 0; i < 200; ++i) diagonal.push_back(Box::of({{i * 3, i * 3 + 2}, {i * 5, i * 5 + 3}}));
  EXPECT_TRUE(BoxIndex(grid).is_dense());
  const BoxIndex scattered(diagonal);
  EXPECT_FALSE(scattered.is_dense());
  EXPECT_EQ(find(scattered, Box::of({{30, 33}, {0, 1000}})), std::vector<uint32_t>{10});
  EXPECT_TRUE(find(scattered, Box::of({{32, 33}, {0, 1000}})).empty()) << "a gap between boxes";
}

TEST(BoxIndex, QueriesOfTheSameCellsHaveTheSameKey) {
  std::vector<Box> rows;
  for (int i = 0; i < 16; ++i) rows.push_back(Box::of({{i, i + 1}, {0, 6144}}));
  const BoxIndex index(rows);
  EXPECT_EQ(index.cells(Box::of({{0, 16}, {0, 128}})), index.cells(Box::of({{0, 16}, {6016, 6144}})));
  EXPECT_NE(index.cells(Box::of({{0, 16}, {0, 128}})), index.cells(Box::of({{0, 15}, {0, 128}})));
}

TEST(BoxIndex, GivesUpAtTheWorkLimit) {
  std::vector<Box> boxes;
  for (int i = 0; i < 100; ++i) boxes.push_back(Box::of({{i, i + 1}}));
  const BoxIndex index(boxes);
  std::vector<uint32_t> found;
  uint64_t work = 0;
  EXPECT_FALSE(index.find(index.cells(Box::of({{0, 100}})), found, work, 50));
}

std::set<uint32_t> units_of(const UnitSets& sets, SetId id) {
  std::set<uint32_t> units;
  uint32_t last_end = 0;
  for (const UnitInterval& i : sets.intervals(id)) {
    RC_ASSERT(i.begin < i.end);
    RC_ASSERT(units.empty() || i.begin > last_end);
    last_end = i.end;
    for (uint32_t u = i.begin; u < i.end; ++u) units.insert(u);
  }
  RC_ASSERT(units.size() == sets.size(id));
  return units;
}

RC_GTEST_PROP(UnitSets, BehavesAsASetOfNumbers, ()) {
  UnitSets sets;
  const auto some = rc::gen::container<std::vector<uint32_t>>(rc::gen::inRange<uint32_t>(0, 24));
  std::vector<uint32_t> a = *some;
  std::vector<uint32_t> b = *some;
  const std::set<uint32_t> set_a(a.begin(), a.end());
  const std::set<uint32_t> set_b(b.begin(), b.end());
  const SetId id_a = sets.intern_units(a);
  const SetId id_b = sets.intern_units(b);
  RC_ASSERT(units_of(sets, id_a) == set_a);
  RC_ASSERT((id_a == id_b) == (set_a == set_b));
  RC_ASSERT((id_a == kEmptySet) == set_a.empty());
  RC_ASSERT(sets.contains(id_a, id_b) == std::ranges::includes(set_a, set_b));
  std::set<uint32_t> both = set_a;
  both.insert(set_b.begin(), set_b.end());
  RC_ASSERT(units_of(sets, sets.unite(id_a, id_b)) == both);
  RC_ASSERT(sets.unite(id_a, id_b) == sets.unite(id_b, id_a));
}

TEST(UnitSets, AllIsTheSameAsEveryUnit) {
  UnitSets sets;
  std::vector<uint32_t> units{3, 1, 2, 0};
  EXPECT_EQ(sets.all(4), sets.intern_units(units));
  EXPECT_EQ(sets.all(0), kEmptySet);
}

}  // namespace
}  // namespace megartp::lowering
