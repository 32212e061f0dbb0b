// The scan on compiled kernels whose machine code is changed by one instruction, and on hand-made code.
#include "verify/sass/sass_scan.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "verify/sass/kernel_contract.h"

namespace megartp::sass {
namespace {

using Code = std::vector<std::array<uint64_t, 2>>;

constexpr std::array<uint64_t, 2> kNop{0x0000000000007918, 0x000fe20000000000};
constexpr std::array<uint64_t, 2> kWait{0x000000000000782e, 0x000fe20000000000};
constexpr std::array<uint64_t, 2> kTrigger{0x000000000000782d, 0x000fe20000000000};
constexpr std::array<uint64_t, 2> kExitAlways{0x000000000000794d, 0x000fea0003800000};
constexpr std::array<uint64_t, 2> kExitIfP0{0x000000000000094d, 0x000fea0003800000};
constexpr std::array<uint64_t, 2> kLoad{0x0000000402027981, 0x000ee2000c1e1900};
constexpr std::array<uint64_t, 2> kBarrier0{0x0000000000007b1d, 0x000fec0000010000};
constexpr std::array<uint64_t, 2> kThreadIndexR0{0x0000000000007919, 0x000e220000002100};
constexpr std::array<uint64_t, 2> kBlockIndexR0{0x0000000000007919, 0x000e220000002500};
constexpr std::array<uint64_t, 2> kP0FromR0{0x000000ff0000720c, 0x001fda0003f05270};  // ISETP.NE P0, R0, RZ
constexpr std::array<uint64_t, 2> kUnknownOpcode{0x0000000000007fff, 0x000fe20000000000};

// BRA from one instruction to another, always or if P0 (`guard` 7 or 0).
std::array<uint64_t, 2> branch(int64_t from, int64_t to, uint64_t guard = 7) {
  const uint64_t v = static_cast<uint64_t>((to - from - 1) * 4);
  return {0x947U | guard << 12 | (v & 0xff) << 16 | (v >> 8) << 34, 0x000fea0003800000U | ((v >> 38) & 0x3ffff)};
}

CubinKernel kernel_of(Code code) {
  CubinKernel k;
  k.name = "hand_made";
  k.section = ".text.hand_made";
  k.code = std::move(code);
  k.param_base = 0x210;
  k.param_bytes = 16;
  k.params = {{0, 0, 8}, {1, 8, 8}};
  return k;
}
KernelScan scan(Code code) { return scan_kernel(kernel_of(std::move(code))); }

CubinKernel fixture_kernel(const std::string& name) {
  return load_cubin(fmt::format("{}/tests/faults/cubin/{}.cubin", MEGARTP_SOURCE_DIR, name)).value().kernels.at(0);
}
CubinContract contract(const std::string& name) {
  return load_cubin_contract(fmt::format("{}/tests/faults/cubin/{}.json", MEGARTP_SOURCE_DIR, name)).value();
}

Order order_of_only_load(const KernelScan& s) {
  EXPECT_EQ(s.accesses.size(), 1U);
  return s.accesses.at(0).order;
}

TEST(SassScan, StraightLine) {
  const KernelScan after = scan({kWait, kLoad, kTrigger, kExitAlways});
  EXPECT_EQ(after.coverage, WaitCoverage::kAllThreads);
  EXPECT_EQ(order_of_only_load(after), Order::kAfterWait);
  ASSERT_EQ(after.triggers.size(), 1U);
  EXPECT_EQ(after.triggers[0].order, Order::kAfterWait);
  EXPECT_EQ(after.triggers[0].offset, 0x20U);
  const KernelScan before = scan({kTrigger, kLoad, kWait, kExitAlways});
  EXPECT_EQ(order_of_only_load(before), Order::kBeforeWait);
  EXPECT_EQ(before.triggers.at(0).order, Order::kBeforeWait);
  EXPECT_TRUE(before.accesses[0].may_follow_trigger);
  EXPECT_EQ(scan({kLoad, kExitAlways}).coverage, WaitCoverage::kNone);
}

TEST(SassScan, WaitUnderAGuardIsNoWait) {
  auto guarded = kWait;
  guarded[0] = (guarded[0] & ~uint64_t{0xf000});  // @P0
  const KernelScan s = scan({guarded, kLoad, kExitAlways});
  EXPECT_EQ(s.coverage, WaitCoverage::kSomePaths);
  EXPECT_TRUE(s.waits.at(0).is_guarded);
  EXPECT_EQ(order_of_only_load(s), Order::kBeforeWait);
}

// 0 index, 1 P0, 2 @P0 bra 4, 3 wait, 4 barrier, 5 load, 6 exit
Code one_thread_waits(const std::array<uint64_t, 2>& index) {
  return {index, kP0FromR0, branch(2, 4, 0), kWait, kBarrier0, kLoad, kExitAlways};
}

TEST(SassScan, OneThreadWaitsForItsBlock) {
  const KernelScan s = scan(one_thread_waits(kThreadIndexR0));
  EXPECT_EQ(s.coverage, WaitCoverage::kSomeThreads);
  EXPECT_EQ(order_of_only_load(s), Order::kAfterBarrier);
  ASSERT_EQ(s.unwaited_exits.size(), 1U);
  ASSERT_EQ(s.unwaited_exits[0].path.size(), 1U);
  EXPECT_EQ(s.unwaited_exits[0].path[0].from, 0x20U);
  EXPECT_EQ(s.unwaited_exits[0].path[0].to, 0x40U);
}

TEST(SassScan, OneBlockWaitsForNobodyElse) {
  const KernelScan s = scan(one_thread_waits(kBlockIndexR0));
  EXPECT_EQ(s.coverage, WaitCoverage::kSomePaths);
  EXPECT_EQ(order_of_only_load(s), Order::kBeforeWait);
}

TEST(SassScan, BarrierBeforeTheWaitOrdersNothing) {
  const KernelScan s = scan({kThreadIndexR0, kP0FromR0, kBarrier0, kLoad, branch(4, 6, 0), kWait, kExitAlways});
  EXPECT_EQ(s.coverage, WaitCoverage::kSomeThreads);
  EXPECT_EQ(order_of_only_load(s), Order::kBeforeWait);
}

TEST(SassScan, EarlyExitOfSomeThreads) {
  // By thread index: the others wait. By block index: whole blocks leave.
  EXPECT_EQ(scan({kThreadIndexR0, kP0FromR0, kExitIfP0, kWait, kExitAlways}).coverage, WaitCoverage::kSomeThreads);
  EXPECT_EQ(scan({kBlockIndexR0, kP0FromR0, kExitIfP0, kWait, kExitAlways}).coverage, WaitCoverage::kSomePaths);
}

// SHF R2, R1, 31 of the thread's index, STG and BAR have zeros where others name P0: it still depends on the block.
TEST(SassScan, PredicatesOutliveWhatDoesNotWriteThem) {
  const std::array<uint64_t, 2> thread_index_r1{0x0000000000017919, 0x000e220000002100};
  const std::array<uint64_t, 2> shift{0x0000001f01027819, 0x000fca00000006ff};
  const std::array<uint64_t, 2> store{0x0000000702007986, 0x000fe2000c101904};
  const Code code{kBlockIndexR0, kP0FromR0, thread_index_r1, shift, store, kBarrier0, kExitIfP0, kWait, kExitAlways};
  EXPECT_EQ(scan(code).coverage, WaitCoverage::kSomePaths);
  Code by_thread = code;
  by_thread[0] = kThreadIndexR0;
  by_thread[2] = {0x0000000000017919, 0x000e220000002500};  // and the block's index into R1
  EXPECT_EQ(scan(by_thread).coverage, WaitCoverage::kSomeThreads);
}

TEST(SassScan, LoopBeforeTheWaitEnds) {
  // 0 index, 1 P0, 2 @P0 bra 1, 3 wait
  const KernelScan s = scan({kThreadIndexR0, kP0FromR0, branch(2, 1, 0), kWait, kLoad, kExitAlways});
  EXPECT_EQ(s.coverage, WaitCoverage::kAllThreads);
  EXPECT_EQ(order_of_only_load(s), Order::kAfterWait);
  // 0 index, 1 P0, 2 @P0 bra 0 (a loop that a thread leaves without a wait), 3 exit: a wait in no path
  EXPECT_EQ(scan({kThreadIndexR0, kP0FromR0, branch(2, 0, 0), kExitAlways, kWait, kExitAlways}).coverage,
            WaitCoverage::kNone);
}

TEST(SassScan, UnknownInstructionBeforeTheWait) {
  const KernelScan s = scan({kUnknownOpcode, kWait, kUnknownOpcode, kExitAlways});
  ASSERT_EQ(s.opaque.size(), 1U);
  EXPECT_EQ(s.opaque[0].offset, 0U);
  KernelContract c;
  c.kernel = "hand_made";
  const auto findings = compare_kernel(s, c);
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].rule, "unknown_before_wait");
  EXPECT_THAT(findings[0].message, testing::HasSubstr("'hand_made', 0x0000: unknown opcode 0xfff"));
}

TEST(SassScan, JumpToAnUnknownPlaceMayGoAnywhere) {
  // BRX R4 without a list of targets: the load behind the wait may be its target.
  const std::array<uint64_t, 2> brx{0xfffffffc04bc7949, 0x000fea000383ffff};
  const KernelScan s = scan({brx, kWait, kLoad, kExitAlways});
  EXPECT_EQ(order_of_only_load(s), Order::kBeforeWait);
  EXPECT_NE(s.coverage, WaitCoverage::kAllThreads);
  EXPECT_EQ(s.opaque.size(), 1U);
  CubinKernel listed = kernel_of({brx, kWait, kLoad, kExitAlways});
  listed.branch_targets[0] = {0x10};
  EXPECT_EQ(order_of_only_load(scan_kernel(listed)), Order::kAfterWait);
}

TEST(SassScan, CodeThatRunsOffItsEnd) {
  const KernelScan s = scan({kWait, kLoad});
  EXPECT_EQ(s.unknown_flow, std::vector<uint32_t>{0x10});
  EXPECT_EQ(s.coverage, WaitCoverage::kSomePaths);
}

TEST(SassScan, ListedExitThatIsNone) {
  CubinKernel k = kernel_of({kWait, kLoad, kExitAlways});
  k.exit_offsets = {0x20};
  EXPECT_TRUE(scan_kernel(k).notes.empty());
  k.exit_offsets = {0x10};
  EXPECT_THAT(scan_kernel(k).notes, testing::ElementsAre(testing::HasSubstr("0x0010")));
}

// Every sound kernel of the fixtures loses its waits, one after the other: each loss must be noticed.
TEST(SassScan, EveryWaitIsNeeded) {
  const std::pair<const char*, const char*> sound[] = {{"read_before_wait_ok", "read_before_wait"},
                                                       {"restrict_hoist_ok", "restrict_hoist"},
                                                       {"barrier_ordered_ok", "barrier_ordered"},
                                                       {"no_wait_consumer_ok", "no_wait_consumer_ok"},
                                                       {"missing_proxy_fence_ok", "missing_proxy_fence"},
                                                       {"early_trigger_ok", "early_trigger"},
                                                       {"conditional_wait_ok", "conditional_wait"},
                                                       {"early_exit_ok", "early_exit"},
                                                       {"wait_in_loop_ok", "wait_in_loop"},
                                                       {"store_before_wait_ok", "store_before_wait"},
                                                       {"prefetch_mutable_ok", "prefetch_mutable"},
                                                       {"weights_before_wait_ok", "weights_before_wait"},
                                                       {"split_loader_ok", "split_loader"},
                                                       {"register_spill_ok", "register_spill"},
                                                       {"call_before_wait_ok", "call_before_wait"}};
  size_t mutations = 0;
  for (const auto& [name, contract_name] : sound) {
    const CubinKernel good = fixture_kernel(name);
    const CubinContract c = contract(contract_name);
    ASSERT_TRUE(compare_with_contract({scan_kernel(good)}, c).empty()) << name;
    for (size_t i = 0; i < good.code.size(); ++i) {
      if (good.code[i][0] != kWait[0]) continue;
      ++mutations;
      CubinKernel dropped = good;
      dropped.code[i] = kNop;
      EXPECT_FALSE(compare_with_contract({scan_kernel(dropped)}, c).empty()) << name << " without its wait";
      CubinKernel guarded = good;
      guarded.code[i][0] &= ~uint64_t{0xf000};
      EXPECT_FALSE(compare_with_contract({scan_kernel(guarded)}, c).empty()) << name << " with its wait under P0";
    }
  }
  EXPECT_GE(mutations, std::size(sound));
}

// A wait takes the place of an earlier instruction and leaves its own: whatever was before it is after it now. The
// other way round, a global access that is swapped with the wait before it must be noticed unless the contract allows
// it.
TEST(SassScan, AccessSwappedBeforeTheWait) {
  for (const char* name : {"restrict_hoist_ok", "early_exit_ok", "wait_in_loop_ok", "store_before_wait_ok"}) {
    const CubinKernel good = fixture_kernel(name);
    const std::string contract_name = std::string(name).substr(0, std::string(name).size() - 3);
    const KernelScan s = scan_kernel(good);
    ASSERT_EQ(s.waits.size(), 1U) << name;
    ASSERT_FALSE(s.accesses.empty()) << name;
    for (const AccessSite& a : s.accesses) {
      CubinKernel swapped = good;
      std::swap(swapped.code[a.offset / 16], swapped.code[s.waits[0].offset / 16]);
      const auto findings = compare_with_contract({scan_kernel(swapped)}, contract(contract_name));
      EXPECT_TRUE(std::any_of(findings.begin(), findings.end(),
                              [&](const CubinFinding& f) { return f.offset == s.waits[0].offset; }))
          << name << " at " << a.offset;
    }
  }
}

TEST(SassScan, TracesPointersThroughStructsAndIndices) {
  const KernelScan s = scan_kernel(fixture_kernel("prefetch_mutable"));
  ASSERT_TRUE(s.is_traced);
  for (const AccessSite& a : s.accesses) {
    EXPECT_TRUE(a.base.is_known()) << a.offset << " " << a.text;
    EXPECT_EQ(a.base.param_offsets.size(), 1U) << a.offset << " " << a.text;
    const bool is_store = a.access.kind == AccessKind::kWrite;
    EXPECT_EQ(is_store, a.base.param_offsets.at(0) == 16U) << a.offset << " " << a.text;
  }
}

}  // namespace
}  // namespace megartp::sass
