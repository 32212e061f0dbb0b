// The persistent kernel: roles and their loops over the queue. An op is a type with
//
//   MegaOpcodes<...>, a base                        the opcodes that it does
//   static constexpr bool kHasXScales;              a GEMM: load_activations() fills a buffer of x scales, and all
//                                                   lanes in load_weights() arrive at w_scales_full
//   static void load_weights(MegaContext&);         weight loader; never waits for inputs
//   static void load_activations(MegaContext&);     activation loader; the instruction's events are complete
//   static void consume(MegaContext&);              by all consumer warps; waits for inputs_ready itself before it
//                                                   reads or writes what other instructions touch; a warp that
//                                                   touches nothing need not
//
// Pages of an instruction: MegaContext::pages and the MegaRecord::num_pages - 1 behind it. Whoever takes a page fills
// it once and every consumer warp releases it once, whatever the tile has to do.
//
// Roles are inlined by force: nvcc 13.0 makes a function of the consumers when there are many ops, which costs their
// registers (1328 bytes of local memory for attention-pre) and serialises wgmma.
#pragma once

#include "device/mega/frame.cuh"

namespace megartp::device {

template <class... Ops>
struct MegaOps {};

struct WeightsRole {
  template <class Op>
  __device__ __forceinline__ static void run(MegaContext& c) {
    c.mark(&abi::MegaTraceRecord::weights_begin);
    Op::load_weights(c);
    c.mark(&abi::MegaTraceRecord::weights_end);
    // Each use of a slot turns its barriers once.
    if (!Op::kHasXScales) mbarrier_arrive(&c.s.bar.w_scales_full[c.slot()]);
  }
};
struct ActivationsRole {
  template <class Op>
  __device__ __forceinline__ static void run(MegaContext& c) {
    Op::load_activations(c);
    if (Op::kHasXScales) ++c.scale_uses;
  }
};
struct ConsumerRole {
  template <class Op>
  __device__ __forceinline__ static void run(MegaContext& c) {
    Op::consume(c);
    if (Op::kHasXScales) ++c.scale_uses;
  }
};

template <class Role, class... Ops>
__device__ __forceinline__ void dispatch(MegaContext& c, MegaOps<Ops...>) {
  const uint32_t opcode = c.instruction().opcode;
  (void)((Ops::has(opcode) && (Role::template run<Ops>(c), true)) || ...);
}

// False at the end of the queue.
__device__ inline bool next_instruction(MegaContext& c) {
  if (c.index >= c.p.depth) return false;
  c.wait(&c.s.bar.slot_full[c.slot()], c.slot_parity());
  return c.instruction().opcode != abi::kOpcodeNoOp;  // the rest is padding
}
__device__ inline void finish_instruction(MegaContext& c) {
  c.pages.advance(c.record().num_pages);
  __syncwarp();
  if (lane_index() == 0) mbarrier_arrive(&c.s.bar.slot_empty[c.slot()]);
  ++c.index;
}

// A record is 40 words: lane i has words i and 32 + i.
__device__ __forceinline__ void run_controller(MegaContext& c) {
  const uint32_t lane = lane_index();
  const auto* words = reinterpret_cast<const uint32_t*>(c.p.records + uint64_t{blockIdx.x} * c.p.depth);
  constexpr uint32_t kWords = sizeof(abi::MegaRecord) / 4;
  static_assert(kWords > 32 && kWords <= 64);
  uint32_t low[kMegaSlots];
  uint32_t high[kMegaSlots];
#pragma unroll
  for (uint32_t i = 0; i < kMegaSlots; ++i) {
    low[i] = i < c.p.depth ? words[i * kWords + lane] : 0;
    high[i] = i < c.p.depth && lane < kWords - 32 ? words[i * kWords + 32 + lane] : 0;
  }
  while (c.index < c.p.depth) {
#pragma unroll
    for (uint32_t i = 0; i < kMegaSlots; ++i) {
      if (c.index >= c.p.depth) break;
      c.wait(&c.s.bar.slot_empty[i], c.slot_parity() ^ 1);
      const uint32_t opcode = __shfl_sync(0xffffffffU, low[i], 0);
      auto* to = reinterpret_cast<uint32_t*>(&c.s.slots[i]);
      to[lane] = low[i];
      if (lane < kWords - 32) to[32 + lane] = high[i];
      const uint32_t next = c.index + kMegaSlots;
      if (next < c.p.depth) {
        low[i] = words[next * kWords + lane];
        if (lane < kWords - 32) high[i] = words[next * kWords + 32 + lane];
      }
      __syncwarp();
      if (lane == 0) mbarrier_arrive(&c.s.bar.slot_full[i]);
      // Nobody takes more than one of the NoOps that pad the queue.
      if (opcode == abi::kOpcodeNoOp) return;
      ++c.index;
    }
  }
}

template <class Ops>
__device__ __forceinline__ void run_weight_loader(MegaContext& c) {
  for (; next_instruction(c); finish_instruction(c)) {
    fuzz_delay(11);
    dispatch<WeightsRole>(c, Ops{});
  }
}

// Lane i polls wait i.
__device__ inline void wait_events(MegaContext& c) {
  const abi::MegaRecord& r = c.record();
  const uint32_t lane = lane_index();
  const bool has_wait = lane < abi::num_waits(r.instruction);
  const uint64_t* counter = nullptr;
  uint64_t target = 0;
  if (has_wait) {
    const abi::Wait w = r.instruction.waits[lane];
    counter = c.p.counters + uint64_t{w.event} * abi::kMegaCounterStride;
    target = w.threshold + c.epoch * r.wait_total[lane];
  }
  uint64_t value = 0;
  // With the fence behind the last look: pairs with the fence in run_publisher(), which orders all that the consumers
  // wrote. Looks are relaxed, because each acquire empties the SM's first cache.
  const auto look = [&]() {
    if (has_wait) asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
    return __all_sync(0xffffffffU, !has_wait || value >= target) != 0;
  };
  const auto is_complete = [&]() {
    if (!look()) return false;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    return true;
  };
  if (is_complete()) return;
  const uint64_t begin = global_timer();
  for (uint32_t i = 1; !is_complete(); ++i) {
    if (i % 16 != 0) continue;
    const bool is_late = __shfl_sync(0xffffffffU, global_timer() - begin > c.p.deadline_ns ? 1 : 0, 0) != 0;
    if (!is_late && !mega_stopped(c.p.stop)) continue;
    // The first wait that is not complete.
    const uint32_t open = __ballot_sync(0xffffffffU, has_wait && value < target);
    const uint32_t first = open == 0 ? 0 : __ffs(open) - 1;
    const uint64_t seen = __shfl_sync(0xffffffffU, value, first);
    const abi::Wait w = r.instruction.waits[first];
    const uint64_t before = c.epoch * r.wait_total[first];
    const MegaPlace at{c.index, abi::kFaultPhaseWaiting, first, w.event, w.threshold, seen - before, c.epoch};
    mega_fail(c.p.faults, c.p.stop, c.s, at, is_late);
  }
}

template <class Ops>
__device__ __forceinline__ void run_activation_loader(MegaContext& c) {
  c.epoch = c.p.epochs[uint64_t{blockIdx.x} * abi::kMegaCounterStride];
  const bool is_stopped = mega_stopped(c.p.stop);
  for (; next_instruction(c); finish_instruction(c)) {
    if (is_stopped) mega_fail(c.p.faults, c.p.stop, c.s, {c.index, abi::kFaultPhaseIdle}, false);
    fuzz_delay(12);
    wait_events(c);
    __syncwarp();  // every lane's fence comes before the one arrival
    if (lane_index() == 0) mbarrier_arrive(&c.s.bar.inputs_ready[c.slot()]);
    c.mark(&abi::MegaTraceRecord::ready);
    dispatch<ActivationsRole>(c, Ops{});
  }
}

template <class Ops>
__device__ __forceinline__ void run_consumer(MegaContext& c) {
  while (next_instruction(c)) {
    fuzz_delay(13);
    c.consumer_mark(&abi::MegaTraceRecord::visible);
    dispatch<ConsumerRole>(c, Ops{});
    c.consumer_mark(&abi::MegaTraceRecord::computed);
    // Nothing is done before its events, whatever the op had to do.
    c.wait_inputs_ready();
    __syncwarp();
    // release: what this warp has stored, to the publisher.
    if (lane_index() == 0) mbarrier_arrive(&c.s.bar.done[c.slot()]);
    finish_instruction(c);
  }
}

__device__ __forceinline__ void run_publisher(MegaContext& c) {
  const uint32_t lane = lane_index();
  for (; next_instruction(c); finish_instruction(c)) {
    c.wait(&c.s.bar.done[c.slot()], c.slot_parity());
    fuzz_delay(14);
    const abi::Instruction& i = c.instruction();
    if (lane < abi::num_signals(i) && i.task_id != c.p.lose_signals_of) {
      // The fence pairs with the one in wait_events(); cumulative over what the consumers handed over.
      const uint64_t inc = abi::increment(i.signals[lane]);
      uint64_t* counter = c.p.counters + uint64_t{i.signals[lane].event} * abi::kMegaCounterStride;
      asm volatile("fence.acq_rel.gpu;\n red.relaxed.gpu.global.add.u64 [%0], %1;" ::"l"(counter), "l"(inc) : "memory");
    }
    c.mark(&abi::MegaTraceRecord::done);
  }
  // Everything of this worker is done; its activation loader has read the old number long ago.
  if (lane == 0) {
    uint64_t* epoch = c.p.epochs + uint64_t{blockIdx.x} * abi::kMegaCounterStride;
    *epoch = *epoch + 1;
  }
}

// Grid: num_workers CTAs, all resident. kMegaThreads, abi::kMegaSmemBytes.
template <class Ops>
__global__ void __launch_bounds__(kMegaThreads, abi::kMegaCtasPerSm)
    mega_kernel(const __grid_constant__ abi::MegaParams p) {
  extern __shared__ uint8_t dynamic[];
  MegaShared& s = *reinterpret_cast<MegaShared*>(dynamic + ((1024 - (shared_address(dynamic) & 1023U)) & 1023U));
  const uint32_t warp = warp_index();
  if (threadIdx.x == 0) {
    for (uint32_t i = 0; i < kMegaPages; ++i) {
      mbarrier_init(&s.bar.page_full[i], 1);
      for (uint32_t use = 0; use < kMegaPageUses; ++use) mbarrier_init(&s.bar.page_empty[i][use], kMegaConsumerWarps);
    }
    for (uint32_t i = 0; i < kMegaSlots; ++i) {
      mbarrier_init(&s.bar.slot_full[i], 1);
      mbarrier_init(&s.bar.slot_empty[i], kMegaConsumerWarps + 3);
      mbarrier_init(&s.bar.inputs_ready[i], 1);
      mbarrier_init(&s.bar.w_scales_full[i], 32);
      mbarrier_init(&s.bar.done[i], kMegaConsumerWarps);
    }
    for (uint32_t i = 0; i < kMegaScaleBuffers; ++i) {
      mbarrier_init(&s.bar.scales_full[i], 32);
      mbarrier_init(&s.bar.scales_empty[i], kMegaConsumerWarps);
    }
    mbarrier_init(&s.bar.group, kMegaConsumerWarps);
    s.failed = 0;
    mbarrier_init_fence();
  }
  __syncthreads();
  fuzz_delay(10);
  // The loaders' registers go to the consumers, a warpgroup at a time.
  if (warp < kMegaConsumerWarps) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    MegaContext c{p, s, 0};
    return run_consumer<Ops>(c);
  }
  asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
  MegaContext c{p, s, 0};
  switch (warp) {
    case kMegaConsumerWarps: return run_controller(c);
    case kMegaConsumerWarps + 1: return run_weight_loader<Ops>(c);
    case kMegaConsumerWarps + 2: return run_activation_loader<Ops>(c);
    default: return run_publisher(c);
  }
}

}  // namespace megartp::device
