#define MEGARTP_ABSORB_TILE absorb_tile_baseline
#include "ops/common/absorb_cpu_kernel.inc"
