// Trace records: what whoever runs tasks writes down of each, in ticks of its own clock. Plain data; trace/from_plan.h
// reads them. cpu-threads writes them as they are; of the persistent kernel's tasks, whose place says the rest, they
// are made of abi/mega.h's MegaTraceRecord. CTAs of ordinary kernels have abi/kernel_trace.h.
//
// TraceRecord (48 bytes, one a task):      worker | slot | task_id | flags | visible | ready | done | 0
// TraceRoleRecord (32 bytes, as many):     worker | slot | role | 0 | begin | end
//
// visible: the worker has the instruction; ready: its waits are over; done: the tile is computed, its signals are still
// to be sent, so that done comes before the ready of every task that it lets go on. All of one run, one clock.
#pragma once

#include <cstdint>

namespace megartp::abi {

// TraceRecord::flags
inline constexpr uint32_t kTraceSent = 1;  // the task's signals were its to send: no join group, or the last to arrive

// TraceRoleRecord::role: what a warp, or a part of a tile, does.
inline constexpr uint32_t kTraceRoleWeights = 1;
inline constexpr uint32_t kTraceRoleActivations = 2;
inline constexpr uint32_t kTraceRoleCompute = 3;
inline constexpr uint32_t kTraceRoleStore = 4;
inline constexpr uint32_t kTraceRoles = 5;

struct alignas(16) TraceRecord {
  uint32_t worker;
  uint32_t slot;  // of the worker's queue; under a dynamic schedule, tasks that it ran before
  uint32_t task_id;
  uint32_t flags;
  uint64_t visible;
  uint64_t ready;
  uint64_t done;
  uint64_t reserved0;
};
static_assert(sizeof(TraceRecord) == 48);

struct alignas(16) TraceRoleRecord {
  uint32_t worker;
  uint32_t slot;
  uint32_t role;
  uint32_t reserved0;
  uint64_t begin;
  uint64_t end;
};
static_assert(sizeof(TraceRoleRecord) == 32);

}  // namespace megartp::abi
