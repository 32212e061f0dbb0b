// The GEMM and the finalizer of indexer_q in the persistent kernel.
#include <array>

#include "ops/common/mega_gemm.h"
#include "ops/indexer_q/indexer_q.h"
#include "ops/indexer_q/indexer_q_abi.h"
#include "ops/opcodes.gen.h"

namespace megartp::ops {
namespace {

constexpr std::array<uint32_t, 1> kPacked{kIndexerQWeight};

Status check_finalize(const InstructionCheck& c) {
  const auto s = decode_spec<IndexerQSpec>(c.spec);
  return mega_dims_fit(s.head_dim == 128 && s.rope % 8 == 0 && s.gate_splits <= 128,
                       "heads of 128 with a rope of a multiple of 8 and up to 128 slices of the gate");
}

constexpr std::array<MegaOpInfo, 2> kMegaOps{
    {SplitGemmMegaOp<IndexerQSpec, indexer_q_gemm_slots>::info(kOpcode_indexer_q_gemm, kPacked).taking(1.6),
     MegaOpInfo{kOpcode_indexer_q_finalize,
                "ops/indexer_q/device/indexer_q_mega.cuh",
                "IndexerQFinalizeMega",
                {},
                nullptr,
                nullptr,
                check_finalize}
         .taking(2.9)}};

}  // namespace

std::span<const MegaOpInfo> indexer_q_mega_ops() { return kMegaOps; }

}  // namespace megartp::ops
