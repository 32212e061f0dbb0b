// The GEMM and the finalizer of indexer_q in the persistent kernel.
#include <array>

#include "ops/common/mega_gemm.h"
#include "ops/indexer_q/indexer_q_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<uint32_t, 1> kPacked{kIndexerQWeight};

uint32_t num_pages(const InstructionCheck& c) {
  return mega_gemm_pages(decode_spec<IndexerQSpec>(c.spec).gemm, decode_fp8_gemm_payload(c.instruction.payload));
}
std::vector<MegaOpMap> maps(std::span<const uint32_t>, std::span<const OperandType> operands) {
  return {mega_x_map(kIndexerQX, operands)};
}

constexpr std::array<MegaOpInfo, 2> kMegaOps{{{kOpcode_indexer_q_gemm, "ops/indexer_q/device/indexer_q_mega.cuh",
                                               "IndexerQGemmMega", kPacked, num_pages, maps, check_mega_gemm},
                                              {kOpcode_indexer_q_finalize,
                                               "ops/indexer_q/device/indexer_q_mega.cuh",
                                               "IndexerQFinalizeMega",
                                               {},
                                               nullptr,
                                               nullptr,
                                               nullptr}}};

}  // namespace

std::span<const MegaOpInfo> indexer_q_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
