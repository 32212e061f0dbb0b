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

// The worker's fault record: the warp `by` gave up, or, as a bystander, was told to leave.
__device__ inline void write_fault(const MegaContext& c, uint32_t by, uint32_t index, uint32_t kind) {
  const MegaWatch& watch = c.s.watch;
  const bool has_wait = mega_role(by) == abi::kFaultRoleActivationLoader && watch.has_wait != 0;
  const bool has_begun = index < c.index;  // else it waited for the instruction
  const abi::Instruction& i = c.s.slots[index % kMegaSlots].instruction;
  abi::FaultRecord& r = static_cast<abi::FaultRecord*>(c.p.faults)[blockIdx.x];
  r.kind = kind;
  r.role = mega_role(by);
  r.worker = blockIdx.x;
  r.slot = index;
  r.task_id = has_begun ? i.task_id : abi::kFaultNone;
  r.opcode = has_begun ? i.opcode : abi::kFaultNone;
  r.operand_row = has_begun ? i.operand_row : abi::kFaultNone;
  r.phase = has_wait ? abi::kFaultPhaseWaiting : has_begun ? abi::kFaultPhaseRunning : abi::kFaultPhaseIdle;
  r.wait_idx = has_wait ? watch.wait_idx : abi::kFaultNone;
  r.event = has_wait ? watch.event : abi::kFaultNone;
  r.expected = has_wait ? watch.expected : 0;
  r.actual = has_wait ? watch.actual : 0;
  r.epoch = c.p.epochs[uint64_t{blockIdx.x} * abi::kMegaCounterStride] + 1;
}
// Everybody leaves at the next wait; of the roles that another worker stopped only the activation loader's note becomes
// a record: it knows the event. `by`: who is late, or kFaultNone.
__device__ inline void end_worker(MegaContext& c, uint32_t by, uint32_t index) {
  MegaWatch& watch = c.s.watch;
  const auto note_of = [&](uint32_t warp) { return *const_cast<volatile uint32_t*>(&watch.notes[warp]); };
  if (by != abi::kFaultNone) {
    write_fault(c, by, index, abi::kFaultDeadline);
    __threadfence_system();
    atomicExch(c.p.stop, 1U);
  }
  *const_cast<volatile uint32_t*>(&watch.ticks) = kMegaLeave;
  const uint64_t begin = global_timer();
  while (!mbarrier_test_wait(&watch.left, 0) && global_timer() - begin < c.p.deadline_ns) __nanosleep(1000);
  const uint32_t note = note_of(kMegaActivationWarp);
  __threadfence_block();  // pairs with the fence in wait_events()
  if (by == abi::kFaultNone && note != 0) write_fault(c, kMegaActivationWarp, note & ~kMegaNote, abi::kFaultBystander);
  __threadfence_system();
  // Copies that are on their way must not find another CTA's shared memory.
  const uint64_t end = global_timer() + 100000;
  while (global_timer() < end) {
  }
}
// The warp that has given up, the activation loader's before others', because it names an event, and its place in the
// queue; or kFaultNone.
__device__ inline uint32_t who_gave_up(const MegaWatch& watch, uint32_t& index) {
  uint32_t by = abi::kFaultNone;
#pragma unroll 1
  for (uint32_t w = 0; w < sizeof watch.notes / sizeof watch.notes[0]; ++w) {
    const uint32_t note = *const_cast<const volatile uint32_t*>(&watch.notes[w]);
    if (note == 0 || (by != abi::kFaultNone && w != kMegaActivationWarp)) continue;
    by = w;
    index = note & ~kMegaNote;
  }
  return by;
}
// The controller's slow wait, by one lane: true when the worker has to end, and all is done for that. Looks at the
// barrier several times a microsecond, at what else there is to see now and then.
__device__ inline bool watch_worker(MegaContext& c, uint64_t* bar, uint32_t parity) {
  constexpr uint32_t kLooks = 64;
  MegaWatch& watch = c.s.watch;
  uint64_t last = global_timer();
  uint32_t ticks = 0;  // of this wait
  // Before the end the instructions of all slots may wait for an event and for data, one after the other.
  const uint32_t deadlines = bar == &watch.left ? 3 * kMegaSlots : 2;
  for (uint32_t i = 1; !mbarrier_test_wait(bar, parity); ++i) {
    __nanosleep(50);
    if (i % kLooks != 0) continue;
    uint32_t index = c.index;
    uint32_t by = who_gave_up(watch, index);
    const uint64_t now = global_timer();
    if (now - last >= c.p.deadline_ns / kMegaTicks) {
      last = now;
      *const_cast<volatile uint32_t*>(&watch.ticks) = watch.ticks + 1;
      // Those who wait for something else would have left a note before.
      if (++ticks > deadlines * kMegaTicks + 2 && by == abi::kFaultNone) by = kMegaControllerWarp;
    }
    if (by == abi::kFaultNone && !mega_stopped(c.p.stop)) continue;
    __threadfence_block();  // pairs with the fence in wait_events()
    end_worker(c, by, index);
    return true;
  }
  return false;
}
// By one lane, when all others have ended: they may have ended by giving up, all at once.
__device__ inline void look_once_more(MegaContext& c) {
  uint32_t index = 0;
  const uint32_t by = who_gave_up(c.s.watch, index);
  if (by == abi::kFaultNone) return;
  __threadfence_block();  // pairs with the fence in wait_events()
  end_worker(c, by, index);
}

// A record is 40 words: lane i has words i and 32 + i. Stays until all others have ended.
__device__ __forceinline__ void run_controller(MegaContext& c) {
  const uint32_t lane = lane_index();
  const auto* words = reinterpret_cast<const uint32_t*>(c.p.records + uint64_t{blockIdx.x} * c.p.depth);
  constexpr uint32_t kWords = sizeof(abi::MegaRecord) / 4;
  static_assert(kWords > 32 && kWords <= 64);
  // After a run that failed nobody begins.
  const bool is_stopped = mega_stopped(c.p.stop);
  uint32_t low[kMegaSlots];
  uint32_t high[kMegaSlots];
#pragma unroll
  for (uint32_t i = 0; i < kMegaSlots; ++i) {
    low[i] = i < c.p.depth ? words[i * kWords + lane] : 0;
    high[i] = i < c.p.depth && lane < kWords - 32 ? words[i * kWords + 32 + lane] : 0;
  }
  for (bool has_more = c.p.depth > 0 && !is_stopped;;) {
    uint64_t* bar = has_more ? &c.s.bar.slot_empty[c.slot()] : &c.s.watch.left;
    const uint32_t parity = has_more ? c.slot_parity() ^ 1 : 0;
    const bool is_over = !mbarrier_test_wait(bar, parity) && lane == 0 && watch_worker(c, bar, parity);
    __syncwarp();  // what lane 0 saw all may rely on
    if (__any_sync(0xffffffffU, is_over) != 0) return;
    if (!has_more) {
      if (lane == 0) look_once_more(c);
      return;
    }
    const uint32_t next = c.index + kMegaSlots;
    uint32_t opcode = 0;
#pragma unroll
    for (uint32_t i = 0; i < kMegaSlots; ++i) {
      if (c.slot() != i) continue;
      opcode = __shfl_sync(0xffffffffU, low[i], 0);
      auto* to = reinterpret_cast<uint32_t*>(&c.s.slots[i]);
      to[lane] = low[i];
      if (lane < kWords - 32) to[32 + lane] = high[i];
      if (next < c.p.depth) {
        low[i] = words[next * kWords + lane];
        if (lane < kWords - 32) high[i] = words[next * kWords + 32 + lane];
      }
    }
    __syncwarp();
    if (lane == 0) mbarrier_arrive(&c.s.bar.slot_full[c.slot()]);
    ++c.index;
    // Nobody takes more than one of the NoOps that pad the queue.
    has_more = opcode != abi::kOpcodeNoOp && c.index < c.p.depth;
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
  // Acquires: pairs with the release in run_publisher(), which covers all that the consumers wrote. Each look empties
  // the SM's first cache, where hardly anything is read twice; a relaxed look with a fence behind the last one took an
  // event 0.3 us more.
  const auto is_complete = [&]() {
    if (has_wait) asm volatile("ld.acquire.gpu.global.u64 %0, [%1];" : "=l"(value) : "l"(counter) : "memory");
    return __all_sync(0xffffffffU, !has_wait || value >= target) != 0;
  };
  if (is_complete()) return;
  const uint32_t last = mega_last_tick(c.s, 1);
  for (uint32_t i = 1; !is_complete(); ++i) {
    if (i % 16 != 0 || __shfl_sync(0xffffffffU, mega_ticks(c.s), 0) <= last) continue;
    // The first wait that is not complete.
    const uint32_t open = __ballot_sync(0xffffffffU, has_wait && value < target);
    if (lane == (open == 0 ? 0 : __ffs(open) - 1)) {
      MegaWatch& watch = c.s.watch;
      watch.wait_idx = lane;
      watch.event = r.instruction.waits[lane].event;
      watch.expected = r.instruction.waits[lane].threshold;
      watch.actual = value - c.epoch * r.wait_total[lane];
      watch.has_wait = 1;
      __threadfence_block();  // before the note: pairs with the fences of the controller
    }
    __syncwarp();
    mega_leave(c.index);
  }
}

template <class Ops>
__device__ __forceinline__ void run_activation_loader(MegaContext& c) {
  c.epoch = c.p.epochs[uint64_t{blockIdx.x} * abi::kMegaCounterStride];
  for (; next_instruction(c); finish_instruction(c)) {
    fuzz_delay(12);
    wait_events(c);
    __syncwarp();  // every lane's acquire comes before the one arrival
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
    const abi::Instruction& i = c.instruction();
    // Asked here, where there is time.
    const bool is_lost = i.task_id == c.p.lose_results_of;
    mega_wait_until(c.s, c.index,
                    [&] { return !is_lost && mbarrier_try_wait(&c.s.bar.done[c.slot()], c.slot_parity()); });
    fuzz_delay(14);
    if (lane < abi::num_signals(i) && i.task_id != c.p.lose_signals_of) {
      // Pairs with the acquire in wait_events(); cumulative over what the consumers handed over.
      const uint64_t inc = abi::increment(i.signals[lane]);
      uint64_t* counter = c.p.counters + uint64_t{i.signals[lane].event} * abi::kMegaCounterStride;
      asm volatile("red.release.gpu.global.add.u64 [%0], %1;" ::"l"(counter), "l"(inc) : "memory");
    }
    c.mark(&abi::MegaTraceRecord::done);
  }
  // Everything of this worker is done; its activation loader has read the old number long ago.
  if (lane == 0) {
    uint64_t* epoch = c.p.epochs + uint64_t{blockIdx.x} * abi::kMegaCounterStride;
    *epoch = *epoch + 1;
  }
}

__device__ inline void init_barriers(MegaShared& s, uint32_t page_uses) {
  // What mega_leave_here() takes for granted. The compiler can tell (NVRTC has no offsetof), and nothing is left of it.
  const auto is_at = [&](const void* p, uint32_t at) { return p == reinterpret_cast<const uint8_t*>(&s) + at; };
  if (!is_at(&s.watch, kMegaWatchAt) || !is_at(&s.watch.left, kMegaLeftAt) || !is_at(s.watch.notes, kMegaNotesAt))
    __trap();
  for (uint32_t i = 0; i < kMegaPages; ++i) mbarrier_init(&s.bar.page_full[i], 1);
  // Not more than the run needs: each takes some 5 ns, in straight code.
  const auto init_uses = [&](uint32_t begin, uint32_t end) {
    if (begin >= page_uses) return;
#pragma unroll
    for (uint32_t i = 0; i < kMegaPages; ++i)
#pragma unroll
      for (uint32_t use = begin; use < end; ++use) mbarrier_init(&s.bar.page_empty[i][use], kMegaConsumerWarps);
  };
  init_uses(0, 4);
  init_uses(4, 8);
  init_uses(8, kMegaPageUses);
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
  s.watch = {};
  mbarrier_init(&s.watch.left, kMegaThreads - 32);
  mbarrier_init_fence();
}

// Grid: num_workers CTAs, all resident. kMegaThreads, abi::kMegaSmemBytes.
template <class Ops>
__global__ void __launch_bounds__(kMegaThreads, abi::kMegaCtasPerSm)
    mega_kernel(const __grid_constant__ abi::MegaParams p) {
  // Plus a zero that the compiler does not know: else it gets the address anew, slowly, in a hundred places.
  MegaShared& s = *reinterpret_cast<MegaShared*>(megartp_mega_shared + p.zero);
  mega_leave_here();
  const uint32_t warp = warp_index();
  if (threadIdx.x == 0) {
    init_barriers(s, p.page_uses);
    if ((shared_address(megartp_mega_shared) & 1023U) != 0) __trap();  // as the copy engine and wgmma swizzle
  }
  __syncthreads();
  fuzz_delay(10);
  // The loaders' registers go to the consumers, a warpgroup at a time.
  if (warp < kMegaConsumerWarps) {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    MegaContext c{p, s};
    run_consumer<Ops>(c);
  } else {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    MegaContext c{p, s};
    switch (warp) {
      case kMegaControllerWarp: return run_controller(c);
      case kMegaWeightWarp: run_weight_loader<Ops>(c); break;
      case kMegaActivationWarp: run_activation_loader<Ops>(c); break;
      default: run_publisher(c);
    }
  }
  mbarrier_arrive(&s.watch.left);
}

}  // namespace megartp::device
