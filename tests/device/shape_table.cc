#include "device/shape_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/math.h"
#include "models/glm52/glm52.h"
#include "ops/common/paged_cache.h"

namespace megartp::test {
namespace {

constexpr int64_t kShapePositions = 50;

DeviceCase layer_case(std::string_view model, const glm52::Config& config, int64_t m, int64_t kv, int64_t requests) {
  return {fmt::format("{} m={} kv={} requests={}", model, m, kv, requests), glm52::attention_pre_graph(config, {}, 0),
          glm52::decode_shapes(m, kv, requests).value()};
}

// Collects one op's inputs; weights are bound weights, so that they may be laid out afresh, unless `plain`.
class OneOp {
 public:
  OneOp(std::string_view kind, int64_t m, bool plain = false) : kind_(kind), graph_("one"), plain_(plain) {
    shapes_.set("M", m);
  }
  OneOp& arg(DType dtype, Shape shape) {
    inputs_.push_back(graph_.runtime_arg(next_name(), dtype, std::move(shape)));
    return *this;
  }
  OneOp& weight(DType dtype, Shape shape) {
    if (plain_) return arg(dtype, std::move(shape));
    inputs_.push_back(graph_.bound_weight(next_name(), dtype, std::move(shape)));
    return *this;
  }
  OneOp& state(DType dtype, Shape shape) {
    inputs_.push_back(graph_.state(next_name(), dtype, std::move(shape)));
    return *this;
  }
  // FP8 rows with their scales.
  OneOp& fp8_arg(int64_t k) { return arg(DType::kF8E4M3, {"M", k}).arg(DType::kF32, {"M", ceil_div<int64_t>(k, 128)}); }
  OneOp& fp8_weight(int64_t n, int64_t k) {
    return weight(DType::kF8E4M3, {n, k}).weight(DType::kF32, {ceil_div<int64_t>(n, 128), ceil_div<int64_t>(k, 128)});
  }
  OneOp& request(int32_t rows, int32_t kv) {
    shapes_.requests.push_back({rows, kv});
    return *this;
  }
  OneOp& symbol(std::string_view name, int64_t value) {
    shapes_.set(name, value);
    return *this;
  }
  DeviceCase make(std::string_view sizes, Attrs attrs = {}) {
    graph_.op(kind_, "op", inputs_, std::move(attrs));
    return {fmt::format("{} {}{}", kind_, sizes, plain_ ? " plain" : ""), std::move(graph_), std::move(shapes_)};
  }

 private:
  std::string next_name() const { return fmt::format("in{}", inputs_.size()); }

  std::string kind_;
  OpGraph graph_;
  ShapeEnv shapes_;
  std::vector<Tensor> inputs_;
  bool plain_;
};

DeviceCase qkv_a_case(int64_t m, int64_t hidden, int64_t q_lora, int64_t kv_lora, int64_t rope, Attrs attrs = {},
                      bool plain = false) {
  OneOp op("qkv_a", m, plain);
  op.fp8_arg(hidden).fp8_weight(q_lora, hidden).fp8_weight(kv_lora + rope, hidden);
  op.weight(DType::kBF16, {q_lora}).weight(DType::kBF16, {kv_lora});
  op.arg(DType::kI32, {"M"}).arg(DType::kF32, {kShapePositions, rope}).arg(DType::kI32, {"M"});
  op.state(DType::kU8, {3, ops::kPageTokens * ops::mla_record_bytes(kv_lora, rope)});
  return op.make(fmt::format("m={} hidden={} q_lora={} kv_lora={} rope={}", m, hidden, q_lora, kv_lora, rope),
                 std::move(attrs));
}

DeviceCase indexer_k_case(int64_t m, int64_t hidden, int64_t dim, int64_t rope, Attrs attrs = {}, bool plain = false) {
  OneOp op("indexer_k", m, plain);
  op.fp8_arg(hidden).fp8_weight(dim, hidden).weight(DType::kBF16, {dim}).weight(DType::kBF16, {dim});
  op.arg(DType::kI32, {"M"}).arg(DType::kF32, {kShapePositions, rope}).arg(DType::kI32, {"M"});
  op.state(DType::kU8, {5, ops::index_page_bytes(dim)});
  return op.make(fmt::format("m={} hidden={} dim={} rope={}", m, hidden, dim, rope), std::move(attrs));
}

DeviceCase indexer_q_case(int64_t m, int64_t q_lora, int64_t heads, int64_t dim, int64_t rope, int64_t slices,
                          Attrs attrs = {}, bool plain = false) {
  OneOp op("indexer_q", m, plain);
  op.fp8_arg(q_lora).fp8_weight(heads * dim, q_lora).arg(DType::kF32, {slices, "M", heads});
  op.arg(DType::kI32, {"M"}).arg(DType::kF32, {kShapePositions, rope});
  attrs.set("heads", heads);
  attrs.set("score_scale", 1.0 / std::sqrt(static_cast<double>(heads * dim)));
  return op.make(fmt::format("m={} q_lora={} heads={} dim={} rope={} slices={}", m, q_lora, heads, dim, rope, slices),
                 std::move(attrs));
}

DeviceCase main_q_case(int64_t m, int64_t k, int64_t heads, int64_t nope, int64_t rope, int64_t kv_lora,
                       bool plain = false) {
  OneOp op("main_q", m, plain);
  op.fp8_arg(k).fp8_weight(heads * (nope + rope), k).arg(DType::kI32, {"M"}).arg(DType::kF32, {kShapePositions, rope});
  return op.make(fmt::format("m={} k={} heads={} nope={} rope={} kv_lora={}", m, k, heads, nope, rope, kv_lora),
                 {{"heads", heads}, {"nope", nope}, {"rope", rope}, {"kv_lora", kv_lora}});
}

DeviceCase q_absorb_case(int64_t m, int64_t heads, int64_t nope, int64_t v, int64_t kv_lora, int64_t rope) {
  OneOp op("q_absorb", m);
  op.arg(DType::kBF16, {"M", heads, nope})
      .fp8_weight(heads * (nope + v), kv_lora)
      .state(DType::kBF16, {"M", heads, kv_lora + rope});
  return op.make(fmt::format("m={} heads={} nope={} v={} kv_lora={} rope={}", m, heads, nope, v, kv_lora, rope),
                 {{"v", v}});
}

DeviceCase score_case(int64_t heads, int64_t dim, const std::vector<RequestShape>& requests) {
  int64_t m = 0;
  int64_t kv = 1;
  for (const RequestShape& r : requests) {
    m += r.num_rows;
    kv = std::max<int64_t>(kv, r.kv_len);
  }
  OneOp op("indexer_score", m);
  for (const RequestShape& r : requests) op.request(r.num_rows, r.kv_len);
  op.symbol("KV", kv);
  op.arg(DType::kF8E4M3, {"M", heads, dim})
      .arg(DType::kF32, {"M", heads})
      .state(DType::kU8, {100, ops::index_page_bytes(dim)});
  op.arg(DType::kI32, {"M"}).arg(DType::kI32, {static_cast<int64_t>(requests.size()), ceil_div<int64_t>(kv, 64) + 1});
  return op.make(fmt::format("heads={} dim={} requests={} m={} kv={}", heads, dim, requests.size(), m, kv));
}

DeviceCase norm_case(int64_t m, int64_t cols) {
  OneOp op("add_rmsnorm_quant", m);
  op.arg(DType::kBF16, {"M", cols}).arg(DType::kBF16, {"M", cols}).weight(DType::kBF16, {cols});
  return op.make(fmt::format("m={} cols={}", m, cols));
}

DeviceCase gate_case(int64_t m, int64_t hidden, int64_t heads) {
  OneOp op("head_gate", m);
  op.arg(DType::kBF16, {"M", hidden}).weight(DType::kBF16, {heads, hidden});
  return op.make(fmt::format("m={} hidden={} heads={}", m, hidden, heads));
}

void add_projection_cases(std::vector<DeviceCase>& cases) {
  cases.push_back(qkv_a_case(16, 512, 256, 512, 64));
  cases.push_back(qkv_a_case(16, 512, 256, 512, 64, {}, true));
  cases.push_back(qkv_a_case(1, 128, 128, 512, 64, {{"split_k", int64_t{5}}}));
  cases.push_back(qkv_a_case(3, 300, 200, 72, 8));  // K no multiple of 16
  cases.push_back(qkv_a_case(5, 64, 6, 3, 2));
  cases.push_back(qkv_a_case(17, 256, 130, 130, 10));
  cases.push_back(qkv_a_case(33, 640, 128, 512, 32));
  cases.push_back(qkv_a_case(70, 256, 96, 40, 16));    // key not at 16 bytes of the record
  cases.push_back(qkv_a_case(4, 256, 8192, 512, 64));  // rows too wide for the finalizer
  cases.push_back(indexer_k_case(16, 512, 128, 64, {{"split_k", int64_t{1}}}));
  cases.push_back(indexer_k_case(130, 512, 128, 64, {{"split_k", int64_t{3}}}, true));
  cases.push_back(indexer_k_case(3, 200, 64, 32));
  cases.push_back(indexer_k_case(7, 256, 128, 12));  // rope no multiple of 8
  cases.push_back(indexer_k_case(2, 1, 2, 2));
  cases.push_back(indexer_q_case(1, 1, 1, 2, 2, 1));
  cases.push_back(indexer_q_case(16, 512, 3, 128, 64, 7));
  cases.push_back(indexer_q_case(5, 640, 2, 128, 64, 3, {{"hadamard", true}, {"split_k", int64_t{3}}}, true));
  cases.push_back(indexer_q_case(17, 384, 2, 40, 40, 1));
  cases.push_back(indexer_q_case(2, 304, 2, 200, 64, 2));
  cases.push_back(indexer_q_case(2, 304, 2, 128, 64, 200));  // many slices of the gate
  for (const int64_t m : {1, 16, 64, 128}) {                 // few splits: many tokens a warp
    cases.push_back(indexer_k_case(m, 512, 128, 64, {{"split_k", int64_t{1}}, {"hadamard", true}}));
    cases.push_back(indexer_q_case(m, 1024, 4, 128, 64, 56, {{"split_k", int64_t{1}}}));
    cases.push_back(indexer_q_case(m, 1024, 4, 128, 64, 56, {{"split_k", int64_t{8}}}));
  }
  cases.push_back(indexer_q_case(16, 1024, 4, 128, 64, 128, {{"split_k", int64_t{2}}}));  // four gate loads a lane
  cases.push_back(main_q_case(16, 256, 2, 192, 64, 32));
  cases.push_back(main_q_case(300, 256, 2, 192, 64, 32, true));
  cases.push_back(main_q_case(5, 300, 3, 10, 6, 7));
  cases.push_back(main_q_case(5, 304, 3, 10, 6, 8));
  cases.push_back(main_q_case(9, 32768, 1, 64, 64, 8));    // scales of 256 blocks
  cases.push_back(main_q_case(9, 1 << 21, 1, 64, 64, 8));  // scales that fit no tile
}

}  // namespace

std::vector<DeviceCase> layer_cases() {
  std::vector<DeviceCase> cases;
  for (const int64_t m : {1, 4, 16, 32, 64, 128, 256})
    cases.push_back(layer_case("glm", glm52::glm_5_2_config(), m, 8192, std::min<int64_t>(m, 2)));
  for (const int64_t kv : {2048, 32768, 131072})
    for (const int64_t m : {int64_t{16}, int64_t{256}})
      cases.push_back(layer_case("glm", glm52::glm_5_2_config(), m, kv, m / 8));
  for (const int64_t m : {1, 16, 64, 128})
    cases.push_back(layer_case("deepseek", glm52::deepseek_v3_2_config(), m, 8192, 1));
  return cases;
}

std::vector<DeviceCase> ragged_cases() {
  std::vector<DeviceCase> cases;
  add_projection_cases(cases);
  for (const auto& [m, cols] : std::vector<std::pair<int64_t, int64_t>>{
           {1, 1}, {3, 200}, {5, 1000}, {2, 8192}, {2, 8200}, {2, 16384}, {1, 20000}})
    cases.push_back(norm_case(m, cols));
  cases.push_back(gate_case(1, 1, 1));
  cases.push_back(gate_case(17, 200, 5));
  cases.push_back(gate_case(3, 132, 9));
  cases.push_back(gate_case(3, 128, 300));
  cases.push_back(q_absorb_case(1, 1, 1, 0, 1, 0));
  cases.push_back(q_absorb_case(3, 2, 7, 5, 40, 8));
  cases.push_back(q_absorb_case(5, 3, 192, 128, 304, 64));
  cases.push_back(q_absorb_case(33, 2, 128, 128, 128, 64));
  cases.push_back(q_absorb_case(65, 1, 256, 3, 128, 8));
  cases.push_back(score_case(32, 128, {{3, 100}, {1, 64}, {5, 700}}));
  cases.push_back(score_case(8, 128, {{40, 70}}));
  cases.push_back(score_case(64, 128, {{1, 1}, {0, 0}, {2, 129}}));
  cases.push_back(score_case(128, 128, {{20, 300}}));  // more blocks than fit the parameters
  cases.push_back(score_case(5, 40, {{3, 100}, {1, 64}}));
  cases.push_back(score_case(32, 64, {{1, 1}}));
  OneOp add("add", 3);
  cases.push_back(add.arg(DType::kBF16, {"M", 7}).arg(DType::kBF16, {"M", 7}).make("m=3 n=7"));
  OneOp norm("rmsnorm", 3);
  cases.push_back(norm.arg(DType::kBF16, {"M", 7}).weight(DType::kBF16, {7}).make("m=3 n=7"));
  OneOp gemm("gemm", 3);
  cases.push_back(gemm.arg(DType::kBF16, {"M", 7}).weight(DType::kBF16, {5, 7}).make("m=3 n=5 k=7"));
  return cases;
}

TestDeviceContext::TestDeviceContext(const OpGraph& graph, const ShapeEnv& shapes, const OpInfo& op,
                                     DeviceTarget target)
    : op_(op), shapes_(shapes), target_(target) {
  for (const TensorInfo& t : graph.tensors())
    tensors_.push_back({t.name, t.dtype, shapes.eval(t.shape).value(), t.storage, t.is_partial});
}

TensorId TestDeviceContext::add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool) {
  tensors_.push_back({fmt::format("{}.{}", op_.name, name), dtype, std::move(dims), Storage::kActivation, false});
  return static_cast<TensorId>(tensors_.size() - 1);
}

TensorId TestDeviceContext::add_constant(std::string_view name, std::vector<uint32_t> words) {
  constant_ = std::move(words);
  return add_workspace(name, DType::kI32, {static_cast<int64_t>(constant_.size())}, false);
}

Result<std::vector<DeviceKernel>> kernels_of(const DeviceCase& c, std::string_view op, DeviceTarget target) {
  for (const OpInfo& info : c.graph.ops()) {
    if (info.name != op) continue;
    TestDeviceContext context(c.graph, c.shapes, info, target);
    return find_device_family(info.kind)->kernels(context);
  }
  return make_error(ErrorCode::kNotFound, fmt::format("{} has no op '{}'", c.name, op));
}

}  // namespace megartp::test
