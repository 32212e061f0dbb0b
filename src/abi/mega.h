// What the persistent kernel is given: parameters of one launch, and the instructions in the form in which a worker
// fetches them. Plain data, same layout for host and device.
//
// Everything static (operand addresses, specs, tensor maps) is in the kernel's parameters, which cost no trip to the
// memory; only instructions are fetched.
#pragma once

#include <cstdint>

#include "abi/instruction.h"
#include "abi/mega_workers.h"

namespace megartp::abi {

inline constexpr uint32_t kMegaMaxRows = 32;    // operand rows of a plan
inline constexpr uint32_t kMegaMaxSpecs = 32;   // specs of a plan
inline constexpr uint32_t kMegaSpecWords = 16;  // of one spec
inline constexpr uint32_t kMegaMaxMaps = 16;    // tensor maps
inline constexpr uint32_t kMegaRowMaps = 2;     // of one operand row
inline constexpr uint32_t kMegaNoMap = 0xffU;
inline constexpr uint32_t kMegaThreads = 256;  // of a CTA
inline constexpr uint32_t kMegaSlots = 4;      // instructions of a worker that are under way at once
inline constexpr uint32_t kMegaPages = 6;
inline constexpr uint32_t kMegaPageBytes = 16384;
// A barrier tells a phase from the one before it, not from the one before that, and the loaders, who do not wait for
// each other, may be several rounds of the ring ahead of the consumers. So the releases of a page's uses go to
// kMegaPageUses barriers in turn: enough while kMegaSlots instructions in a row take no more than kMegaPagesInSlots
// pages, which the host checks.
inline constexpr uint32_t kMegaPageUses = 16;
inline constexpr uint32_t kMegaPagesInSlots = kMegaPages * kMegaPageUses;
inline constexpr uint32_t kMegaScales = 1024;       // x scales of an instruction at most: [K block, token]
inline constexpr uint32_t kMegaWeightScales = 64;   // weight scales of an instruction at most: K blocks
inline constexpr uint32_t kMegaSmemBytes = 115712;  // dynamic, of a CTA: half of what compute capability 9.0 has
inline constexpr uint32_t kMegaCounterStride =
    8;  // u64 from one counter to the next: each has a sector pair of its own

// An instruction as it lies in [workers, depth]. wait_total[i]: what all signals of one run add to the event of wait i.
// num_pages: pages of shared memory that the instruction takes from the ring; in which order is the op's affair.
// slots: of its operand row, for device code that several ops share; byte i is what that code calls its i-th.
struct alignas(16) MegaRecord {
  Instruction instruction;
  uint32_t wait_total[kMaxWaits];
  uint32_t num_pages;
  uint32_t slots;
  uint32_t reserved[2];
};
static_assert(sizeof(MegaRecord) == 160);

struct alignas(64) MegaMap {
  uint64_t opaque[16];  // a CUtensorMap
};

struct alignas(64) MegaParams {
  MegaMap maps[kMegaMaxMaps];
  uint64_t operands[kMegaMaxRows][kOperandSlots];  // addresses; FP8 weights of GEMM rows in WeightLayout::kTiles64x128
  uint32_t specs[kMegaMaxSpecs][kMegaSpecWords];
  uint8_t row_maps[kMegaMaxRows][kMegaRowMaps];  // index into maps, or kMegaNoMap
  const MegaRecord* records;                     // [workers, depth]
  uint64_t* counters;                            // [events, kMegaCounterStride], monotonic over runs
  uint64_t* epochs;                              // [workers, kMegaCounterStride]: runs that the worker has finished
  void* faults;                                  // FaultRecord [workers]
  uint32_t* stop;        // not zero: a run has failed, nobody starts or goes on; the host resets it
  void* trace;           // MegaTraceRecord [workers, depth], or null
  uint64_t deadline_ns;  // of one wait
  uint32_t depth;        // instructions of a queue
  uint32_t num_workers;
  uint32_t page_uses;        // barriers for the releases of a page that a run needs, at most kMegaPageUses
  uint32_t lose_signals_of;  // fault injection: the task whose signals never arrive, or kNoTask
  uint32_t lose_results_of;  // fault injection: the task whose results its publisher never sees, or kNoTask
  uint32_t zero;             // 0, which the kernel's compiler cannot know
};

// In-kernel trace, globaltimer ns; 0: did not happen.
struct MegaTraceRecord {
  uint64_t visible;  // a consumer saw the instruction
  uint64_t ready;    // its events were complete
  uint64_t done;     // its results were published
  // The weight loader came to the instruction, and had asked for the last of its weights.
  uint64_t weights_begin, weights_end;
  uint64_t computed;  // a consumer had stored its results
};
static_assert(sizeof(MegaTraceRecord) == 48);

}  // namespace megartp::abi
