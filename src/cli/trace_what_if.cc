// megartp trace what-if: a recorded run replayed with something changed, and the prediction judged by a measurement.
#include <cmath>
#include <iostream>

#include <fmt/format.h>

#include "cli/trace.h"
#include "trace/what_if.h"

namespace megartp::cli {
namespace {

struct WhatIfArgs {
  CommonOptions common;
  std::string file;
  std::vector<std::string> faster, free_edges;
  std::string packer;
  uint32_t workers = 0;
  std::string against;
  double max_error = 0;
};

Result<trace::WhatIf> change_of(const WhatIfArgs& a) {
  trace::WhatIf change;
  for (const std::string& text : a.faster) change.faster.push_back(MEGARTP_TRY(trace::parse_faster(text)));
  for (const std::string& text : a.free_edges) change.free_edges.push_back(MEGARTP_TRY(trace::parse_free_edge(text)));
  if (!a.packer.empty()) change.packer = MEGARTP_TRY(parse_packer(a.packer));
  change.num_workers = a.workers;
  return change;
}

int run_what_if(const WhatIfArgs& a) {
  constexpr std::string_view kName = "trace-what-if";
  const trace::WhatIf change = value_or_exit(change_of(a), a.common, kName);
  const trace::Trace trace = value_or_exit(trace::load_trace(a.file), a.common, kName);
  const trace::WhatIfResult r = value_or_exit(trace::what_if(trace, change), a.common, kName);
  double measured_ns = 0, error = 0;
  if (!a.against.empty()) {
    measured_ns = static_cast<double>(value_or_exit(trace::load_trace(a.against), a.common, kName).meta.span_ns);
    error = r.predicted_ns / measured_ns - 1;
  }
  const bool is_off = a.max_error > 0 && std::abs(error) * 100 > a.max_error;
  const double gain = static_cast<double>(r.measured_ns) / r.predicted_ns;
  if (a.common.json) {
    Json j{{"measured_ns", r.measured_ns},      {"replay_ns", r.replay_ns},       {"replay_error", r.replay_error()},
           {"changed_replay_ns", r.changed_ns}, {"predicted_ns", r.predicted_ns}, {"speedup", gain}};
    if (!a.against.empty()) j["against"] = {{"measured_ns", measured_ns}, {"error", error}};
    print_json(kName, std::move(j));
  } else {
    std::cout << fmt::format("measured    {:>12.1f} us\nreplayed    {:>12.1f} us  {:+.1f} %\n",
                             static_cast<double>(r.measured_ns) / 1e3, static_cast<double>(r.replay_ns) / 1e3,
                             100 * r.replay_error());
    std::cout << fmt::format("predicted   {:>12.1f} us  {:.3f} times as fast\n", r.predicted_ns / 1e3, gain);
    if (!a.against.empty())
      std::cout << fmt::format("changed run {:>12.1f} us  the prediction is {:+.1f} % off\n", measured_ns / 1e3,
                               100 * error);
  }
  return is_off ? exit_code(ErrorCode::kMismatch) : 0;
}

}  // namespace

Command add_trace_what_if_command(CLI::App& trace) {
  auto args = std::make_shared<WhatIfArgs>();
  WhatIfArgs& a = *args;
  CLI::App* app = trace.add_subcommand("what-if", "How long the run would have taken with something changed");
  add_common_options(*app, a.common);
  app->add_option("trace", a.file, "Trace file")->required();
  app->add_option("--faster", a.faster, "OP=FACTOR: the op's tiles take 1 / FACTOR; may be repeated");
  app->add_option("--free", a.free_edges, "PRODUCER->CONSUMER: the consumer's tasks do not wait for the producer's");
  app->add_option("--packer", a.packer, "The tasks packed anew by this packer")->check(CLI::IsMember(packer_names()));
  app->add_option("--workers", a.workers, "The tasks packed anew for so many workers")->check(CLI::Range(1U, 65536U));
  CLI::Option* against =
      app->add_option("--against", a.against, "Trace of a run with that change: prints the prediction's error");
  app->add_option("--max-error", a.max_error, "Exit code 1 when the error is larger, percent")->needs(against);
  app->footer(
      "Examples:\n"
      "  megartp trace what-if layer.trace --faster B0=2 --free 'A0->B0'\n"
      "  megartp trace what-if layer.trace --packer round-robin --against other.trace");
  return {app, [args] { return run_what_if(*args); }};
}

}  // namespace megartp::cli
