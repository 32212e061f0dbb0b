// head_gate in the persistent kernel: a slice of 128 hidden columns an instruction, 8 heads a warp.
#pragma once

#include "device/mega/frame.cuh"
#include "ops/head_gate/device/head_gate.cuh"
#include "ops/head_gate/head_gate_abi.h"

namespace megartp::device {

template <uint32_t kOp>
struct HeadGateMega : MegaOpcodes<kOp> {
  static constexpr bool kHasXScales = false;

  __device__ static void load_weights(MegaContext&) {}
  __device__ static void load_activations(MegaContext&) {}
  __device__ __forceinline__ static void consume(MegaContext& c) {
    const auto& spec = c.spec<ops::HeadGateSpec>();
    const uint32_t* w = c.payload();
    const uint32_t m_end = w[0] + w[1];
    const HeadGateParams p{c.operand<const uint4>(ops::kHeadGateY),
                           c.operand<const uint4>(ops::kHeadGateW),
                           c.operand<float>(ops::kHeadGatePartials),
                           w[3],
                           spec.heads,
                           spec.hidden};
    HeadGateTile t{w[2], warp_index() * 8};
    t.fetch(p);
    c.wait_inputs_ready();
    for (uint32_t heads = 0;;) {
      for (uint32_t m = w[0]; m < m_end; m += 16) t.multiply(p, m);
      heads += kMegaConsumerWarps * 8;
      if (heads >= p.heads) break;
      t.first_head = heads + warp_index() * 8;
      t.fetch(p);
    }
  }
};

}  // namespace megartp::device
