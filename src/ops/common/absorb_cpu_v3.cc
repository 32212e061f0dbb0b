#define MEGARTP_ABSORB_TILE absorb_tile_v3
#include "ops/common/absorb_cpu_kernel.inc"
