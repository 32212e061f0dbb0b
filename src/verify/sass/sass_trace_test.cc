// What the trace makes of guarded writes, of pointers that are chosen by an index, of scalars in a struct, and of
// traps.
#include "verify/sass/sass_trace.h"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/sass/sass_scan.h"

namespace megartp::sass {
// Named, because tests are compiled in lumps and others have words of these names.
namespace trace_test {

using testing::ElementsAre;
using testing::IsEmpty;

using Word = std::array<uint64_t, 2>;
using Code = std::vector<Word>;

constexpr Word kThread{0x0000000000057919, 0x000e220000002100};     // S2R R5, SR_TID.X
constexpr Word kP0FromR5{0x000000ff0500720c, 0x001fda0003f05270};   // ISETP.NE P0, R5, RZ
constexpr Word kLoad{0x0000000402047981, 0x000ee2000c1e1900};       // LDG R4, [R2.64]
constexpr Word kGarbageR2{0x0000000402027981, 0x000ee2000c1e1900};  // LDG R2, [R2.64]
constexpr Word kParamR2{0x00008400ff027b82, 0x000e620000000a00};    // LDC.64 R2, c[0x0][0x210]
constexpr Word kIndexedR2{0x0000840000027b82, 0x000e240000000a00};  // LDC.64 R2, c[0x0][R0+0x210]
constexpr Word kIndexed8{0x0000000800007802, 0x000fc80000000f00};   // MOV R0, 0x8
constexpr Word kIndexed16{0x00000010ff007424, 0x000fe200078e00ff};  // IMAD.MOV.U32 R0, RZ, RZ, 0x10
constexpr Word kThreadR0{0x0000000000007919, 0x000e220000002100};   // S2R R0, SR_TID.X
// LEA R2, P1, R0, R2, 2; LEA.HI.X R3, R0, R3, RZ, 2, P1
constexpr Word kAddLow{0x0000000200027211, 0x000fc800078210ff};
constexpr Word kAddHigh{0x0000000300037211, 0x000fca00008f14ff};
constexpr Word kWait{0x000000000000782e, 0x000fe20000000000};
constexpr Word kTrap{0x000000040000795c, 0x000fe20000300000};
constexpr Word kNop{0x0000000000007918, 0x000fe20000000000};
constexpr Word kExit{0x000000000000794d, 0x000fea0003800000};

Word under(Word w, uint64_t guard) {
  w[0] = (w[0] & ~uint64_t{0xf000}) | guard << 12;
  return w;
}
constexpr uint64_t kP0 = 0, kNotP0 = 8;

Word branch(int64_t from, int64_t to, uint64_t guard = 7) {
  const auto v = static_cast<uint64_t>((to - from - 1) * 4);
  return {0x947U | guard << 12 | (v & 0xff) << 16 | (v >> 8) << 34, 0x000fea0003800000U | ((v >> 38) & 0x3ffff)};
}

// One struct of four pointers or numbers.
CubinKernel kernel_of(Code code) {
  CubinKernel k;
  k.name = "hand_made";
  k.section = ".text.hand_made";
  k.code = std::move(code);
  k.param_base = 0x210;
  k.param_bytes = 32;
  k.params = {{0, 0, 32}};
  return k;
}
// Of the last access.
AddressBase base_of(Code code, const std::vector<uint32_t>& scalars = {}) {
  code.push_back(kWait);
  code.push_back(kExit);
  const KernelScan s = scan_kernel(kernel_of(std::move(code)), scalars);
  EXPECT_TRUE(s.is_traced);
  return s.accesses.back().base;
}

TEST(SassTrace, UnderTheSameGuardTheOldValueIsGone) {
  const Code before{kThread, kP0FromR5, kGarbageR2, under(kParamR2, kP0)};
  const auto with = [&](std::initializer_list<Word> more) {
    Code code = before;
    code.insert(code.end(), more);
    return base_of(code);
  };
  const AddressBase same = with({under(kLoad, kP0)});
  EXPECT_THAT(same.param_offsets, ElementsAre(0U));
  EXPECT_FALSE(same.may_be_other);
  EXPECT_TRUE(with({kLoad}).may_be_other);
  const AddressBase opposite = with({under(kLoad, kNotP0)});
  EXPECT_THAT(opposite.param_offsets, IsEmpty());
  EXPECT_TRUE(opposite.may_be_other);
  // P0 is another one now, be it from the same index.
  EXPECT_TRUE(with({kP0FromR5, under(kLoad, kP0)}).may_be_other);
}

TEST(SassTrace, BothSidesOfAGuardCoverARegister) {
  const AddressBase base =
      base_of({kThread, kP0FromR5, kGarbageR2, under(kParamR2, kP0), under(kParamR2, kNotP0), kLoad});
  EXPECT_THAT(base.param_offsets, ElementsAre(0U));
  EXPECT_FALSE(base.may_be_other);
}

TEST(SassTrace, PathsThatDifferInTheirGuardsMeet) {
  // 0 index, 1 P0, 2 garbage, 3 @P0 bra 6, 4 @P0 pointer, 5 bra 6: on the way by the jump R2 is garbage whatever P0 is.
  const AddressBase base = base_of(
      {kThread, kP0FromR5, kGarbageR2, branch(3, 6, kP0), under(kParamR2, kP0), branch(5, 6), under(kLoad, kP0)});
  EXPECT_TRUE(base.may_be_other);
}

TEST(SassTrace, PointerChosenByAnIndex) {
  const AddressBase two =
      base_of({kThread, kP0FromR5, under(kIndexed8, kP0), under(kIndexed16, kNotP0), kIndexedR2, kLoad});
  EXPECT_THAT(two.param_offsets, ElementsAre(8U, 16U));
  EXPECT_FALSE(two.may_be_other);
  const AddressBase one = base_of({kIndexed8, kIndexedR2, kLoad});
  EXPECT_THAT(one.param_offsets, ElementsAre(8U));
  EXPECT_FALSE(one.may_be_other);
  // Any thread's own index, or none set on one side: any pointer, or what is beside them.
  EXPECT_TRUE(base_of({kThreadR0, kIndexedR2, kLoad}).may_be_other);
  EXPECT_TRUE(base_of({kThread, kP0FromR5, under(kIndexed8, kP0), kIndexedR2, kLoad}).may_be_other);
  Word scaled = kIndexedR2;
  scaled[1] |= uint64_t{1} << 14U;  // LDC.64.IL
  EXPECT_TRUE(base_of({kIndexed8, scaled, kLoad}).may_be_other);
}

TEST(SassTrace, NumbersOfAStructAreNoBases) {
  constexpr Word kWordR0{0x00008600ff007b82, 0x000e620000000800};  // LDC R0, c[0x0][0x218]
  const Code code{kWordR0, kParamR2, kAddLow, kAddHigh, kLoad};
  EXPECT_THAT(base_of(code, {8, 12}).param_offsets, ElementsAre(0U));
  // A pointer that is called a number is none.
  EXPECT_TRUE(base_of(code, {0, 4, 8, 12}).may_be_other);
}

// ULDC.64 UR10, c[0x0][0x198]; UMOV UR21, 0x8 or 0x18; UIADD3 UR16, UR10, UR21; UIADD3.X; UTMACCTL.PF [UR16]
TEST(SassTrace, DescriptorChosenFromSeveralMembers) {
  constexpr Word kParamAddress{0x00006600000a7ab9, 0x000fe20000000a00};
  constexpr Word kThreadUr{0x00000000000579c3, 0x000e220000002100};  // S2UR UR5, SR_TID.X
  constexpr Word kFirst{0x0000000800157882, 0x000fe20000000000};
  constexpr Word kSecond{0x0000001800157882, 0x000fe20000000000};
  constexpr Word kSum{0x000000150a107290, 0x000fc8000ff1e03f};
  constexpr Word kCarry{0x000000060b117290, 0x000fe200087fe43f};
  constexpr Word kPrefetch{0x00000000100079b9, 0x0001e20008040000};
  const AddressBase two = base_of({kParamAddress, under(kFirst, kP0), under(kSecond, kNotP0), kSum, kCarry, kPrefetch});
  EXPECT_THAT(two.param_offsets, ElementsAre(8U, 24U));
  EXPECT_TRUE(two.is_param_block);
  EXPECT_FALSE(two.may_be_other);
  Word unknown = kThreadUr;
  unknown[0] = (unknown[0] & ~uint64_t{0xff0000}) | 0x150000U;
  EXPECT_TRUE(base_of({kParamAddress, unknown, kSum, kCarry, kPrefetch}).may_be_other);
}

TEST(SassTrace, NothingComesBehindATrap) {
  // 0 index, 1 P0, 2 @P0 bra 5, 3 wait, 4 bra 6, 5 trap, 6 load
  const auto order = [](const Word& end) {
    Code code{kThread, kP0FromR5, branch(2, 5, kP0), kWait, branch(4, 6), end, kLoad, kExit};
    return scan_kernel(kernel_of(std::move(code))).accesses.at(0).order;
  };
  EXPECT_EQ(order(kTrap), Order::kAfterWait);
  EXPECT_EQ(order(kNop), Order::kBeforeWait);
  EXPECT_EQ(order(under(kTrap, kP0)), Order::kBeforeWait);
  Word breakpoint = kTrap;
  breakpoint[1] ^= uint64_t{7} << 20U;  // BPT.INT
  EXPECT_EQ(order(breakpoint), Order::kBeforeWait);
}

}  // namespace trace_test
}  // namespace megartp::sass
