// The GEMM and the finalizer of indexer_k in the persistent kernel.
#include <array>

#include "ops/common/mega_gemm.h"
#include "ops/indexer_k/indexer_k_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<uint32_t, 1> kPacked{kIndexerKWeight};

uint32_t num_pages(const InstructionCheck& c) {
  return mega_gemm_pages(decode_spec<IndexerKSpec>(c.spec).gemm, decode_fp8_gemm_payload(c.instruction.payload));
}
std::vector<MegaOpMap> maps(std::span<const uint32_t>, std::span<const OperandType> operands) {
  return {mega_x_map(kIndexerKX, operands)};
}

constexpr std::array<MegaOpInfo, 2> kMegaOps{{{kOpcode_indexer_k_gemm, "ops/indexer_k/device/indexer_k_mega.cuh",
                                               "IndexerKGemmMega", kPacked, num_pages, maps, check_mega_gemm},
                                              {kOpcode_indexer_k_finalize,
                                               "ops/indexer_k/device/indexer_k_mega.cuh",
                                               "IndexerKFinalizeMega",
                                               {},
                                               nullptr,
                                               nullptr,
                                               nullptr}}};

}  // namespace

std::span<const MegaOpInfo> indexer_k_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
