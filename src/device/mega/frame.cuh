// The frame of the persistent kernel: a CTA, two of which share an SM, walks a queue of instructions. It knows no op;
// ops are types with a function for each role (mega_kernel.cuh).
//
//   warps 0 .. 3   consumers, a warpgroup: arithmetic, results to global memory
//   warp 4         controller: instructions into slots, ahead of everybody
//   warp 5         weight loader: weights into pages, as far ahead as there are pages
//   warp 6         activation loader: waits for the instruction's events, then activations into pages
//   warp 7         publisher: waits until the consumers are done, then signals
//
// Shared memory: pages of 16 KiB in a ring, taken in the order of the instructions (activations of one, then its
// weights). So a page's content is known from the queue alone, without a table; a page is overwritten when all
// consumer warps have released it. Five things to wait for, each with a meaning of its own: slot_full/slot_empty (an
// instruction), page_full/page_empty (data), inputs_ready (events), done (results), and event counters in global
// memory.
//
// No wait is for ever. The controller keeps the time: its slow waits turn MegaWatch::ticks, and a role that sees too
// many of them go by in one wait leaves a note there and exits. The controller then writes the fault record, stops all
// workers and lets everybody of its own leave. So a wait has little code besides its fast path: all code is fetched
// anew again and again.
#pragma once

#include "abi/fault_record.h"
#include "abi/mega.h"
#include "device/frame.cuh"
#include "device/numeric.cuh"
#include "device/ptx.cuh"

namespace megartp::device {

using abi::kMegaPageBytes;
using abi::kMegaPages;
using abi::kMegaPageUses;
using abi::kMegaScales;
using abi::kMegaSlots;
using abi::kMegaThreads;
using abi::kMegaWeightScales;
inline constexpr uint32_t kMegaConsumerWarps = 4;
inline constexpr uint32_t kMegaConsumers = kMegaConsumerWarps * 32;
inline constexpr uint32_t kMegaControllerWarp = kMegaConsumerWarps;
inline constexpr uint32_t kMegaWeightWarp = kMegaConsumerWarps + 1;
inline constexpr uint32_t kMegaActivationWarp = kMegaConsumerWarps + 2;
static_assert(kMegaThreads == kMegaConsumers + 4 * 32);
inline constexpr uint32_t kMegaScaleBuffers = 2;  // instructions whose x scales are there at a time

// Barriers of a CTA.
struct MegaBarriers {
  uint64_t page_full[kMegaPages];
  uint64_t page_empty[kMegaPages][kMegaPageUses];  // the first page_uses of each
  uint64_t slot_full[kMegaSlots];
  uint64_t slot_empty[kMegaSlots];
  uint64_t inputs_ready[kMegaSlots];
  uint64_t w_scales_full[kMegaSlots];
  uint64_t done[kMegaSlots];
  uint64_t scales_full[kMegaScaleBuffers];
  uint64_t scales_empty[kMegaScaleBuffers];
  uint64_t group;  // of the consumers
};
// What the roles tell the controller when they give up, and it them.
struct MegaWatch {
  // Sixteen to a deadline, while the controller waits slowly: a role that waits for long makes it do so. kMegaLeave
  // joins them when all shall leave.
  uint32_t ticks;
  uint32_t has_wait;  // the activation loader waited for an event, which the words behind this one tell
  uint64_t left;      // barrier: every thread but the controller's has ended
  uint32_t notes[8];  // of a warp: kMegaNote, and where it stands in the queue; 0: has not given up
  uint32_t wait_idx;
  uint32_t event;
  uint64_t expected;
  uint64_t actual;
};
inline constexpr uint32_t kMegaLeave = 0x80000000U;
inline constexpr uint32_t kMegaNote = 0x80000000U;
inline constexpr uint32_t kMegaTicks = 16;  // of a deadline
inline constexpr uint32_t kMegaWatchAt = kMegaPages * kMegaPageBytes;
inline constexpr uint32_t kMegaLeftAt = kMegaWatchAt + 8;
inline constexpr uint32_t kMegaNotesAt = kMegaWatchAt + 16;
struct MegaShared {
  uint8_t pages[kMegaPages][kMegaPageBytes];
  MegaWatch watch;                                              // at kMegaWatchAt
  alignas(128) float x_scales[kMegaScaleBuffers][kMegaScales];  // ops that are no GEMM copy other things there
  float w_scales[kMegaSlots][kMegaWeightScales];
  abi::MegaRecord slots[kMegaSlots];
  float reduce[64];  // for the consumers: sums over all
  MegaBarriers bar;
};
static_assert(sizeof(MegaShared) <= abi::kMegaSmemBytes);

}  // namespace megartp::device

// All of a CTA's shared memory, a MegaShared. By its PTX name in mega_leave_here().
extern "C" {
extern __shared__ __align__(1024) uint8_t megartp_mega_shared[];
}

namespace megartp::device {

// The opcodes of an op's device code.
template <uint32_t... kOps>
struct MegaOpcodes {
  __device__ static bool has(uint32_t opcode) { return ((opcode == kOps) || ...); }
};

// A place in the ring: page `page`, used for the (use + 1)-th time.
struct PageCursor {
  static constexpr uint32_t kNoUse = 0xffffffffU;
  uint32_t page = 0;
  uint32_t use = 0;
  __device__ void advance(uint32_t n) {
    page += n;
#pragma unroll 1
    while (page >= kMegaPages) {
      page -= kMegaPages;
      ++use;
    }
  }
  __device__ PageCursor plus(uint32_t n) const {
    PageCursor c = *this;
    c.advance(n);
    return c;
  }
};

__device__ inline uint32_t mega_role(uint32_t warp) {
  switch (warp) {
    case kMegaControllerWarp: return abi::kFaultRoleController;
    case kMegaWeightWarp: return abi::kFaultRoleWeightLoader;
    case kMegaActivationWarp: return abi::kFaultRoleActivationLoader;
    case kMegaConsumerWarps + 3: return abi::kFaultRoleStore;
    default: return abi::kFaultRoleConsumer;
  }
}
__device__ inline bool mega_stopped(const uint32_t* stop) {
  uint32_t v;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(v) : "l"(stop) : "memory");
  return v != 0;
}
// The way out for all who give up, once in a kernel, at its beginning: mega_leave() jumps here with the place in the
// queue. The note comes before the arrival, which releases it to the controller; that also looks now and then, and when
// all have arrived.
// By hand: a function would be inlined at each wait, and with calls ptxas 13.0 keeps registers for them on the way that
// never fails; after setmaxnreg their arguments were seen to get lost.
__device__ __forceinline__ void mega_leave_here() {
  asm volatile(
      ".reg .b32 mega_at;\n"
      "bra.uni MEGA_BEGIN;\n"
      "MEGA_LEAVE: {\n"
      " .reg .b32 to, warp;\n"
      " mov.u32 to, megartp_mega_shared;\n"
      " mov.u32 warp, %%tid.x;\n"
      " shr.u32 warp, warp, 5;\n"
      " mad.lo.u32 warp, warp, 4, to;\n"
      " or.b32 mega_at, mega_at, %2;\n"
      " st.volatile.shared.u32 [warp + %0], mega_at;\n"
      " mbarrier.arrive.shared::cta.b64 _, [to + %1];\n"
      " exit;\n"
      "}\n"
      "MEGA_BEGIN:" ::"n"(kMegaNotesAt),
      "n"(kMegaLeftAt), "n"(kMegaNote)
      : "memory");
}
// Lanes may come one by one.
__device__ __forceinline__ void mega_leave(uint32_t index) {
  asm volatile("mov.b32 mega_at, %0;\n bra MEGA_LEAVE;" ::"r"(index) : "memory");
  __builtin_unreachable();
}
__device__ __forceinline__ uint32_t mega_ticks(const MegaShared& s) {
  return *const_cast<const volatile uint32_t*>(&s.watch.ticks);
}
// Until when a wait that begins now may take. Never beyond kMegaLeave.
__device__ __forceinline__ uint32_t mega_last_tick(const MegaShared& s, uint32_t deadlines) {
  return min(mega_ticks(s) + deadlines * kMegaTicks, kMegaLeave - 1);
}
// Roles whose barriers depend on events wait twice as long as whoever polls the events, so that the record names one.
template <class F>
__device__ __forceinline__ void mega_wait_until(const MegaShared& s, uint32_t index, F&& is_over) {
  if (is_over()) [[likely]]
    return;
  const uint32_t last = mega_last_tick(s, 2);
  while (!is_over())
    if (mega_ticks(s) > last) mega_leave(index);
}

// What a role of one worker has at hand. All its functions are called by whole warps.
struct MegaContext {
  const abi::MegaParams& p;
  MegaShared& s;
  uint64_t epoch = 0;  // of the activation loader: runs before this one
  // Of the instruction at hand:
  uint32_t index = 0;         // in the queue
  PageCursor pages;           // its first page
  uint32_t scale_uses = 0;    // instructions before it that had x scales
  uint32_t group_parity = 0;  // of the next barrier of the consumers
  // Of the weight loader: the page that it asked for last. One a worker saturates the memory, and what an SM has asked
  // for beyond that delays what the critical path waits for: activations, results, signals, code.
  PageCursor asked{0, PageCursor::kNoUse};
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
  // Of code that several ops share: where the instruction's operand row has what the code calls its i-th.
  __device__ uint32_t shared_slot(uint32_t i) const { return record().slots >> (8 * i) & 0xffU; }
  template <class T>
  __device__ T* operand(uint32_t at) const {
    return reinterpret_cast<T*>(p.operands[instruction().operand_row][at]);
  }
  // The operand row's map `which`.
  __device__ const TensorMap* map(uint32_t which) const {
    return reinterpret_cast<const TensorMap*>(&p.maps[p.row_maps[instruction().operand_row][which]]);
  }
  __device__ uint8_t* page(const PageCursor& c) const { return s.pages[c.page]; }
  // Where the release of a page's use is told, and by which parity.
  __device__ uint64_t* page_empty(uint32_t page, uint32_t use) const {
    return &s.bar.page_empty[page][use % kMegaPageUses];
  }
  __device__ static uint32_t empty_parity(uint32_t use) { return use / kMegaPageUses & 1; }

  // --- waits; none returns after a failure
  __device__ void wait(uint64_t* bar, uint32_t parity) {
    mega_wait_until(s, index, [&] { return mbarrier_try_wait(bar, parity); });
  }
  __device__ void wait_page_full(const PageCursor& c) { wait(&s.bar.page_full[c.page], c.use & 1); }
  // Until the use before this one has been released.
  __device__ void wait_page_empty(const PageCursor& c) {
    if (c.use != 0) wait(page_empty(c.page, c.use - 1), empty_parity(c.use - 1));
  }
  __device__ bool is_page_empty(const PageCursor& c) {
    return c.use == 0 || mbarrier_test_wait(page_empty(c.page, c.use - 1), empty_parity(c.use - 1));
  }
  // The weight loader's next page: empty, and the one before it has arrived.
  __device__ void claim_weight_page(const PageCursor& c) {
    wait_page_empty(c);
    // A ring or more behind, with pages of tasks without weights between, it has been consumed: that is what made `c`
    // empty. Its barriers may tell anything by now.
    const bool is_in_ring = c.use == asked.use || (c.use == asked.use + 1 && c.page < asked.page);
    if (is_in_ring) wait_arrived(asked);
    asked = c;
  }
  // Until the use has arrived. It may have been released since, and the page been filled anew, once.
  __device__ void wait_arrived(const PageCursor& c) {
    uint64_t* full = &s.bar.page_full[c.page];
    uint64_t* empty = page_empty(c.page, c.use);
    const uint32_t parity = empty_parity(c.use);
    // Released first: of a page that was filled anew, the first barrier tells the opposite.
    mega_wait_until(s, index, [&] { return mbarrier_test_wait(empty, parity) || mbarrier_try_wait(full, c.use & 1); });
  }
  __device__ void wait_inputs_ready() { wait(&s.bar.inputs_ready[slot()], slot_parity()); }

  // --- consumers
  // This warp has read the page.
  __device__ void release_page(const PageCursor& c) {
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(page_empty(c.page, c.use));
  }
  // The same after ordinary loads, which the copy engine could overtake else: they may still be on their way when the
  // arrival is seen. (Once weights went to registers and their pages back at once, one run of a hundred had others.)
  __device__ void release_read_page(const PageCursor& c) {
    fence_async_shared();
    release_page(c);
  }
  // The x scales have been read, by ordinary loads.
  __device__ void release_scales() {
    fence_async_shared();
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(&s.bar.scales_empty[scale_buffer()]);
  }
  // A barrier of all consumers; orders shared memory.
  __device__ void sync_consumers() {
    __syncwarp();
    if (lane_index() == 0) mbarrier_arrive(&s.bar.group);
    wait(&s.bar.group, group_parity);
    group_parity ^= 1;
  }

  // Writes the time to the instruction's trace record, in a kernel that is compiled with a trace. By a whole warp.
  __device__ void mark([[maybe_unused]] uint64_t abi::MegaTraceRecord::* at) const {
#if MEGARTP_TRACE
    if (p.trace != nullptr && lane_index() == 0)
      static_cast<abi::MegaTraceRecord*>(p.trace)[uint64_t{blockIdx.x} * p.depth + index].*at = global_timer();
#endif
  }
  // By the first consumer warp only.
  __device__ void consumer_mark([[maybe_unused]] uint64_t abi::MegaTraceRecord::* at) const {
#if MEGARTP_TRACE
    if (warp_index() == 0) mark(at);
#endif
  }
  // --- x scales: a ring of their own
  __device__ uint32_t scale_buffer() const { return scale_uses % kMegaScaleBuffers; }
  __device__ uint32_t scale_parity() const { return scale_uses / kMegaScaleBuffers & 1; }
};

// Sum over all consumers of pieces of a row, the same in all threads: v[i] is of the thread's piece i, and threads'
// i-th pieces stand behind all (i - 1)-th ones. Added in the order of cta_sum() in an ordinary kernel with a thread a
// piece. Uses `v` up.
template <int kPieces>
__device__ inline float mega_sum(MegaContext& c, float (&v)[kPieces]) {
  static_assert(kMegaConsumerWarps * kPieces <= sizeof c.s.reduce / sizeof(float));
  const uint32_t warp = warp_index();  // by all lanes
  const uint32_t piece = warp_sum_of_each(v);
  c.s.reduce[piece * kMegaConsumerWarps + warp] = v[0];
  c.sync_consumers();
  float sum = 0.0F;
#pragma unroll
  for (int i = 0; i < kMegaConsumerWarps * kPieces; ++i) sum += c.s.reduce[i];
  c.sync_consumers();  // the next sum writes there
  return sum;
}

}  // namespace megartp::device
