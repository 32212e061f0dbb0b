// The only source that sees the kernels through CUDA's words on the host.
#include "device/emulated_kernels.h"

#include <cstring>
#include <map>

#include "device/emulate/cuda_words.h"
#include "ops/add/device/add_generic.cuh"
#include "ops/gemm/device/gemm_generic.cuh"
#include "ops/head_gate/device/head_gate_generic.cuh"
#include "ops/indexer_k/device/indexer_k_generic.cuh"
#include "ops/indexer_q/device/indexer_q_generic.cuh"
#include "ops/indexer_score/device/indexer_score_generic.cuh"
#include "ops/main_q/device/main_q_generic.cuh"
#include "ops/q_absorb/device/q_absorb_generic.cuh"
#include "ops/qkv_a/device/qkv_a_generic.cuh"
#include "ops/rmsnorm/device/rmsnorm_generic.cuh"
#include "ops/rmsnorm_quant/device/rmsnorm_quant_generic.cuh"

namespace megartp::test {
namespace {

// The parameter struct, as the launch layer packs it; generic kernels take no tensor maps.
std::vector<std::byte> pack(const DeviceKernel& kernel, const TensorAddress& address_of) {
  std::vector<std::byte> bytes;
  const auto append = [&](const void* value, size_t size) {
    bytes.resize((bytes.size() + size - 1) / size * size);
    const auto* from = static_cast<const std::byte*>(value);
    bytes.insert(bytes.end(), from, from + size);
  };
  for (const DeviceParam& p : kernel.params) {
    void* address = p.kind == DeviceParam::Kind::kPointer ? address_of(p.tensor) : nullptr;
    if (p.kind == DeviceParam::Kind::kPointer) {
      append(&address, sizeof address);
    } else {
      append(&p.value, sizeof p.value);
    }
  }
  bytes.resize((bytes.size() + 7) / 8 * 8);
  return bytes;
}

using Run = void (*)(const DeviceKernel&, const std::vector<std::byte>&);

template <class P, void (*kKernel)(P)>
void run(const DeviceKernel& kernel, const std::vector<std::byte>& bytes) {
  P params;
  if (bytes.size() != sizeof params) std::abort();
  std::memcpy(&params, bytes.data(), sizeof params);
  emulate::Cta::get().launch({kernel.grid[0], kernel.grid[1], 1}, kernel.block, [&] { kKernel(params); });
}

const std::map<std::string_view, Run>& kernels() {
  using namespace device;
  static const std::map<std::string_view, Run> all{
      {"megartp::device::add_generic<$WAIT>", run<AddParams, add_generic<2>>},
      {"megartp::device::gemm_generic<$WAIT>", run<GemmParams, gemm_generic<2>>},
      {"megartp::device::rmsnorm_generic<$WAIT>", run<RmsnormParams, rmsnorm_generic<2>>},
      {"megartp::device::rmsnorm_quant_generic<$WAIT>", run<RmsnormQuantGenericParams, rmsnorm_quant_generic<2>>},
      {"megartp::device::head_gate_generic<$WAIT>", run<HeadGateGenericParams, head_gate_generic<2>>},
      {"megartp::device::fp8_gemm_generic<$WAIT>", run<Fp8GemmGenericParams, fp8_gemm_generic<2>>},
      {"megartp::device::qkv_a_generic<$WAIT>", run<QkvAGenericParams, qkv_a_generic<2>>},
      {"megartp::device::indexer_k_generic<$WAIT>", run<IndexerKGenericParams, indexer_k_generic<2>>},
      {"megartp::device::indexer_q_generic<$WAIT>", run<IndexerQGenericParams, indexer_q_generic<2>>},
      {"megartp::device::main_q_generic<$WAIT>", run<MainQGenericParams, main_q_generic<2>>},
      {"megartp::device::q_absorb_generic<$WAIT>", run<QAbsorbGenericParams, q_absorb_generic<2>>},
      {"megartp::device::indexer_score_generic<$WAIT>", run<IndexerScoreGenericParams, indexer_score_generic<2>>},
  };
  return all;
}

}  // namespace

bool emulate_kernel(const DeviceKernel& kernel, const TensorAddress& address_of) {
  const auto found = kernels().find(kernel.entry);
  if (found == kernels().end()) return false;
  found->second(kernel, pack(kernel, address_of));
  return true;
}

}  // namespace megartp::test
