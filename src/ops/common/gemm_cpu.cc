#include "ops/common/gemm_cpu.h"

#include <cstdio>
#include <cstdlib>
#include <vector>

#include "ops/common/gemm_cpu_kernels.h"

namespace megartp::ops {
namespace {

std::vector<const GemmKernels*> find_usable() {
  std::vector<const GemmKernels*> usable;
#ifdef MEGARTP_HAVE_X86_64_V3
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") &&
      __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2"))
    usable.push_back(&kGemmKernelsV3);
#endif
  usable.push_back(&kGemmKernelsBaseline);
  return usable;
}

const GemmKernels& best() { return *usable_gemm_kernels().front(); }

// Scratch comes from our own code, never from input.
void check_scratch(std::span<std::byte> scratch) {
  if (scratch.size() >= static_cast<size_t>(kGemmScratchBytes) && reinterpret_cast<uintptr_t>(scratch.data()) % 64 == 0)
    return;
  std::fputs("megartp: gemm tile called with too little or unaligned scratch\n", stderr);
  std::abort();
}

}  // namespace

std::span<const GemmKernels* const> usable_gemm_kernels() {
  static const std::vector<const GemmKernels*> usable = find_usable();
  return usable;
}

void fp8_gemm_tile(const Fp8GemmArgs& args, std::span<std::byte> scratch) {
  check_scratch(scratch);
  best().gemm_fp8(args, scratch.data());
}

void bf16_gemm_tile(const Bf16GemmArgs& args, std::span<std::byte> scratch) {
  check_scratch(scratch);
  best().gemm_bf16(args, scratch.data());
}

void decode_e4m3(const e4m3* in, int64_t count, float* out) { best().decode_e4m3(in, count, out); }
void decode_bf16(const bf16* in, int64_t count, float* out) { best().decode_bf16(in, count, out); }

}  // namespace megartp::ops
