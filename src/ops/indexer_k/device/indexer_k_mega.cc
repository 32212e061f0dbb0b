// The GEMM and the finalizer of indexer_k in the persistent kernel.
#include <array>

#include "ops/common/mega_gemm.h"
#include "ops/indexer_k/indexer_k.h"
#include "ops/indexer_k/indexer_k_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<uint32_t, 1> kPacked{kIndexerKWeight};

Status check_finalize(const InstructionCheck& c) {
  const auto s = decode_spec<IndexerKSpec>(c.spec);
  return mega_dims_fit(s.gemm.segment_rows[0] == 128 && s.rope % 8 == 0,
                       "a head of 128 with a rope of a multiple of 8");
}

constexpr std::array<MegaOpInfo, 2> kMegaOps{
    {SplitGemmMegaOp<IndexerKSpec, indexer_k_gemm_slots>::info(kOpcode_indexer_k_gemm, kPacked).taking(2.5),
     MegaOpInfo{kOpcode_indexer_k_finalize,
                "ops/indexer_k/device/indexer_k_mega.cuh",
                "IndexerKFinalizeMega",
                {},
                nullptr,
                nullptr,
                check_finalize}
         .taking(1.7)}};

}  // namespace

std::span<const MegaOpInfo> indexer_k_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
