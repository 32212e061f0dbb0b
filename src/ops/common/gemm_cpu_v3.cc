// The tile kernels for x86-64-v3 (AVX2, FMA, F16C); this file alone is compiled with -march=x86-64-v3.
#define MEGARTP_KERNEL_TABLE kGemmKernelsV3
#define MEGARTP_KERNEL_NAME "x86-64-v3"
#include "ops/common/gemm_cpu_impl.inc"
