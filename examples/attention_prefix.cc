// The front part of an attention block, from a recorded graph to checked numbers:
//
//   y = gemm(rmsnorm(x + residual, norm_w), proj_w)
//
// usage: attention_prefix [M [WORKERS]]      (default: 16 rows, 2 worker threads)
//
// Prints the graph as JSON and as a Mermaid flowchart, cuts it into tile tasks, runs them on worker threads, and
// compares the result with the double-precision reference. Exit status 1 when they differ by more than rounding.
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "backends/backend.h"
#include "base/bfloat16.h"
#include "base/rng.h"
#include "lowering/lower.h"
#include "megartp/op_graph.h"
#include "plan/kernel_plan.h"
#include "plan/target.h"

namespace {

using megartp::bf16;

constexpr int64_t kHidden = 512;
constexpr int64_t kProjected = 384;

megartp::OpGraph make_graph() {
  using megartp::DType;
  using megartp::Tensor;
  megartp::OpGraph graph("attention_prefix");
  const Tensor x = graph.runtime_arg("x", DType::kBF16, {"M", kHidden});
  const Tensor r = graph.runtime_arg("residual", DType::kBF16, {"M", kHidden});
  const Tensor norm_w = graph.bound_weight("norm_w", DType::kBF16, {kHidden});
  const Tensor proj_w = graph.bound_weight("proj_w", DType::kBF16, {kProjected, kHidden});

  Tensor y = graph.add(x, r);
  y = graph.rmsnorm(y, norm_w);
  y = graph.gemm(y, proj_w);
  graph.set_outputs({y});
  return graph;
}

// Random values for every tensor that the caller owns, by name.
struct Bindings {
  std::vector<std::pair<std::string, std::vector<bf16>>> tensors;

  megartp::Status bind_to(megartp::Executable& executable) {
    for (auto& [name, values] : tensors)
      MEGARTP_TRY(executable.bind(name, values.data(), values.size() * sizeof(bf16)));
    return {};
  }
};

megartp::Result<Bindings> random_bindings(const megartp::OpGraph& graph, const megartp::ShapeEnv& shapes) {
  Bindings bindings;
  for (const megartp::TensorInfo& t : graph.tensors()) {
    if (t.producer != megartp::kInvalidId) continue;
    size_t num_elems = 1;
    for (const int64_t d : MEGARTP_TRY(shapes.eval(t.shape))) num_elems *= static_cast<size_t>(d);
    std::vector<bf16> values(num_elems);
    megartp::RngSequence random(/*seed=*/1, megartp::Rng::stream_of(t.name));
    for (bf16& v : values) v = megartp::to_bf16(random.bell());
    bindings.tensors.emplace_back(t.name, std::move(values));
  }
  return bindings;
}

// Runs an executable on the inputs and returns the output, which it poisons first.
megartp::Result<std::vector<bf16>> run(megartp::Executable& executable, Bindings& inputs, const std::string& output,
                                       size_t num_elems) {
  std::vector<bf16> values(num_elems);
  MEGARTP_TRY(inputs.bind_to(executable));
  MEGARTP_TRY(executable.bind(output, values.data(), num_elems * sizeof(bf16)));
  executable.poison();
  MEGARTP_TRY(executable.run());
  return values;
}

// 1 - 2<a, b> / (|a|^2 + |b|^2): 0 for equal vectors, NaN when a value was never written.
double calc_diff(const std::vector<bf16>& a, const std::vector<bf16>& b) {
  double ab = 0;
  double aa_bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const double u = megartp::to_float(a[i]);
    const double v = megartp::to_float(b[i]);
    ab += u * v;
    aa_bb += u * u + v * v;
  }
  return 1 - 2 * ab / aa_bb;
}

// Both sides round the same sums to BF16 three times, from fp32 and from double: a value near a rounding edge may
// differ by one BF16 unit (2^-8), which weighs 2^-17 in this measure; few do.
constexpr double kMaxDiff = 1e-6;

megartp::Result<bool> compare_backends(const megartp::OpGraph& graph, int64_t m, uint32_t num_workers) {
  megartp::ShapeEnv shapes;
  shapes.set("M", m);
  const megartp::TaskGraph tasks = MEGARTP_TRY(megartp::lower(graph, shapes));
  const megartp::TargetDesc target = MEGARTP_TRY(megartp::find_target("cpu"));
  megartp::PackOptions options;
  options.num_workers = num_workers;
  const auto plan = std::make_shared<const megartp::KernelPlan>(MEGARTP_TRY(megartp::pack(tasks, target, options)));
  fmt::print("plan: {} tasks, {} events, {} workers, queues of {}\n", plan->num_tasks, plan->events.size(),
             plan->num_workers, plan->queue_depth);

  Bindings inputs = MEGARTP_TRY(random_bindings(graph, shapes));
  const std::string output = graph.tensor(graph.outputs()[0]).name;
  const auto num_elems = static_cast<size_t>(m * kProjected);
  const std::unique_ptr<megartp::Executable> threads = MEGARTP_TRY(megartp::prepare_cpu_threads(plan));
  const std::unique_ptr<megartp::Executable> reference = MEGARTP_TRY(megartp::prepare_cpu_reference(graph, shapes));
  const std::vector<bf16> actual = MEGARTP_TRY(run(*threads, inputs, output, num_elems));
  const std::vector<bf16> expected = MEGARTP_TRY(run(*reference, inputs, output, num_elems));
  const double diff = calc_diff(actual, expected);
  const bool good = diff <= kMaxDiff;
  fmt::print("cpu-threads against cpu-reference: calc_diff {:.3g}, limit {:.3g}: {}\n", diff, kMaxDiff,
             good ? "ok" : "MISMATCH");
  return good;
}

bool parse(std::string_view text, int64_t low, int64_t high, int64_t& out) {
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), out);
  return ec == std::errc{} && end == text.data() + text.size() && out >= low && out <= high;
}

}  // namespace

int main(int argc, char** argv) {
  int64_t m = 16;
  int64_t num_workers = 2;
  if (argc > 3 || (argc > 1 && !parse(argv[1], 1, 4096, m)) || (argc > 2 && !parse(argv[2], 1, 64, num_workers))) {
    fmt::print(stderr, "usage: attention_prefix [M [WORKERS]]; M must be 1 to 4096, WORKERS 1 to 64\n");
    return 2;
  }
  const megartp::OpGraph graph = make_graph();
  if (!graph.status()) {
    fmt::print(stderr, "attention_prefix: {}\n", graph.status().error().to_string());
    return megartp::exit_code(graph.status().error().code);
  }
  fmt::print("{}\n{}\n", megartp::to_json(graph), megartp::to_mermaid(graph));
  const megartp::Result<bool> good = compare_backends(graph, m, static_cast<uint32_t>(num_workers));
  if (!good) {
    fmt::print(stderr, "attention_prefix: {}\n", good.error().to_string());
    return megartp::exit_code(good.error().code);
  }
  return *good ? 0 : 1;
}
