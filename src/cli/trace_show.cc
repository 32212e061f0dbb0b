// megartp trace show: one trace or several as text, or in the format of another program.
#include <sys/ioctl.h>
#include <unistd.h>
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "cli/trace.h"

namespace megartp::cli {
namespace {

struct ShowArgs {
  CommonOptions common;
  std::vector<std::string> files;
  std::string format = "text";
  std::string output;
  uint32_t width = 0;  // 0: the terminal's
  uint32_t lanes = 40;
};

uint32_t terminal_width() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 40) return size.ws_col;
  return 100;
}

std::string text_of(const ShowArgs& a, const std::vector<trace::AnalysedTrace>& traces) {
  trace::TextOptions options;
  options.width = a.width != 0 ? a.width : terminal_width();
  options.max_lanes = a.lanes;
  const bool to_stdout = a.output.empty() || a.output == "-";
  options.color = a.common.color == "always" || (to_stdout && use_color(a.common, STDOUT_FILENO));
  std::string text;
  for (const trace::AnalysedTrace& t : traces) text += (text.empty() ? "" : "\n") + trace::to_text(t, options);
  return text;
}

int run_show(const ShowArgs& a) {
  constexpr std::string_view kName = "trace-show";
  std::vector<trace::AnalysedTrace> traces;
  for (const std::string& file : a.files) {
    trace::AnalysedTrace t;
    t.trace = value_or_exit(trace::load_trace(file), a.common, kName);
    t.analysis = trace::analyse(t.trace);
    traces.push_back(std::move(t));
  }
  if (a.common.json) {
    Json j;
    j["traces"] = Json::array();
    for (const trace::AnalysedTrace& t : traces) j["traces"].push_back(trace_summary_json(t));
    return print_json(kName, std::move(j));
  }
  if (a.format == "svg" && traces.size() != 1)
    return print_error(Error{ErrorCode::kInvalidArgument, "trace show: an svg picture shows one trace"}, a.common,
                       kName);
  if (a.format == "perfetto" && (a.output.empty() || a.output == "-") && isatty(STDOUT_FILENO) != 0)
    return print_error(
        Error{ErrorCode::kInvalidArgument, "trace show: perfetto's format is binary; give a file with -o"}, a.common,
        kName);
  const std::string text = a.format == "perfetto" ? trace::to_perfetto(traces)
                           : a.format == "chrome" ? trace::to_chrome(traces)
                           : a.format == "svg"    ? trace::to_svg(traces.front())
                           : a.format == "html"   ? trace::to_html(traces)
                           : a.format == "csv"    ? trace::to_csv(traces)
                                                  : text_of(a, traces);
  value_or_exit(write_output(a.output, text), a.common, kName);
  return 0;
}

}  // namespace

Command add_trace_show_command(CLI::App& trace) {
  auto args = std::make_shared<ShowArgs>();
  ShowArgs& a = *args;
  CLI::App* app = trace.add_subcommand("show", "Timeline, critical path, slack and idle time of saved traces");
  add_common_options(*app, a.common);
  app->add_option("traces", a.files, "Trace files")->required();
  app->add_option("--format", a.format,
                  "text; perfetto and chrome for their viewers; svg; html is one file that needs no network; csv")
      ->check(CLI::IsMember({"text", "perfetto", "chrome", "svg", "html", "csv"}))
      ->capture_default_str();
  app->add_option("--width", a.width, "Columns of the text (default: the terminal's, else 100)")
      ->check(CLI::Range(40U, 1000U));
  app->add_option("--lanes", a.lanes, "Lanes that the text shows")->capture_default_str();
  app->add_option("-o,--output", a.output, "File, - for stdout");
  app->footer(
      "Examples:\n"
      "  megartp trace show layer.trace\n"
      "  megartp trace show cmp.trace mega.trace --format html -o both.html\n"
      "  megartp trace show layer.trace --format perfetto -o layer.pftrace");
  return {app, [args] { return run_show(*args); }};
}

}  // namespace megartp::cli
