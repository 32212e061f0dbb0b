// megartp explain-fault: what a stuck run was waiting for, in one sentence, then everybody's place.
#include <iostream>
#include <optional>

#include "cli/cli.h"
#include "plan/fault_dump.h"

namespace megartp::cli {
namespace {

constexpr const char* kExplainCommand = "explain-fault";

struct ExplainFaultArgs {
  CommonOptions common;
  std::string file;
  std::string plan;
};

int run_explain_fault(const ExplainFaultArgs& a) {
  const FaultDump dump = value_or_exit(load_fault_dump(a.file), a.common, kExplainCommand);
  std::optional<KernelPlan> plan;
  if (!a.plan.empty()) plan = value_or_exit(load_plan(a.plan), a.common, kExplainCommand);
  const FaultExplanation explained =
      value_or_exit(explain_fault(dump, plan ? &*plan : nullptr), a.common, kExplainCommand);
  if (a.common.json) {
    Json j;
    j["file"] = a.file;
    j["cause"] = explained.sentence;
    j["lines"] = explained.lines;
    j["dump"] = Json::parse(fault_dump_to_json(dump));
    return print_json(kExplainCommand, std::move(j));
  }
  std::cout << explained.sentence << "\n";
  if (a.common.quiet) return 0;
  std::cout << "\n";
  for (const std::string& line : explained.lines) std::cout << "  " << line << "\n";
  std::cout << "\nrun " << (dump.records.front().epoch) << " of a plan with " << dump.num_tasks << " tasks, "
            << dump.num_events << " events, " << dump.num_workers << " workers, "
            << (dump.schedule == abi::kScheduleDynamic ? "dynamic" : "static") << " schedule\n";
  return 0;
}

}  // namespace

Command add_explain_fault_command(CLI::App& root) {
  auto args = std::make_shared<ExplainFaultArgs>();
  CLI::App* app = root.add_subcommand(kExplainCommand, "Say why a run got stuck, from the dump that it left");
  add_common_options(*app, args->common);
  app->add_option("dump", args->file, "Fault dump, binary or JSON")->required();
  app->add_option("--plan", args->plan, "The plan that was run: names ops, tiles and who has yet to signal");
  app->footer(
      "Example:\n  megartp run glm52-attention-pre --plan layer.plan --fault-dump hang.dump ||\n"
      "    megartp explain-fault hang.dump --plan layer.plan");
  return {app, [args] { return run_explain_fault(*args); }};
}

}  // namespace megartp::cli
