// The frame of the persistent kernel: one CTA an SM walks a queue of instructions. It knows no op; ops are types with
// a function for each role (mega_kernel.cuh).
//
//   warps 0 .. 7   consumers: arithmetic, results to global memory
//   warp 8         controller: instructions into slots, ahead of everybody
//   warp 9         weight loader: weights into pages, as far ahead as there are pages
//   warp 10        activation loader: waits for the instruction's events, then activations into pages
//   warp 11        publisher: waits until the consumers are done, then signals
//
// Shared memory: pages of 16 KiB in a ring, taken in the order of the instructions (activations of one, then its
// weights). So a page's content is known from the queue alone, without a table; a page is overwritten when all
// consumer warps have released it. Five things to wait for, each with a meaning of its own: slot_full/slot_empty (an
// instruction), page_full/page_empty (data), inputs_ready (events), done (results), and event counters in global
// memory.
//
// No wait is for ever: a role whose wait takes longer than the deadline writes a fault record, stops all workers and
// leaves; so does everybody else.
#pragma once

#include "abi/fault_record.h"
#include "abi/mega.h"
#include "device/frame.cuh"
#include "device/ptx.cuh"

namespace megartp::device {

inline constexpr uint32_t kMegaPages = 13;
inline constexpr uint32_t kMegaPageBytes = 16384;
inline constexpr uint32_t kMegaSlots = 4;
inline constexpr uint32_t kMegaConsumerWarps = 8;
inline constexpr uint32_t kMegaConsumers = kMegaConsumerWarps * 32;
inline constexpr uint32_t kMegaThreads = kMegaConsumers + 4 * 32;
// x scales of an instruction: [K block, token]; two instructions at a time.
inline constexpr uint32_t kMegaScales = 1024;
inline constexpr uint32_t kMegaScaleBuffers = 2;
inline constexpr uint32_t kMegaWeightScales = 64;  // K blocks of an instruction at most

// Barriers of a CTA.
struct MegaBarriers {
  uint64_t page_full[kMegaPages];
  uint64_t page_empty[kMegaPages];
  uint64_t slot_full[kMegaSlots];
  uint64_t slot_empty[kMegaSlots];
  uint64_t inputs_ready[kMegaSlots];
  uint64_t w_scales_full[kMegaSlots];
  uint64_t done[kMegaSlots];
  uint64_t scales_full[kMegaScaleBuffers];
  uint64_t scales_empty[kMegaScaleBuffers];
  uint64_t group;  // of the consumers
};
struct MegaShared {
  uint8_t pages[kMegaPages][kMegaPageBytes];
  float x_scales[kMegaScaleBuffers][kMegaScales];
  float w_scales[kMegaSlots][kMegaWeightScales];
  abi::MegaRecord slots[kMegaSlots];
  float reduce[64];  // for the consumers: sums over all
  MegaBarriers bar;
  uint32_t failed;
};
inline constexpr uint32_t kMegaSmemBytes = 1024 + sizeof(MegaShared);  // aligned to 1024 by hand
static_assert(kMegaSmemBytes <= 232448, "what an SM of compute capability 9.0 gives a CTA");

struct PageCursor {
  uint32_t page = 0;
  uint32_t parity = 0;
  __device__ void advance(uint32_t n) {
    page += n;
    while (page >= kMegaPages) {
      page -= kMegaPages;
      parity ^= 1;
    }
  }
  __device__ PageCursor plus(uint32_t n) const {
    PageCursor c = *this;
    c.advance(n);
    return c;
  }
};

// What a role of one worker has at hand. All its functions are called by whole warps.
struct MegaContext {
  const abi::MegaParams& p;
  MegaShared& s;
  uint32_t role;  // abi::kFaultRole...
  uint64_t epoch;
  // Of the instruction at hand:
  uint32_t index = 0;  // in the queue
  PageCursor pages;    // its first page
  uint32_t scale_uses = 0;  // instructions before it that had x scales
  uint32_t group_parity = 0;  // of the next barrier of the consumers

  __device__ uint32_t slot() const { return index % kMegaSlots; }
  __device__ uint32_t slot_parity() const { return index / kMegaSlots & 1; }
  __device__ const abi::MegaRecord& record() const { return s.slots[slot()]; }
  __device__ const abi::Instruction& instruction() const { return record().instruction; }
  __device__ const uint32_t* payload() const { return instruction().payload; }
  template <class Spec>
  __device__ const Spec& spec() const {
    static_assert(sizeof(Spec) <= sizeof p.specs[0]);
    return *reinterpret_cast<const Spec*>(p.specs[instruction().spec_id]);
  }
  template <class T>
  __device__ T* operand(uint32_t at) const {
    return reinterpret_cast<T*>(p.operands[instruction().operand_row][at]);
  }
  // The operand row's map `which`.
  __device__ const TensorMap* map(uint32_t which) const {
    return reinterpret_cast<const TensorMap*>(&p.maps[p.row_maps[instruction().operand_row][which]]);
  }
  __device__ uint8_t* page(const PageCursor& c) const { return s.pages[c.page]; }

  // --- waits; none returns after a failure
  __device__ void wait(uint64_t* bar, uint32_t parity) {
    if (!mbarrier_try_wait(bar, parity)) wait_slowly(bar, parity);
  }
  __device__ void wait_page_full(const PageCursor& c) { wait(&s.bar.page_full[c.page], c.parity); }
  __device__ void wait_page_empty(const PageCursor& c) { wait(&s.bar.page_empty[c.page], c.parity ^ 1); }
  __device__ void wait_inputs_ready() { wait(&s.bar.inputs_ready[slot()], slot_parity()); }

  // --- consumers
  // This warp has read the page.
  __device__ void release_page(const PageCursor& c) {
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(&s.bar.page_empty[c.page]);
  }
  // A barrier of all consumers; orders shared memory.
  __device__ void sync_consumers() {
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(&s.bar.group);
    wait(&s.bar.group, group_parity);
    group_parity ^= 1;
  }

#if MEGARTP_TRACE
  __device__ abi::MegaTraceRecord& trace_record() const {
    return static_cast<abi::MegaTraceRecord*>(p.trace)[uint64_t{blockIdx.x} * p.depth + index];
  }
#endif
  // --- x scales: a ring of their own
  __device__ uint32_t scale_buffer() const { return scale_uses % kMegaScaleBuffers; }
  __device__ uint32_t scale_parity() const { return scale_uses / kMegaScaleBuffers & 1; }

  // --- failure
  // Roles whose barriers depend on events wait twice as long as whoever polls the events, so that the record names one.
  __device__ __noinline__ void wait_slowly(uint64_t* bar, uint32_t parity) {
    const uint64_t begin = global_timer();
    for (uint32_t i = 1; !mbarrier_try_wait(bar, parity); ++i) {
      if (i % 16 != 0) continue;
      if (stopped()) fail(abi::kFaultBystander, abi::kFaultPhaseRunning, abi::kFaultNone, abi::kFaultNone, 0, 0);
      if (global_timer() - begin > 2 * p.deadline_ns)
        fail(abi::kFaultDeadline, abi::kFaultPhaseRunning, abi::kFaultNone, abi::kFaultNone, 0, 0);
    }
  }
  __device__ bool stopped() const {
    uint32_t v;
    asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(p.stop) : "memory");
    return v != 0;
  }
  // Writes the worker's fault record, stops everybody and ends this warp. Of the roles that were stopped by another
  // worker only the activation loader writes: it knows the event. By whole warps.
  __device__ __noinline__ void fail(uint32_t kind, uint32_t phase, uint32_t wait_idx, uint32_t event, uint64_t expected,
                                    uint64_t actual) {
    const bool writes = kind == abi::kFaultDeadline || role == abi::kFaultRoleActivationLoader;
    if (lane_index() == 0 && writes && atomicCAS(&s.failed, 0U, 1U) == 0) {
      const abi::Instruction& i = instruction();
      abi::FaultRecord r{};
      r.kind = kind;
      r.role = role;
      r.worker = blockIdx.x;
      r.slot = index;
      r.task_id = i.task_id;
      r.opcode = i.opcode;
      r.operand_row = i.operand_row;
      r.phase = phase;
      r.wait_idx = wait_idx;
      r.event = event;
      r.expected = expected;
      r.actual = actual;
      r.epoch = epoch + 1;
      r.last_task = r.last_worker = r.last_slot = abi::kFaultNone;
      r.missing_task = r.missing_worker = r.missing_slot = abi::kFaultNone;
      static_cast<abi::FaultRecord*>(p.faults)[blockIdx.x] = r;
      __threadfence_system();
      atomicExch(p.stop, 1U);
    }
    // Copies that are on their way must not find another CTA's shared memory.
    const uint64_t end = global_timer() + 100000;
    while (global_timer() < end) {
    }
    asm volatile("exit;");
  }
};

}  // namespace megartp::device
