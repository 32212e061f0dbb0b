#include "codegen/mega_source.h"

#include <array>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "abi/mega.h"
#include "ops/mega_op.h"
#include "ops/opcodes.gen.h"

namespace megartp::codegen {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

TEST(MegaSource, NamesOpsInTheOrderOfTheirOpcodes) {
  const std::array opcodes{abi::kOpcodeRelay, ops::kOpcode_qkv_a_gemm, ops::kOpcode_indexer_q_gemm,
                           ops::kOpcode_main_q};
  const auto request = mega_kernel_request(opcodes);
  ASSERT_TRUE(request) << request.error().to_string();
  EXPECT_EQ(request->entry,
            "megartp::device::mega_kernel<megartp::device::MegaOps<megartp::device::RelayMega<1>, "
            "megartp::device::SplitGemmMega<49, 73>, megartp::device::MainQMega<80>>>")
      << "GEMMs of split-K families are one code";
  EXPECT_EQ(request->param_bytes, sizeof(abi::MegaParams));
  EXPECT_EQ(request->param_alignment, 64U);
  const std::string source = kernel_source(*request);
  EXPECT_THAT(source, HasSubstr("#include \"ops/common/device/fp8_gemm_mega.cuh\"\n"));
  EXPECT_THAT(source, HasSubstr("#include \"device/mega/relay.cuh\"\n"));
  EXPECT_THAT(source, HasSubstr("#include \"device/mega/mega_kernel.cuh\"\n"));
}

TEST(MegaSource, UnknownOpcodesAreNamed) {
  const std::array opcodes{ops::kOpcode_add, ops::kOpcode_qkv_a_fused, ops::kOpcode_main_q};
  const auto request = mega_kernel_request(opcodes);
  ASSERT_FALSE(request);
  EXPECT_EQ(request.error().code, ErrorCode::kUnsupported);
  EXPECT_THAT(request.error().message, HasSubstr("no device op for 'add', 'qkv_a.fused'"));
  EXPECT_THAT(request.error().details, HasSubstr("qkv_a.gemm"));
}

TEST(MegaOps, EachIsOfAFamily) {
  uint32_t before = 0;
  for (const MegaOpInfo* op : mega_ops()) {
    EXPECT_GT(op->opcode, before);
    before = op->opcode;
    EXPECT_EQ(find_mega_op(op->opcode), op);
    EXPECT_NE(opcode_name(op->opcode), "?");
  }
  EXPECT_EQ(find_mega_op(0xffff), nullptr);
}

TEST(MegaSource, OpcodesOfAPlan) {
  KernelPlan plan;
  plan.instructions.resize(4);
  plan.instructions[0].opcode = 7;
  plan.instructions[2].opcode = 3;
  plan.instructions[3].opcode = 7;
  EXPECT_THAT(mega_opcodes(plan), ElementsAre(abi::kOpcodeRelay, 3, 7));
}

}  // namespace
}  // namespace megartp::codegen
