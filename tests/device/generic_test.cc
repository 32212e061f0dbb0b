// What the generic kernels compute, emulated on the host, against the families' double-precision references.
#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/float8.h"
#include "base/math.h"
#include "device/emulated_kernels.h"
#include "device/shape_table.h"
#include "ops/common/paged_cache.h"
#include "support/op_harness.h"

namespace megartp::test {
namespace {

constexpr int64_t kPositions = 50;

OpGraph graph_of(const OpCase& c) {
  OpGraph graph("test");
  std::vector<Tensor> inputs;
  for (const OpInput& in : c.inputs)
    inputs.push_back(in.is_state ? graph.state(in.name, in.dtype, in.shape)
                                 : graph.runtime_arg(in.name, in.dtype, in.shape));
  graph.op(c.kind, "op", inputs, c.attrs);
  return graph;
}

// Inputs after the run and outputs, as of OpResult.
OpResult run_emulated(const OpCase& c, const OpGraph& graph) {
  const OpInfo& op = graph.ops()[0];
  TestDeviceContext context(graph, c.shapes, op);
  const auto kernels = find_device_family(c.kind)->kernels(context).value();
  std::vector<HostBuffer> buffers;
  for (TensorId id = 0; id < context.num_tensors(); ++id) {
    const ConcreteTensor& t = context.tensor(id);
    HostBuffer b{t.dtype, t.dims, {}};
    b.bytes.assign(b.count() * size_in_bytes(t.dtype), std::byte{0xff});
    buffers.push_back(std::move(b));
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) c.inputs[i].fill(buffers[op.inputs[i]]);
  // A constant is the context's last tensor.
  if (!context.constant().empty())
    std::memcpy(buffers.back().bytes.data(), context.constant().data(), buffers.back().bytes.size());
  for (const DeviceKernel& k : kernels)
    EXPECT_TRUE(emulate_kernel(k, [&](TensorId id) { return static_cast<void*>(buffers[id].bytes.data()); }))
        << k.entry;
  OpResult r;
  for (const TensorId id : op.inputs) r.inputs.push_back(buffers[id]);
  for (const TensorId id : op.outputs) r.outputs.push_back(buffers[id]);
  return r;
}

double max_difference(const OpCase& c, const OpInfo& op, const HostBuffer& got, const HostBuffer& want) {
  const auto values = [&](const HostBuffer& b) { return to_doubles(b.dtype, b.bytes.data(), b.count()); };
  if (got.dtype != DType::kU8) return calc_diff(values(got), values(want));
  // A cache: share of bytes, as a rounding may flip a code.
  (void)c, (void)op;
  size_t wrong = 0;
  for (size_t i = 0; i < got.bytes.size(); ++i) wrong += got.bytes[i] != want.bytes[i] ? 1 : 0;
  return static_cast<double>(wrong) / static_cast<double>(got.bytes.size());
}

// `limit`: calc_diff, or the share of a cache's bytes. One step of an FP8 code among a few hundred moves calc_diff by
// 1e-5.
void check(const OpCase& c, double limit = 3e-5) {
  SCOPED_TRACE(c.kind);
  const OpGraph graph = graph_of(c);
  ASSERT_TRUE(graph.status()) << graph.status().error().to_string();
  const OpInfo& op = graph.ops()[0];
  const OpResult got = run_emulated(c, graph);
  const OpResult want = run_op_reference(c);
  const bool is_partial = !c.partial_outputs.empty();
  for (size_t i = 0; i < got.outputs.size(); ++i) {
    const std::string& name = graph.tensors()[op.outputs[i]].name;
    if (is_partial && name.ends_with(c.partial_outputs[0])) continue;
    EXPECT_LE(max_difference(c, op, got.outputs[i], want.outputs[i]), limit) << name;
  }
  for (size_t i = 0; i < got.inputs.size(); ++i)
    if (c.inputs[i].is_state)
      EXPECT_LE(max_difference(c, op, got.inputs[i], want.inputs[i]), limit) << c.inputs[i].name;
}

OpCase make(std::string_view kind, int64_t m, std::vector<OpInput> inputs, Attrs attrs = {}) {
  OpCase c;
  c.kind = std::string(kind);
  c.attrs = std::move(attrs);
  c.shapes.set("M", m);
  c.inputs = std::move(inputs);
  return c;
}

// x, x_scale, w, w_scale.
std::vector<OpInput> projection(int64_t n, int64_t k) {
  const int64_t blocks = ceil_div<int64_t>(k, 128);
  return {{"x", DType::kF8E4M3, {"M", k}, fill_normal(1, 100)},
          {"x_scale", DType::kF32, {"M", blocks}, fill_uniform(2, 0.005, 0.02)},
          {"w", DType::kF8E4M3, {n, k}, fill_normal(3, 60)},
          {"w_scale", DType::kF32, {ceil_div<int64_t>(n, 128), blocks}, fill_uniform(4, 1e-4, 3e-4)}};
}
void append(std::vector<OpInput>& to, std::vector<OpInput> more) {
  for (OpInput& in : more) to.push_back(std::move(in));
}
OpInput positions(uint64_t seed) { return {"positions", DType::kI32, {"M"}, fill_int(seed, 0, kPositions)}; }
OpInput cos_sin(int64_t rope) { return {"cos_sin", DType::kF32, {kPositions, rope}, fill_uniform(8, -1, 1)}; }
OpInput slots(int64_t m) {
  std::vector<int64_t> values;
  for (int64_t i = 0; i < m; ++i) values.push_back((i * 37 + 11) % 128);
  return {"slot_mapping", DType::kI32, {"M"}, fill_values(values)};
}
OpInput cache(std::string_view name, int64_t bytes) {
  return {std::string(name), DType::kU8, {2, bytes}, fill_const(0x5a), false, true};
}

TEST(GenericKernels, PlainFamilies) {
  const auto bf16 = [](std::string_view name, Shape shape, uint64_t seed) {
    return OpInput{std::string(name), DType::kBF16, std::move(shape), fill_normal(seed)};
  };
  check(make("add", 3, {bf16("a", {"M", 77}, 1), bf16("b", {"M", 77}, 2)}), 0);
  check(make("rmsnorm", 5, {bf16("x", {"M", 301}, 1), bf16("w", {301}, 2)}), 1e-6);
  check(make("gemm", 3, {bf16("x", {"M", 301}, 1), bf16("w", {9, 301}, 2)}), 1e-6);
  check(make("head_gate", 3, {bf16("y", {"M", 300}, 1), bf16("w", {9, 300}, 2)}), 1e-9);
  for (const bool pow2 : {false, true})
    check(make("add_rmsnorm_quant", 3,
               {bf16("x", {"M", 1001}, 1), bf16("residual", {"M", 1001}, 2), bf16("w", {1001}, 3)},
               {{"pow2_scale", pow2}}));
}

TEST(GenericKernels, QkvA) {
  for (const auto& [m, k, q_lora, kv_lora, rope] :
       std::vector<std::array<int64_t, 5>>{{3, 300, 200, 72, 8}, {5, 64, 6, 3, 2}, {4, 257, 130, 130, 10}}) {
    std::vector<OpInput> inputs = projection(q_lora, k);
    std::vector<OpInput> kv = projection(kv_lora + rope, k);
    kv[2].name = "w_kv", kv[3].name = "w_kv_scale";
    append(inputs, {kv[2], kv[3]});
    append(inputs, {{"q_norm", DType::kBF16, {q_lora}, fill_normal(5, 0.2, 1.0)},
                    {"kv_norm", DType::kBF16, {kv_lora}, fill_normal(6, 0.2, 1.0)}});
    append(inputs, {positions(7), cos_sin(rope), slots(m), cache("cache", 64 * ops::mla_record_bytes(kv_lora, rope))});
    check(make("qkv_a", m, inputs, {{"mla_pow2_scale", k == 300}}), 1e-4);
  }
}

TEST(GenericKernels, IndexerK) {
  for (const bool hadamard : {false, true})
    for (const bool interleave : {false, true}) {
      std::vector<OpInput> inputs = projection(64, 200);
      append(inputs, {{"norm_w", DType::kBF16, {64}, fill_normal(5, 0.2, 1.0)},
                      {"norm_b", DType::kBF16, {64}, fill_normal(6, 0.1)}});
      append(inputs, {positions(7), cos_sin(32), slots(3), cache("cache", ops::index_page_bytes(64))});
      check(make("indexer_k", 3, inputs, {{"hadamard", hadamard}, {"interleave", interleave}}), 1e-3);
    }
}

TEST(GenericKernels, IndexerQ) {
  for (const auto& [heads, dim, rope, slices] :
       std::vector<std::array<int64_t, 4>>{{5, 64, 32, 2}, {2, 200, 64, 3}, {1, 2, 2, 1}}) {
    std::vector<OpInput> inputs = projection(heads * dim, 200);
    append(inputs, {{"gate_partials", DType::kF32, {slices, "M", heads}, fill_normal(5)}, positions(6), cos_sin(rope)});
    check(make("indexer_q", 3, inputs,
               {{"heads", heads},
                {"score_scale", 0.1},
                {"interleave", dim == 200},
                {"hadamard", dim == 64},
                {"pow2_scale", dim == 2}}),
          1e-4);
  }
}

TEST(GenericKernels, MainQAndAbsorb) {
  std::vector<OpInput> inputs = projection(3 * 16, 300);
  append(inputs, {positions(5), cos_sin(6)});
  OpCase main = make("main_q", 5, inputs,
                     {{"heads", int64_t{3}}, {"nope", int64_t{10}}, {"rope", int64_t{6}}, {"kv_lora", int64_t{7}}});
  // The first columns of q_out are main_q's neighbour's: compare the others.
  main.partial_outputs = {"q_out"};
  check(main, 1e-6);
  const OpGraph graph = graph_of(main);
  const OpResult got = run_emulated(main, graph);
  const OpResult want = run_op_reference(main);
  std::vector<double> a, b;
  for (int64_t row = 0; row < 15; ++row)
    for (int64_t i = 7; i < 13; ++i) {
      a.push_back(to_doubles(DType::kBF16, got.outputs[1].bytes.data(), 15 * 13)[static_cast<size_t>(row * 13 + i)]);
      b.push_back(to_doubles(DType::kBF16, want.outputs[1].bytes.data(), 15 * 13)[static_cast<size_t>(row * 13 + i)]);
    }
  EXPECT_LE(calc_diff(a, b), 1e-6);
  check(make("q_absorb", 3,
             {{"q_nope", DType::kBF16, {"M", 2, 7}, fill_normal(1)},
              {"kv_b", DType::kF8E4M3, {24, 140}, fill_normal(2, 60)},
              {"kv_b_scale", DType::kF32, {1, 2}, fill_uniform(3, 1e-4, 3e-4)},
              {"q_out", DType::kBF16, {"M", 2, 148}, fill_normal(4), false, true}},
             {{"v", int64_t{5}}}),
        1e-6);
}

TEST(GenericKernels, Score) {
  constexpr int64_t kDim = 40;
  OpCase c = make("indexer_score", 4,
                  {{"q", DType::kF8E4M3, {"M", 5, kDim}, fill_normal(1, 50)},
                   {"weights", DType::kF32, {"M", 5}, fill_normal(2)},
                   {"cache",
                    DType::kU8,
                    {4, ops::index_page_bytes(kDim)},
                    [](HostBuffer& b) {
                      for (int64_t page = 0; page < 4; ++page) {
                        uint8_t* keys = b.as<uint8_t>() + page * ops::index_page_bytes(kDim);
                        for (int64_t i = 0; i < 64 * kDim; ++i)
                          keys[i] = static_cast<uint8_t>((i * 37 + page * 11) % 0x70 | (i % 3 == 0 ? 0x80 : 0));
                        for (int64_t k = 0; k < 64; ++k) {
                          const float scale = 0.01F * static_cast<float>(1 + k % 5);
                          std::memcpy(keys + 64 * kDim + 4 * k, &scale, sizeof scale);
                        }
                      }
                    },
                    false,
                    true},
                   {"context_lens", DType::kI32, {"M"}, fill_values({98, 99, 100, 64})},
                   {"block_table", DType::kI32, {2, 3}, fill_values({2, 0, -1, 3, -1, -1})}});
  c.shapes.set("KV", 100);
  c.shapes.requests = {{3, 100}, {1, 64}};
  check(c, 1e-6);
}

}  // namespace
}  // namespace megartp::test
