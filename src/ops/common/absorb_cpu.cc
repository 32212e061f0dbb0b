#include "ops/common/absorb_cpu.h"

#include <array>

namespace megartp::ops {

void absorb_tile_baseline(const AbsorbArgs& args, std::byte* scratch);
#ifdef MEGARTP_HAVE_X86_64_V3
void absorb_tile_v3(const AbsorbArgs& args, std::byte* scratch);
#endif

std::span<const AbsorbTileFn> absorb_tile_variants() {
#ifdef MEGARTP_HAVE_X86_64_V3
  static const std::array<AbsorbTileFn, 2> kVariants{absorb_tile_baseline, absorb_tile_v3};
  static const bool kHasV3 =
      __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && __builtin_cpu_supports("bmi2") != 0;
  return std::span(kVariants).first(kHasV3 ? 2 : 1);
#else
  static const std::array<AbsorbTileFn, 1> kVariants{absorb_tile_baseline};
  return kVariants;
#endif
}

void absorb_tile(const AbsorbArgs& args, std::byte* scratch) {
  static const AbsorbTileFn kBest = absorb_tile_variants().back();
  kBest(args, scratch);
}

}  // namespace megartp::ops
