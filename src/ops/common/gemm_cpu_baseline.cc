// The tile kernels for any machine.
#define MEGARTP_KERNEL_TABLE kGemmKernelsBaseline
#define MEGARTP_KERNEL_NAME "baseline"
#include "ops/common/gemm_cpu_impl.inc"
