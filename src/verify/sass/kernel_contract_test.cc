// Reading contracts, and every rule of the comparison that the compiled fixtures do not reach.
#include "verify/sass/kernel_contract.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megartp::sass {
namespace {

using testing::AllOf;
using testing::HasSubstr;

Error contract_error(std::string_view text) {
  const auto c = cubin_contract_from_json(text);
  EXPECT_FALSE(c) << text;
  return c ? Error{} : c.error();
}
std::string with_kernel(std::string_view fields) {
  return fmt::format(R"({{"cubin_contract": 1, "kernels": [{{"kernel": "k", {}}}]}})", fields);
}

TEST(KernelContract, ReadsEveryField) {
  const auto c = cubin_contract_from_json(with_kernel(
      R"("pdl": false, "waits": "some", "trigger": "before_wait", "params": [{"name": "w", "index": 2, "offset": 8, "bytes": 8},
         {"name": "n", "index": 1, "scalar": true}], "pre_wait_reads": ["w"], "pre_wait_prefetches": ["w"], "pre_wait_writes": ["w"],
         "ordered_by_barrier": ["*"], "allow_unknown_before_wait": ["LD"], "allow_unfenced": ["global"],
         "stores_before_trigger": true, "no_spills": false, "max_registers": 64)"));
  ASSERT_TRUE(c) << c.error().to_string();
  const KernelContract& k = c->kernels.at(0);
  EXPECT_FALSE(k.pdl);
  EXPECT_EQ(k.waits, ContractWaits::kSome);
  EXPECT_EQ(k.trigger, ContractTrigger::kBeforeWait);
  EXPECT_EQ(k.params.at(0).offset, 8U);
  EXPECT_TRUE(k.params.at(1).is_scalar);
  EXPECT_EQ(k.ordered_by_barrier, std::vector<std::string>{"*"});
  EXPECT_TRUE(k.stores_before_trigger);
  EXPECT_FALSE(k.no_spills);
  EXPECT_EQ(k.max_registers, 64U);
}

TEST(KernelContract, ErrorsNameThePlace) {
  EXPECT_THAT(contract_error("[]").to_string(), HasSubstr("expected an object"));
  EXPECT_THAT(contract_error(R"({"cubin_contract": 2, "kernels": []})").to_string(), HasSubstr("unknown version"));
  EXPECT_THAT(contract_error(with_kernel(R"("waits": "all")")).to_string(),
              AllOf(HasSubstr("'trigger' is missing"), HasSubstr("kernels[0]")));
  EXPECT_THAT(contract_error(with_kernel(R"("waits": "often", "trigger": "none")")).to_string(),
              AllOf(HasSubstr("expected one of 'all', 'some', 'none'"), HasSubstr("kernels[0].waits")));
  EXPECT_THAT(contract_error(with_kernel(R"("waits": "all", "trigger": "none", "pre_wait_reads": ["w"])")).to_string(),
              AllOf(HasSubstr("'w' is none of this kernel's params"), HasSubstr("kernels[0].pre_wait_reads")));
  EXPECT_THAT(
      contract_error(with_kernel(R"("waits": "all", "trigger": "none", "params": [{"name": "w", "index": -1}])"))
          .to_string(),
      HasSubstr("kernels[0].params[0].index"));
  EXPECT_THAT(contract_error(with_kernel(R"("waits": "all", "trigger": "none", "max_registers": "few")")).to_string(),
              HasSubstr("kernels[0].max_registers"));
  EXPECT_THAT(contract_error(with_kernel(R"("waits": "all", "trigger": "none", "typo": 1)")).to_string(),
              HasSubstr("unknown key 'typo'"));
  EXPECT_THAT(contract_error(R"({"cubin_contract": 1, "kernels": [{"kernel": "k", "waits": "all", "trigger": "none"},
                                                            {"kernel": "k", "waits": "all", "trigger": "none"}]})")
                  .to_string(),
              HasSubstr("'k' has two contracts"));
}

// A kernel that waits first and then reads parameter 0.
KernelScan sound_scan() {
  KernelScan s;
  s.kernel = "k";
  s.num_registers = 40;
  s.params = {{0, 0, 8}, {1, 8, 8}, {2, 16, 4}};
  s.coverage = WaitCoverage::kAllThreads;
  s.waits = {{0x10, false}};
  AccessSite a;
  a.offset = 0x20;
  a.text = "LDG R2, [R2.64]";
  a.opcode_name = "LDG";
  a.base.param_offsets = {0};
  a.order = Order::kAfterWait;
  s.accesses = {a};
  return s;
}
KernelContract plain_contract() {
  KernelContract c;
  c.kernel = "k";
  c.params = {{"x", 0, 0, std::nullopt, false}, {"w", 1, 0, std::nullopt, false}};
  return c;
}
std::vector<std::string> rules(const std::vector<CubinFinding>& findings) {
  std::vector<std::string> out;
  for (const CubinFinding& f : findings) out.push_back(f.rule);
  return out;
}
using testing::ElementsAre;
using testing::IsEmpty;

TEST(KernelContract, WhoIsAllowedBeforeTheWait) {
  KernelScan s = sound_scan();
  KernelContract c = plain_contract();
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  AccessSite& a = s.accesses[0];
  a.order = Order::kBeforeWait;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("read_before_wait"));
  c.pre_wait_reads = {"x"};
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  a.access.kind = AccessKind::kWrite;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("write_before_wait"));
  c.pre_wait_writes = {"x"};
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  a.access.kind = AccessKind::kPrefetch;
  a.base.param_offsets = {0, 8};  // one or the other
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("prefetch_mutable"));
  c.pre_wait_prefetches = {"x", "w"};
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  a.base.may_be_other = true;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("unknown_before_wait"));
  c.allow_unknown_before_wait = {"LDG"};
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  c.pdl = false;  // then nothing runs early
  c.allow_unknown_before_wait.clear();
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
}

TEST(KernelContract, ScalarsAreNoBases) {
  KernelScan s = sound_scan();
  KernelContract c = plain_contract();
  s.accesses[0].order = Order::kBeforeWait;
  s.accesses[0].base.param_offsets = {0, 8};
  c.pre_wait_reads = {"x"};
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("read_before_wait"));
  c.params[1].is_scalar = true;
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  // A scalar alone is no address.
  s.accesses[0].base.param_offsets = {8};
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("unknown_before_wait"));
}

TEST(KernelContract, BarriersOrderAllButTheReadOnlyPath) {
  KernelScan s = sound_scan();
  KernelContract c = plain_contract();
  c.ordered_by_barrier = {"x"};
  AccessSite& a = s.accesses[0];
  for (const Order order : {Order::kAfterBarrier, Order::kAfterMbarrier}) {
    a.order = order;
    a.access.is_nc = false;
    EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
    a.access.is_nc = true;
    EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("restrict_hoist"));
  }
  a.order = Order::kBeforeWait;
  a.access.is_nc = false;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("read_before_wait"));
}

TEST(KernelContract, TriggersAndResources) {
  KernelScan s = sound_scan();
  KernelContract c = plain_contract();
  c.trigger = ContractTrigger::kAfterWait;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("missing_trigger"));
  s.triggers = {{0x30, Order::kAfterBarrier, true}};
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  s.triggers = {{0x30, Order::kAfterMbarrier, true}};
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("early_trigger"));
  c.trigger = ContractTrigger::kBeforeWait;
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  c.trigger = ContractTrigger::kNone;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("unexpected_trigger"));
  c.trigger = ContractTrigger::kAny;
  c.stores_before_trigger = true;
  s.accesses[0].access.kind = AccessKind::kWrite;
  s.accesses[0].may_follow_trigger = true;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("store_after_trigger"));
  c.stores_before_trigger = false;
  c.max_registers = 39;
  s.num_local_accesses = 1;
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("spills", "too_many_registers"));
  c.no_spills = false;
  c.max_registers = 40;
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  s.unfenced = {{0x40, 0x50, "STS", "UTMASTG", false}};
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("missing_proxy_fence"));
  c.allow_unfenced = {"shared"};
  EXPECT_THAT(rules(compare_kernel(s, c)), IsEmpty());
  c.params.push_back({"gone", 9, 0, std::nullopt, false});
  EXPECT_THAT(rules(compare_kernel(s, c)), ElementsAre("contract"));
}

TEST(KernelContract, EveryKernelNeedsOne) {
  CubinContract contract;
  contract.kernels = {plain_contract()};
  contract.kernels[0].kernel = "other";
  const auto findings = compare_with_contract({sound_scan()}, contract);
  EXPECT_THAT(rules(findings), ElementsAre("kernel_missing", "no_contract"));
  EXPECT_THAT(findings[1].message, HasSubstr("'k'"));
}

}  // namespace
}  // namespace megartp::sass
