// The builds of the CPU tile kernels, one table each. gemm_cpu.cc chooses among them once; tests compare them.
//
// Invariant: every table computes the same bits (NaN payloads excepted).
#pragma once

#include <span>
#include <string_view>

#include "ops/common/gemm_cpu.h"

namespace megartp::ops {

struct GemmKernels {
  std::string_view name;  // "baseline", "x86-64-v3"
  // `scratch` is 64-byte aligned and holds kGemmScratchBytes.
  void (*gemm_fp8)(const Fp8GemmArgs& args, std::byte* scratch) = nullptr;
  void (*gemm_bf16)(const Bf16GemmArgs& args, std::byte* scratch) = nullptr;
  void (*decode_e4m3)(const e4m3* in, int64_t count, float* out) = nullptr;
  void (*decode_bf16)(const bf16* in, int64_t count, float* out) = nullptr;
};

inline constexpr int64_t kGemmScratchBytes = 80 * 1024;

extern const GemmKernels kGemmKernelsBaseline;
extern const GemmKernels kGemmKernelsV3;  // defined on x86-64 only

// Those that this machine can run, best first; never empty.
std::span<const GemmKernels* const> usable_gemm_kernels();

}  // namespace megartp::ops
