// Spec, payload and operand row of `qkv_a`, shared by encoder, disassembler and tiles.
#pragma once

#include <cstdint>

#include "ops/common/fp8_gemm_abi.h"

namespace megartp::ops {

// gemm.segment_rows = {q_lora, kv_lora + rope}.
struct QkvASpec {
  Fp8GemmSpec gemm;
  uint32_t kv_lora;
  uint32_t rope;
  float eps;
  uint32_t pow2_scale;      // 0 or 1: scales of q
  uint32_t mla_pow2_scale;  // 0 or 1: scales of the cache record
};
MEGARTP_HOST_DEVICE inline uint32_t q_lora(const QkvASpec& spec) { return spec.gemm.segment_rows[0]; }

// Payload of qkv_a_gemm and qkv_a_fused: Fp8GemmPayload. Of qkv_a_finalize:
struct QkvAFinalizePayload {
  uint32_t row;
  uint32_t m_total;
  uint32_t parts;  // of QkvAPart, at least one
};
inline constexpr uint32_t kQkvAFinalizePayloadWords = 3;
enum QkvAPart : uint32_t { kQkvAPartQ = 1, kQkvAPartKv = 2, kQkvAAllParts = 3 };

// Operand row, the same for all three opcodes; a stage leaves out what it does not touch.
enum QkvASlot : uint32_t {
  kQkvAX,
  kQkvAXScale,
  kQkvAQProj,
  kQkvAQProjScale,
  kQkvAKvProj,
  kQkvAKvProjScale,
  kQkvAQNorm,
  kQkvAKvNorm,
  kQkvAPositions,
  kQkvACosSin,
  kQkvASlotMapping,
  kQkvACache,
  kQkvAPartial,
  kQkvAQ,
  kQkvAQScale,
  kQkvAKv,
  kQkvANumSlots,
};

}  // namespace megartp::ops
