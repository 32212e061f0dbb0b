// A relay: waits and signals, nothing else. Knows no op; in every kernel whose plans have relays.
#pragma once

#include "device/mega/mega_kernel.cuh"

namespace megartp::device {

template <uint32_t kOp>
struct RelayMega : MegaOpcodes<kOp> {
  static constexpr bool kHasXScales = false;
  __device__ static void load_weights(MegaContext&) {}
  __device__ static void load_activations(MegaContext&) {}
  __device__ static void consume(MegaContext&) {}
};

}  // namespace megartp::device
