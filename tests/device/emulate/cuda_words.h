// CUDA's words on the host, enough for the generic kernels: a CTA is a set of fibers on one thread that switch at
// barriers and shuffles. Slow, deterministic, and no test of races: it shows what a kernel computes.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __launch_bounds__(...)
#define __grid_constant__
#define __shared__ static

struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};

namespace emulate {

struct Index {
  uint32_t x = 0, y = 0, z = 0;
};

class Cta {
 public:
  static Cta& get() {
    static Cta cta;
    return cta;
  }
  // Runs the body in every thread of every CTA of the grid.
  void launch(Index grid, uint32_t block, const std::function<void()>& body);
  void barrier() { stop(State::kAtBarrier); }
  float exchange(float value, uint32_t lane_mask);

  Index thread, cta, grid;

 private:
  enum class State : uint8_t { kReady, kAtBarrier, kAtShuffle, kDone };
  struct Fiber {
    ucontext_t context{};
    std::unique_ptr<char[]> stack;
    State state = State::kReady;
    uint32_t num_shuffles = 0;
    float sent[2] = {};
  };
  static constexpr size_t kStackBytes = size_t{64} << 10;
  static constexpr uint32_t kWarp = 32;

  static void enter();
  void run_cta();
  bool release();
  void stop(State state);
  Fiber& me() { return fibers_[thread.x]; }

  std::vector<Fiber> fibers_;
  ucontext_t scheduler_{};
  const std::function<void()>* body_ = nullptr;
};

inline void Cta::enter() {
  Cta& c = get();
  (*c.body_)();
  c.stop(State::kDone);
}

inline void Cta::stop(State state) {
  Fiber& f = me();
  f.state = state;
  swapcontext(&f.context, &scheduler_);
}

inline float Cta::exchange(float value, uint32_t lane_mask) {
  Fiber& f = me();
  const uint32_t slot = f.num_shuffles++ % 2;
  f.sent[slot] = value;
  stop(State::kAtShuffle);
  return fibers_[thread.x ^ lane_mask].sent[slot];
}

// Lets warps go on whose lanes are all at a shuffle, or the CTA when all its threads are at a barrier or done.
inline bool Cta::release() {
  bool any = false;
  for (size_t first = 0; first < fibers_.size(); first += kWarp) {
    const auto begin = fibers_.begin() + static_cast<std::ptrdiff_t>(first);
    if (!std::all_of(begin, begin + kWarp, [](const Fiber& f) { return f.state == State::kAtShuffle; })) continue;
    std::for_each(begin, begin + kWarp, [](Fiber& f) { f.state = State::kReady; });
    any = true;
  }
  if (any) return true;
  for (Fiber& f : fibers_)
    if (f.state == State::kAtShuffle) return false;  // its warp will never be complete
  for (Fiber& f : fibers_) {
    if (f.state != State::kAtBarrier) continue;
    f.state = State::kReady;
    any = true;
  }
  return any;
}

inline void Cta::run_cta() {
  for (Fiber& f : fibers_) {
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = f.stack.get();
    f.context.uc_stack.ss_size = kStackBytes;
    f.context.uc_link = nullptr;
    f.state = State::kReady;
    f.num_shuffles = 0;
    makecontext(&f.context, &Cta::enter, 0);
  }
  do {
    for (uint32_t t = 0; t < fibers_.size(); ++t) {
      if (fibers_[t].state != State::kReady) continue;
      thread.x = t;
      swapcontext(&scheduler_, &fibers_[t].context);
    }
  } while (release());
  for (const Fiber& f : fibers_) {
    if (f.state == State::kDone) continue;
    std::fputs("emulate: lanes of a warp do not meet at a shuffle\n", stderr);
    std::abort();
  }
}

inline void Cta::launch(Index size, uint32_t block, const std::function<void()>& body) {
  fibers_ = std::vector<Fiber>(block);
  for (Fiber& f : fibers_) f.stack = std::make_unique<char[]>(kStackBytes);
  body_ = &body;
  grid = size;
  for (cta.y = 0; cta.y < size.y; ++cta.y)
    for (cta.x = 0; cta.x < size.x; ++cta.x) run_cta();
}

}  // namespace emulate

#define threadIdx (emulate::Cta::get().thread)
#define blockIdx (emulate::Cta::get().cta)
#define gridDim (emulate::Cta::get().grid)

inline void __syncthreads() { emulate::Cta::get().barrier(); }
inline float __shfl_xor_sync(uint32_t, float v, int mask) {
  return emulate::Cta::get().exchange(v, static_cast<uint32_t>(mask));
}
inline uint32_t __float_as_uint(float v) { return __builtin_bit_cast(uint32_t, v); }
inline float __uint_as_float(uint32_t v) { return __builtin_bit_cast(float, v); }
inline float __int_as_float(int32_t v) { return __builtin_bit_cast(float, v); }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fsqrt_rn(float a) { return std::sqrt(a); }
using std::min;
