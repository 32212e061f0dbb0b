#include "cli/launch_compile.h"

#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "backends/cuda_graph/loaded_code.h"
#include "codegen/check_code.h"

namespace megartp::cli {
namespace {

std::string_view verdict_name(codegen::CodeVerdict verdict) {
  switch (verdict) {
    case codegen::CodeVerdict::kBroken: return "broken";
    case codegen::CodeVerdict::kUnknown: return "unknown";
    case codegen::CodeVerdict::kLostTime: return "lost time";
  }
  return "?";
}

Json to_json(const LaunchPlan& plan, const codegen::CompiledKernels& compiled,
             const std::vector<codegen::CodeFinding>& findings) {
  Json j{{"compiled", compiled.stats.num_compiled},
         {"cached", compiled.stats.num_cached},
         {"seconds", compiled.stats.seconds}};
  j["kernels"] = Json::array();
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const codegen::CompiledKernel& code = compiled.kernels[compiled.index_of_request[i]];
    j["kernels"].push_back({{"kernel", plan.kernels[i].name},
                            {"entry", code.entry},
                            {"symbol", code.symbol},
                            {"registers", code.num_registers},
                            {"local_bytes", code.local_bytes},
                            {"static_smem_bytes", code.static_smem_bytes},
                            {"dynamic_smem_bytes", plan.kernels[i].kernel.smem_bytes},
                            {"threads", plan.kernels[i].kernel.block}});
  }
  j["findings"] = Json::array();
  for (const codegen::CodeFinding& f : findings)
    j["findings"].push_back({{"kernel", plan.kernels[f.kernel].name},
                             {"verdict", verdict_name(f.verdict)},
                             {"rule", f.rule},
                             {"message", f.message}});
  return j;
}

void print_text(const LaunchPlan& plan, const codegen::CompiledKernels& compiled,
                const std::vector<codegen::CodeFinding>& findings) {
  Table table({"kernel", "threads", "registers", "of an SM", "static smem", "dynamic smem", "entry"});
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    const codegen::CompiledKernel& code = compiled.kernels[compiled.index_of_request[i]];
    const DeviceKernel& k = plan.kernels[i].kernel;
    constexpr double kSmRegisters = 65536;
    table.add_row({plan.kernels[i].name, std::to_string(k.block), std::to_string(code.num_registers),
                   fmt::format("{:.0f} %", 100.0 * code.num_registers * k.block / kSmRegisters),
                   std::to_string(code.static_smem_bytes), std::to_string(k.smem_bytes), code.entry});
  }
  std::cout << table.to_string();
  for (const codegen::CodeFinding& f : findings)
    std::cout << fmt::format("{}: {}: {}\n", verdict_name(f.verdict), f.rule, f.message);
  std::cout << fmt::format("{} kernels, {} compiled, {} from the cache, {:.2f} s, {} findings\n",
                           compiled.kernels.size(), compiled.stats.num_compiled, compiled.stats.num_cached,
                           compiled.stats.seconds, findings.size());
}

}  // namespace

int compile_plan(const LaunchPlan& plan, const CompileArgs& args, const CommonOptions& common) {
  codegen::CompileOptions options;
  options.arch = args.arch;
  options.use_cache = !args.no_cache;
  if (args.fuzz) options.more_options.emplace_back("-DMEGARTP_FUZZ=1");
  const std::vector<codegen::KernelRequest> requests = cuda_graph::kernel_requests(plan);
  const codegen::CompiledKernels compiled =
      value_or_exit(codegen::compile_kernels(requests, options), common, "launch");
  std::vector<codegen::CodeFinding> findings;
  if (args.arch.starts_with("sm_90")) findings = value_or_exit(codegen::check_code(plan, compiled), common, "launch");
  const bool is_broken = std::ranges::any_of(
      findings, [](const codegen::CodeFinding& f) { return f.verdict == codegen::CodeVerdict::kBroken; });
  if (common.json) {
    print_json("launch-compile", to_json(plan, compiled, findings));
  } else {
    print_text(plan, compiled, findings);
  }
  return is_broken ? 1 : 0;
}

}  // namespace megartp::cli
