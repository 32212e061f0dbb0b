// OpGraph: operators and tensors recorded by calls, before anything is known about tiles or devices.
//
//   OpGraph graph("attention_prefix");
//   Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", 512});
//   Tensor w = graph.bound_weight("norm_w", DType::kBF16, {512});
//   Tensor y = graph.rmsnorm(x, w);
//   graph.set_outputs({y});
//   MEGARTP_TRY(graph.status());
//
// Errors are sticky: the first call that fails is kept in status() with the op, the tensor, the expected and the actual
// shape; later calls that use an invalid Tensor record nothing. A graph is not thread-safe while it is recorded.
//
// Program order is the order of the calls. A tensor may be written by several ops (an op may update one of its inputs
// in place, e.g. a cache); the order between them follows from the regions that they touch.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "megartp/dim.h"
#include "megartp/dtype.h"
#include "megartp/error.h"

namespace megartp {

using TensorId = uint32_t;
using OpId = uint32_t;
inline constexpr uint32_t kInvalidId = 0xffffffffU;

enum class Storage : uint8_t {
  kRuntimeArg,  // bound before each run, read only
  kWeight,      // bound once, read only
  kActivation,  // lives in the plan's workspace
  kState,       // bound by the caller, read and updated in place (caches)
  kOutput,      // bound by the caller, written
};
std::string_view to_string(Storage storage);

using AttrValue = std::variant<int64_t, double, bool, std::string>;

// Named attributes of an op, in insertion order.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, AttrValue>> items) : items_(items) {}
  void set(std::string_view name, AttrValue value);
  const AttrValue* find(std::string_view name) const;
  // The attribute, or the fallback when absent. A wrong type counts as absent; schemas reject it first.
  int64_t get_int(std::string_view name, int64_t fallback) const;
  double get_double(std::string_view name, double fallback) const;
  bool get_bool(std::string_view name, bool fallback) const;
  std::string get_string(std::string_view name, std::string_view fallback) const;
  const std::vector<std::pair<std::string, AttrValue>>& items() const { return items_; }
  friend bool operator==(const Attrs&, const Attrs&) = default;

 private:
  std::vector<std::pair<std::string, AttrValue>> items_;
};

struct TensorInfo {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  Storage storage = Storage::kActivation;
  OpId producer = kInvalidId;  // the op that defines it; kInvalidId for args, weights and state
  bool is_partial = false;     // its tiles are addends of one result, which the consumer adds in order (head_gate)
  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

struct OpInfo {
  std::string name;  // "B0"
  std::string kind;  // op family, "qkv_a"
  std::vector<TensorId> inputs;
  std::vector<TensorId> outputs;  // tensors that this op defines
  std::vector<TensorId> updates;  // inputs that it also writes in place
  Attrs attrs;
  friend bool operator==(const OpInfo&, const OpInfo&) = default;
};

// A handle into the graph that made it. Another graph cannot tell it from its own: never mix them.
struct Tensor {
  TensorId id = kInvalidId;
  bool valid() const { return id != kInvalidId; }
};

// Rotary embedding of an op: `interleave` pairs (x[2i], x[2i+1]); otherwise half-split pairs (x[i], x[i + n/2]).
struct RopeOptions {
  bool interleave = true;
};

class OpGraph {
 public:
  // Names of graphs, ops and tensors: 1 to 256 bytes of UTF-8 without NUL; anything else is a sticky error.
  explicit OpGraph(std::string name);

  // --- tensors -------------------------------------------------------------------------------------------------------
  // Shapes have 1 to 4 dims; constants run from 1 to 2^31 - 1.
  Tensor runtime_arg(std::string_view name, DType dtype, Shape shape);
  Tensor bound_weight(std::string_view name, DType dtype, Shape shape);
  Tensor state(std::string_view name, DType dtype, Shape shape);

  // --- ops -----------------------------------------------------------------------------------------------------------
  // Any registered family. `name` must be unique ("" = kind plus a number). Output tensors are called
  // "<name>.<output>", unless output_names gives names for them. Returns one Tensor per output; invalid ones after an
  // error. An op is recorded whole or not at all. It may not update a tensor in place that it also takes as another
  // input.
  std::vector<Tensor> op(std::string_view kind, std::string_view name, std::span<const Tensor> inputs, Attrs attrs = {},
                         std::span<const std::string_view> output_names = {});

  // y = round(a + b); a, b [M, N] BF16.
  Tensor add(Tensor a, Tensor b, std::string_view name = "");
  // y = round(w * x * rsqrt(mean(x^2) + eps)); x [M, N] BF16, w [N] BF16, statistics in fp32.
  Tensor rmsnorm(Tensor x, Tensor w, double eps = 1e-5, std::string_view name = "");
  // y = round(x w^T); x [M, K] BF16, w [N, K] BF16, fp32 accumulation.
  Tensor gemm(Tensor x, Tensor w, std::string_view name = "");

  // A0. x, residual [M, H] BF16; w [H] BF16.
  struct NormQuant {
    Tensor residual;  // BF16 [M, H], x + residual
    Tensor y;         // BF16 [M, H], the norm
    Tensor q;         // F8_E4M3 [M, H]
    Tensor scale;     // F32 [M, ceil(H/128)]
  };
  NormQuant add_rmsnorm_quant(Tensor x, Tensor residual, Tensor w, Attrs attrs = {}, std::string_view name = "");

  // An FP8 activation with its 1 x 128 scales, an FP8 weight [N, K] with its 128 x 128 scales.
  struct Quantized {
    Tensor q;
    Tensor scale;
  };
  // What ops that rotate or address a cache need of the batch.
  struct Positions {
    Tensor positions;     // I32 [M]
    Tensor cos_sin;       // F32 [POS, rope]: rope/2 cosines, then rope/2 sines
    Tensor slot_mapping;  // I32 [M]: cache slot of each row, page * 64 + position % 64
  };

  // B0. Writes one record of mla_kv_cache U8 [PAGES, 64 * record] per row. attrs: eps, split_k, pow2_scale (of q),
  // mla_pow2_scale.
  struct QkvA {
    Quantized q;  // F8_E4M3 [M, q_lora], F32 [M, ceil(q_lora/128)]
    Tensor kv;    // BF16 [M, kv_lora + rope]: normed latent, then rotated k_pe
  };
  QkvA qkv_a(Quantized x, Quantized q_a_proj, Quantized kv_a_proj, Tensor q_norm, Tensor kv_norm, Positions where,
             Tensor mla_kv_cache, Attrs attrs = {}, std::string_view name = "");
  // C0. y [M, H] BF16, w [heads, H] BF16 -> F32 [ceil(H/128), M, heads]: K-slice partials that the consumer adds in
  // order.
  Tensor head_gate(Tensor y, Tensor w, std::string_view name = "");
  // B1. Updates index_k_cache U8 [PAGES, 64*(D+4)] in place. attrs: eps, split_k, interleave, hadamard, pow2_scale.
  void indexer_k(Quantized x, Quantized wk, Tensor norm_w, Tensor norm_b, Positions where, Tensor index_k_cache,
                 Attrs attrs = {}, std::string_view name = "");
  // D1. attrs: heads, split_k, interleave, hadamard, pow2_scale, score_scale.
  struct IndexerQ {
    Quantized q;     // F8_E4M3 [M, heads, D], F32 [M, heads]
    Tensor weights;  // F32 [M, heads]: gate * scale * score_scale
    Tensor gate;     // F32 [M, heads]
  };
  IndexerQ indexer_q(Quantized x, Quantized wq_b, Tensor gate_partials, Positions where, Attrs attrs = {},
                     std::string_view name = "");
  // D0. attrs: heads, nope, rope, kv_lora. Returns q_nope BF16 [M, heads, nope] and q_out BF16 [M, heads, kv_lora +
  // rope], of which it writes the last `rope` columns of every head.
  std::pair<Tensor, Tensor> main_q(Quantized x, Quantized q_b_proj, Positions where, Attrs attrs = {},
                                   std::string_view name = "");
  // D2. Writes the first kv_lora columns of every head of q_out in place. kv_b [heads*(nope+v), kv_lora]. attrs: v.
  void q_absorb(Tensor q_nope, Quantized kv_b, Tensor q_out, Attrs attrs = {}, std::string_view name = "");
  // E1. logits F32 [M, round_up(KV, 256)]; columns at and beyond context_lens[m] are -inf.
  // context_lens I32 [M]: visible length of each row; block_table I32 [R, TABLE]: page of each 64-token block, -1 =
  // unused.
  Tensor indexer_score(Tensor q, Tensor weights, Tensor index_k_cache, Tensor context_lens, Tensor block_table,
                       std::string_view name = "");

  // Marks tensors as outputs that the caller binds; repeated calls add, a tensor counts once. State tensors keep their
  // class.
  void set_outputs(std::span<const Tensor> outputs);
  void set_outputs(std::initializer_list<Tensor> outputs) { set_outputs(std::span(outputs.begin(), outputs.size())); }

  // --- reading -------------------------------------------------------------------------------------------------------
  const Status& status() const { return status_; }
  const std::string& name() const { return name_; }
  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const std::vector<OpInfo>& ops() const { return ops_; }
  const std::vector<TensorId>& outputs() const { return outputs_; }
  const TensorInfo& tensor(TensorId id) const { return tensors_[id]; }
  // The tensor of that name, or an invalid handle.
  Tensor find_tensor(std::string_view name) const;
  friend bool operator==(const OpGraph& a, const OpGraph& b) {
    return a.name_ == b.name_ && a.tensors_ == b.tensors_ && a.ops_ == b.ops_ && a.outputs_ == b.outputs_;
  }

 private:
  Status check_tensor(const TensorInfo& info) const;
  Tensor push_tensor(TensorInfo info);
  Tensor add_tensor(TensorInfo info);
  Result<std::vector<Tensor>> record_op(std::string_view kind, std::string_view name, std::span<const Tensor> inputs,
                                        Attrs attrs, std::span<const std::string_view> output_names);
  void fail(Error error);

  std::string name_;
  std::vector<TensorInfo> tensors_;
  std::vector<OpInfo> ops_;
  std::vector<TensorId> outputs_;
  std::map<std::string, uint32_t, std::less<>> tensor_names_;
  std::map<std::string, uint32_t, std::less<>> op_names_;
  Status status_;
};

// Lossless text forms. JSON: docs/life-of-a-graph.md has the format. Reading rechecks every shape through the op
// registry.
std::string to_json(const OpGraph& graph);
Result<OpGraph> graph_from_json(std::string_view text);
std::string to_dot(const OpGraph& graph);
std::string to_mermaid(const OpGraph& graph);

}  // namespace megartp
