// megartp graph: the operator graph as JSON, DOT or Mermaid.
#include <iostream>

#include "base/file.h"
#include "cli/cli.h"
#include "megartp/op_graph.h"

namespace megartp::cli {
namespace {

struct GraphArgs {
  CommonOptions common;
  ModelOptions model;
  std::string file;
  std::string format = "mermaid";
  std::string output;
  int64_t num_layers = 1;
};

Result<OpGraph> make_graph(const GraphArgs& a) {
  if (!a.file.empty()) {
    auto graph = graph_from_json(MEGARTP_TRY(read_file(a.file)));
    if (!graph) return tl::unexpected(std::move(graph).error().with("path", a.file));
    return graph;
  }
  const Model model = MEGARTP_TRY(load_model(a.model));
  OpGraph graph = glm52::attention_pre_graph(model.config, model.options, a.model.layer, a.num_layers);
  if (!graph.status()) return tl::unexpected(graph.status().error());
  return graph;
}

int run_graph(const GraphArgs& a) {
  if (a.file.empty() == a.model.model.empty())
    return print_error(Error{ErrorCode::kInvalidArgument, "graph: give a model name or --file, one of the two"},
                       a.common, "graph");
  const OpGraph graph = value_or_exit(make_graph(a), a.common, "graph");
  const std::string format = a.common.json ? "json" : a.format;
  std::string text = format == "dot" ? to_dot(graph) : format == "mermaid" ? to_mermaid(graph) : to_json(graph);
  if (!text.ends_with('\n')) text += '\n';
  value_or_exit(write_output(a.output, text), a.common, "graph");
  return 0;
}

}  // namespace

Command add_graph_command(CLI::App& root) {
  auto args = std::make_shared<GraphArgs>();
  CLI::App* app = root.add_subcommand("graph", "Print the operator graph");
  add_common_options(*app, args->common);
  add_model_options(*app, args->model);
  app->get_option("model")->required(false);
  app->add_option("--file", args->file, "A graph in JSON instead of a model");
  app->add_option("--layers", args->num_layers, "Consecutive layers")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  app->add_option("--format", args->format, "json is lossless; dot for Graphviz; mermaid for Markdown")
      ->check(CLI::IsMember({"json", "dot", "mermaid"}))
      ->capture_default_str();
  app->add_option("-o,--output", args->output, "File, - for stdout");
  app->footer("Example:\n  megartp graph glm52-attention-pre --format dot | dot -Tsvg > graph.svg");
  return {app, [args] { return run_graph(*args); }};
}

}  // namespace megartp::cli
