// megartp launch: the kernels and edges that a CUDA graph of the model gets, and why.
#include <fmt/format.h>

#include "cli/cli.h"
#include "cli/launch_compile.h"
#include "cli/launch_options.h"
#include "launch/launch_text.h"

namespace megartp::cli {
namespace {

struct LaunchCommandArgs {
  CommonOptions common;
  ModelOptions model;
  BatchOptions batch;
  LaunchArgs launch;
  std::string backend = "cmp";
  std::string format = "text";
  std::string output;
  int64_t num_layers = 1;
  bool explain = false;
  bool compile = false;
  CompileArgs code;
};

std::string_view wait_name(const LaunchKernel& k) {
  if (!k.kernel.waits) return "never";
  if (!k.has_programmatic_in) return "-";
  switch (k.wait) {
    case DeviceWait::kEntry: return "entry";
    case DeviceWait::kPrologue: return "prologue";
    case DeviceWait::kPrefetch: return "prefetch";
  }
  return "?";
}

std::string summary(const LaunchPlan& plan) {
  Table table({"kernel", "grid", "threads", "smem", "MB", "us est.", "waits after", "priority"});
  for (const LaunchKernel& k : plan.kernels) {
    const auto& g = k.kernel.grid;
    const double mb = static_cast<double>(k.kernel.weight_bytes + k.kernel.other_bytes) / 1e6;
    table.add_row({k.name, fmt::format("{}", fmt::join(g, "x")), std::to_string(k.kernel.block),
                   std::to_string(k.kernel.smem_bytes), fmt::format("{:.3f}", mb),
                   fmt::format("{:.1f}", k.estimated_us), std::string(wait_name(k)), std::to_string(k.priority)});
  }
  std::string out = fmt::format("{}, {}: {} kernels, {} edges, {:.1f} MB\n\n{}\n", plan.name, to_string(plan.mode),
                                plan.kernels.size(), plan.edges.size(), static_cast<double>(plan.num_bytes()) / 1e6,
                                table.to_string());
  for (const LaunchEdge& e : plan.edges)
    out += fmt::format("{} -> {}: {}\n", plan.kernels[e.from].name, plan.kernels[e.to].name, to_string(e.level));
  return out;
}

Result<LaunchPlan> make_plan(const LaunchCommandArgs& a) {
  const Model model = MEGARTP_TRY(load_model(a.model));
  const OpGraph graph = glm52::attention_pre_graph(model.config, model.options, a.model.layer, a.num_layers);
  const ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(a.batch.m, a.batch.kv, a.batch.num_requests()));
  LaunchOptions options = MEGARTP_TRY(to_launch_options(a.launch));
  options.mode = MEGARTP_TRY(parse_launch_mode(a.backend));
  return build_launch_plan(graph, shapes, options);
}

int run_launch(const LaunchCommandArgs& a) {
  const LaunchPlan plan = value_or_exit(make_plan(a), a.common, "launch");
  if (a.compile) return compile_plan(plan, a.code, a.common);
  const std::string format = a.common.json ? "json" : a.format;
  std::string text = format == "json"      ? to_json(plan)
                     : format == "dot"     ? to_dot(plan)
                     : format == "mermaid" ? to_mermaid(plan)
                     : a.explain           ? explain(plan)
                                           : summary(plan);
  if (!text.ends_with('\n')) text += '\n';
  value_or_exit(write_output(a.output, text), a.common, "launch");
  return 0;
}

}  // namespace

Command add_launch_command(CLI::App& root) {
  auto args = std::make_shared<LaunchCommandArgs>();
  LaunchCommandArgs& a = *args;
  CLI::App* app = root.add_subcommand("launch", "Print the kernels and edges of a CUDA graph backend, proved");
  add_common_options(*app, a.common);
  add_model_options(*app, a.model);
  add_batch_options(*app, a.batch);
  add_launch_options(*app, a.launch);
  app->add_option("--layers", a.num_layers, "Consecutive layers")->check(CLI::Range(1, 1000))->capture_default_str();
  app->add_option("--backend", a.backend, "Chain or true dependencies, full or programmatic edges")
      ->check(CLI::IsMember({"serial", "pdl", "dag", "cmp"}))
      ->capture_default_str();
  app->add_option("--format", a.format,
                  "text; json is what verify launch reads; dot for Graphviz; mermaid for Markdown")
      ->check(CLI::IsMember({"text", "json", "dot", "mermaid"}))
      ->capture_default_str();
  app->add_flag("--explain", a.explain, "For every edge why it is there and what the prover says to its kind");
  CLI::Option* compile =
      app->add_flag("--compile", a.compile, "Compile the kernels into the cache and scan their code; needs no GPU");
  app->add_option("--arch", a.code.arch, "sm_90a, or sm_100a, whose code is not scanned")
      ->needs(compile)
      ->capture_default_str();
  app->add_flag("--no-cache", a.code.no_cache, "Compile anew and store nothing")->needs(compile);
  app->add_flag("--fuzz", a.code.fuzz, "The kernels with random delays that run --fuzz uses")->needs(compile);
  app->add_option("-o,--output", a.output, "File, - for stdout");
  app->footer(
      "Examples:\n"
      "  megartp launch glm52-attention-pre --backend cmp --explain\n"
      "  megartp launch glm52-attention-pre --compile\n"
      "  megartp launch glm52-attention-pre --edge 'A0->B0.gemm=full' --json | megartp verify launch -");
  return {app, [args] { return run_launch(*args); }};
}

}  // namespace megartp::cli
