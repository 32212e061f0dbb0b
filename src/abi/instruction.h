// The instruction: one tile task as a worker sees it. Plain data, same layout for host and device, no addresses.
//
// 128 bytes, 32 little-endian u32:
//
//   word   0      1        2                          3            4        5             6           7
//        +------+--------+--------------------------+------------+--------+-------------+-----------+---------+
//        |opcode|spec_id |waits|signals|payload| 0  |operand_row |task_id |join_counter |join_count | 0       |
//        +------+--------+--------------------------+------------+--------+-------------+-----------+---------+
//   word   8 .. 15   four waits:   (event, threshold)
//   word  16 .. 23   four signals: (event, increment | publication << 24)
//   word  24 .. 31   payload: tile coordinates and dynamic parameters, meaning set by the op family
//
// Unused waits, signals and payload words are zero; readers reject anything else. Addresses live in the operand table:
// row `operand_row` of [ops, 16] u64. Numbers of a static kind (dims, eps) live in the spec list: entry `spec_id`.
//
// A join counter makes several instructions one group: each adds one when its part is done, and the one that arrives as
// number `join_count` of this epoch finalizes for all and sends the group's signals; the others send none.
//
// A run never resets a counter. In run number e (from 1), a wait is satisfied when
//   counter >= threshold + (e - 1) * total(event),
// where total(event) is what all signals of one run add up to. Counters are 64-bit, so they do not wrap in practice.
#pragma once

#include <cstdint>

#include "abi/host_device.h"

namespace megartp::abi {

inline constexpr uint32_t kAbiVersion = 1;
inline constexpr uint32_t kInstructionWords = 32;
inline constexpr uint32_t kMaxWaits = 4;
inline constexpr uint32_t kMaxSignals = 4;
inline constexpr uint32_t kMaxPayload = 8;
inline constexpr uint32_t kOperandSlots = 16;
inline constexpr uint32_t kNoJoin = 0xffffffffU;
inline constexpr uint32_t kNoTask = 0xffffffffU;
inline constexpr uint32_t kOpcodeNoOp = 0;
inline constexpr uint32_t kOpcodeRelay = 1;  // waits and signals, does nothing else; op families start at 0x10
inline constexpr uint32_t kMaxIncrement = 0x00ffffffU;

struct Wait {
  uint32_t event;
  uint32_t threshold;
};

struct Signal {
  uint32_t event;
  uint32_t increment_publication;  // increment in the low 24 bits, publication in the high 8
};

struct alignas(16) Instruction {
  uint32_t opcode;
  uint32_t spec_id;
  uint32_t counts;  // waits | signals << 8 | payload words << 16
  uint32_t operand_row;
  uint32_t task_id;
  uint32_t join_counter;
  uint32_t join_count;
  uint32_t reserved0;
  Wait waits[kMaxWaits];
  Signal signals[kMaxSignals];
  uint32_t payload[kMaxPayload];
};
static_assert(sizeof(Instruction) == 128, "an instruction is 32 words");

MEGARTP_HOST_DEVICE constexpr uint32_t num_waits(const Instruction& i) { return i.counts & 0xffU; }
MEGARTP_HOST_DEVICE constexpr uint32_t num_signals(const Instruction& i) { return (i.counts >> 8) & 0xffU; }
MEGARTP_HOST_DEVICE constexpr uint32_t num_payload(const Instruction& i) { return (i.counts >> 16) & 0xffU; }
MEGARTP_HOST_DEVICE constexpr uint32_t make_counts(uint32_t waits, uint32_t signals, uint32_t payload) {
  return waits | signals << 8 | payload << 16;
}
MEGARTP_HOST_DEVICE constexpr uint32_t increment(const Signal& s) { return s.increment_publication & kMaxIncrement; }
MEGARTP_HOST_DEVICE constexpr uint32_t publication(const Signal& s) { return s.increment_publication >> 24; }
MEGARTP_HOST_DEVICE constexpr Signal make_signal(uint32_t event, uint32_t increment, uint32_t publication) {
  return Signal{event, increment | publication << 24};
}

}  // namespace megartp::abi
