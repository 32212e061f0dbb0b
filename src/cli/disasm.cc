// megartp disasm: the text listing of a saved plan.
#include "cli/cli.h"
#include "plan/kernel_plan.h"

namespace megartp::cli {
namespace {

struct DisasmArgs {
  CommonOptions common;
  std::string file;
  std::string output;
};

int run_disasm(const DisasmArgs& a) {
  const KernelPlan plan = value_or_exit(load_plan(a.file), a.common, "disasm");
  const std::string text = disassemble(plan);
  if (a.common.json) {
    Json j;
    j["file"] = a.file;
    j["tasks"] = plan.num_tasks;
    j["listing"] = text;
    return print_json("disasm", std::move(j));
  }
  value_or_exit(write_output(a.output, text), a.common, "disasm");
  return 0;
}

}  // namespace

Command add_disasm_command(CLI::App& root) {
  auto args = std::make_shared<DisasmArgs>();
  CLI::App* app = root.add_subcommand("disasm", "List the instructions of a saved plan");
  add_common_options(*app, args->common);
  app->add_option("plan", args->file, "Plan file")->required();
  app->add_option("-o,--output", args->output, "File, - for stdout");
  app->footer("Example:\n  megartp plan glm52-attention-pre -q -o layer.plan && megartp disasm layer.plan | head -30");
  return {app, [args] { return run_disasm(*args); }};
}

}  // namespace megartp::cli
