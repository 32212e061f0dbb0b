// Encodings as ptxas 13.0 writes them for sm_90, and what nvdisasm says of each. tools/compare_sass.py does the same
// for whole cubins.
#include "verify/sass/sass_decode.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace megartp::sass {
namespace {

struct Known {
  uint64_t lo, hi;
  OpKind kind;
  const char* text;
};

TEST(SassDecode, NamesGuardsAndAddresses) {
  const Known known[] = {
      {0x000000000000782e, 0x000fe20000000000, OpKind::kGridWait, "ACQBULK"},
      {0x000000000000782d, 0x000fe20000000000, OpKind::kGridTrigger, "PREEXIT"},
      {0x0000000402027981, 0x000fe2000c1e9900, OpKind::kGlobalLoad, "LDG.CONSTANT R2, desc[UR4][R2.64]"},
      {0x0fd63e28363a7981, 0x000fe2000f1e0504, OpKind::kGlobalLoad, "LDG R58, [R54.64+UR40]"},
      {0x0000000402037980, 0x000ea2000c115900, OpKind::kGenericLoad, "LD R3, desc[UR4][R2.64]"},
      {0x0000000004077980, 0x000ea20000100900, OpKind::kGenericLoad, "LD R7, [R4.64]"},
      {0x0000000702007986, 0x000fe2000c101904, OpKind::kGlobalStore, "STG desc[UR4][R2.64]"},
      {0x00000009020309a8, 0x002ee200081ee1c4, OpKind::kGlobalAtomic, "@P0 ATOMG desc[UR4][R2.64]"},
      {0x0000041402ff73a9, 0x0023e800001ee115, OpKind::kGlobalAtomic, "ATOMG [R2.64]"},
      {0x0000000002097fae, 0x000fe8000b901c46, OpKind::kAsyncCopy, "LDGSTS desc[UR6][R2.64]"},
      {0x00000000ff0779a5, 0x000eaa0008015904, OpKind::kGlobalLoad, "LDGMC R7, [RZ+UR4]"},
      {0x000000080c0075b4, 0x0003d80008008000, OpKind::kTensorLoad, "UTMALDG [UR12]"},
      {0x000000040a0073b5, 0x0005e40008008000, OpKind::kTensorStore, "UTMASTG [UR10]"},
      {0x00000004060075b8, 0x0001e40008008000, OpKind::kTensorPrefetch, "UTMAPF [UR6]"},
      {0x000000000c0079b9, 0x0005e20008040000, OpKind::kTensorControl, "UTMACCTL.PF [UR12]"},
      {0x00000006040073ba, 0x0005d80008000208, OpKind::kBulkCopy, "UBLKCP.S.G [UR4]"},
      {0x00000004080073ba, 0x0003e40008000409, OpKind::kBulkCopy, "UBLKCP.G.S [UR4]"},
      {0x000000000400798f, 0x000fe20000800100, OpKind::kCacheControl, "CCTL.PF2 [R4.64]"},
      {0x00000000ff00798f, 0x000fe20002000000, OpKind::kCacheControl, "CCTL.IVALL"},
      {0x00000000000073c6, 0x000e680000000000, OpKind::kProxyFence, "FENCE.VIEW.ASYNC.S"},
      {0x00000000000073c6, 0x000ea20000000100, OpKind::kProxyFence, "FENCE.VIEW.ASYNC.G"},
      {0x0000000000000fff, 0x000fe20000000000, OpKind::kUnknown, "@P0 unknown opcode 0xfff"},
      {0x000000000000894d, 0x000fea0003800000, OpKind::kExit, "@!P0 EXIT"},
  };
  for (const Known& k : known) {
    const Instruction in(k.lo, k.hi);
    EXPECT_EQ(in.kind(), k.kind) << k.text;
    EXPECT_EQ(in.text(), k.text);
  }
}

TEST(SassDecode, WhatAnAccessDoes) {
  const auto kind = [](uint64_t lo, uint64_t hi) { return Instruction(lo, hi).global_access().value().kind; };
  EXPECT_EQ(kind(0x00000006040073ba, 0x0005d80008000208), AccessKind::kRead);         // UBLKCP.S.G
  EXPECT_EQ(kind(0x00000004080073ba, 0x0003e40008000409), AccessKind::kWrite);        // UBLKCP.G.S
  EXPECT_EQ(kind(0x00000006080073bb, 0x0003d800080a0409), AccessKind::kReadWrite);    // UBLKRED
  EXPECT_EQ(kind(0x000000000400798f, 0x000fe20005000100), AccessKind::kWrite);        // CCTL.DML2: discards the line
  EXPECT_EQ(kind(0x000000000400798f, 0x000fe20004800100), AccessKind::kPrefetch);     // CCTL.PML2
  EXPECT_FALSE(Instruction(0x00000000080079b9, 0x0003e20008000000).global_access());  // UTMACCTL.IV
  EXPECT_FALSE(Instruction(0x0000000402027984, 0x000fe20000000800).global_access());  // LDS
}

TEST(SassDecode, Targets) {
  EXPECT_EQ(Instruction(0x0000000000681947, 0x000fea0003800000).target(0x40), 0x1f0);
  EXPECT_EQ(Instruction(0xfffffffc00f88947, 0x002fea000383ffff).target(0x270), 0x260);  // backwards
  EXPECT_EQ(Instruction(0x000001d000007945, 0x000fe20003800000).target(0x20), 0x200);   // BSSY
  EXPECT_EQ(Instruction(0x0000000000447944, 0x021fea0003c00000).target(0x70), 0x190);   // CALL.REL
  EXPECT_FALSE(Instruction(0x0000000008007343, 0x001fea0003c00000).target(0x130));      // CALL.ABS R8
  EXPECT_FALSE(Instruction(0xfffffffc04bc7949, 0x000fea000383ffff).target(0x100));      // BRX
  EXPECT_FALSE(Instruction(0x0000000009007348, 0x000fea0003800000).target(0x160));      // WARPSYNC
  EXPECT_EQ(Instruction(0x0000001005047948, 0x000fe20003c00000).target(0x10), 0x1030);  // WARPSYNC.COLLECTIVE
}

TEST(SassDecode, ConstantOffsetsAreInBytes) {
  const Instruction whole(0x00008400ff1e7b82, 0x000e620000000a00);  // LDC.64 R30, c[0x0][0x210]
  EXPECT_EQ(whole.constant_bank(), 0U);
  EXPECT_EQ(whole.constant_offset(), 0x210U);
  EXPECT_EQ(Instruction(0x00c0050000067ab9, 0x000fcc0000000800).constant_bank(), 3U);  // ULDC UR6, c[0x3][0x14]
  EXPECT_EQ(Instruction(0x00c0050000067ab9, 0x000fcc0000000800).constant_offset(), 0x14U);
  EXPECT_EQ(Instruction(0x00008940ff007b82, 0x000e620000000000).constant_offset(), 0x225U);  // LDC.U8 R0, c[0x0][0x225]
}

TEST(SassDecode, ConditionsOfControlInstructions) {
  EXPECT_FALSE(Instruction(0x00000000000c7947, 0x000fec0003800000).is_conditional());
  EXPECT_TRUE(Instruction(0x0000000000681947, 0x000fea0003800000).is_conditional());  // @P1 BRA
  EXPECT_TRUE(Instruction(0x0000000000107947, 0x000fea0000800000).is_conditional());  // BRA P1
  EXPECT_TRUE(Instruction(0x0000000108047547, 0x00ffea000b800000).is_conditional());  // BRA.U !UP0
}

TEST(SassDecode, Barriers) {
  const Instruction sync(0x0041000000007b1d, 0x000fec0000010000);  // BAR.SYNC 1, 64
  EXPECT_EQ(sync.barrier_id(), 1);
  EXPECT_TRUE(sync.barrier_waits());
  const Instruction arrive(0x0081000000007b1d, 0x000ff00000002000);  // BAR.ARV 2, 64
  EXPECT_EQ(arrive.barrier_id(), 2);
  EXPECT_FALSE(arrive.barrier_waits());
  EXPECT_FALSE(Instruction(0x000000090000751d, 0x0001e20000010000).barrier_id());  // BAR.SYNC R9
  EXPECT_TRUE(Instruction(0x00000002ff0075a7, 0x000e640008000144).is_mbarrier_wait());
  EXPECT_TRUE(Instruction(0x00000002ffff79a7, 0x0025e20008000009).is_mbarrier_arrival());
  EXPECT_TRUE(Instruction(0x0000000000007992, 0x002fec000000a000).is_gpu_membar());
  EXPECT_FALSE(Instruction(0x0000000000007992, 0x0003ec0000008000).is_gpu_membar());  // of the CTA
}

TEST(SassDecode, AnyBitsDecode) {
  // Every opcode, with all other bits set and clear: no field may lead anywhere undefined.
  for (uint64_t opcode = 0; opcode < 4096; ++opcode)
    for (const uint64_t rest : {uint64_t{0}, ~uint64_t{0}}) {
      const Instruction in((rest & ~uint64_t{0xfff}) | opcode, rest);
      EXPECT_FALSE(in.text().empty());
      EXPECT_EQ(in.kind() == OpKind::kUnknown, in.name().empty());
      EXPECT_EQ(in.opcode(), opcode);
      in.target(0);
      in.barrier_id();
    }
}

}  // namespace
}  // namespace megartp::sass
