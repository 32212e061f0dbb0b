// One q_absorb tile on the CPU.
#include "ops/common/absorb_cpu.h"
#include "ops/q_absorb/q_absorb.h"
#include "ops/q_absorb/q_absorb_abi.h"

namespace megartp::ops {

void q_absorb_run_tile(const CpuTile& t) {
  const auto s = decode_spec<QAbsorbSpec>(t.spec);
  const auto p = decode_spec<QAbsorbPayload>({t.payload, sizeof(QAbsorbPayload) / 4});
  const int64_t kv_lora = s.kv_lora;
  const int64_t out_columns = kv_lora + s.rope;
  const int64_t first = int64_t{p.row_begin} * s.heads + p.head;  // (row, head) of the tile's first row
  AbsorbArgs a;
  a.q = t.operand<const bf16>(kQAbsorbQNope) + first * s.nope;
  a.ldq = int64_t{s.heads} * s.nope;
  a.w_row = int64_t{p.head} * (int64_t{s.nope} + s.v);
  a.w = t.operand<const e4m3>(kQAbsorbKvB) + a.w_row * kv_lora + p.n_begin;
  a.ldw = kv_lora;
  a.w_scale = t.operand<const float>(kQAbsorbKvBScale) + p.n_begin / kAbsorbMaxColumns;
  a.ld_w_scale = (kv_lora + 127) / 128;
  a.m_count = p.row_count;
  a.n_count = p.n_count;
  a.d_count = s.nope;
  a.out = t.operand<bf16>(kQAbsorbQOut) + first * out_columns + p.n_begin;
  a.ld_out = int64_t{s.heads} * out_columns;
  absorb_tile(a, t.scratch.data());
}

}  // namespace megartp::ops
