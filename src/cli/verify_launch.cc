// megartp verify launch: the prover for launch graphs.
#include <algorithm>
#include <iostream>

#include <fmt/format.h>

#include "base/file.h"
#include "cli/verify.h"
#include "verify/launch/launch_json.h"
#include "verify/launch/launch_prover.h"

namespace megartp::cli {
namespace {

constexpr const char* kVerifyLaunch = "verify-launch";

struct VerifyLaunchArgs {
  CommonOptions common;
  std::string file;
};

Result<launch::LoweredProgram> load(const std::string& path) {
  const std::string text = MEGARTP_TRY(read_file(path == "-" ? "/dev/stdin" : path));
  auto input = launch::launch_from_json(text);
  if (!input) return tl::unexpected(std::move(input).error().with("path", path));
  auto program = launch::to_graph(*input);
  if (!program) return tl::unexpected(std::move(program).error().with("path", path));
  return program;
}

Json finding_json(const launch::Graph& graph, const launch::Finding& f) {
  Json j;
  j["rule"] = launch::to_string(f.rule);
  j["severity"] = f.severity == launch::Severity::kError ? "error" : "warning";
  j["message"] = f.message;
  j["nodes"] = Json::array();
  for (const uint32_t n : f.nodes) j["nodes"].push_back(graph.nodes[n].name);
  if (f.edge)
    j["edge"] = {{"from", graph.nodes[graph.edges[*f.edge].from].name},
                 {"to", graph.nodes[graph.edges[*f.edge].to].name}};
  if (f.conflict) {
    const launch::Conflict& c = *f.conflict;
    j["buffer"] = graph.buffers[graph.nodes[c.first].accesses[c.first_access].buffer].name;
    j["range"] = {c.begin, c.end};
  }
  j["interleaving"] = Json::array();
  for (const launch::Step& s : f.steps)
    if (!s.text.empty()) j["interleaving"].push_back(s.text);
  j["passes_when"] = f.remedies;
  return j;
}

Json edge_json(const launch::Graph& graph, const launch::EdgeProof& proof) {
  const launch::Edge& e = graph.edges[proof.edge];
  return {{"from", graph.nodes[e.from].name},
          {"to", graph.nodes[e.to].name},
          {"kind", launch::to_string(e.kind)},
          {"holds", proof.holds},
          {"proof", proof.text}};
}

size_t count(const launch::Proof& proof, launch::Severity severity) {
  return static_cast<size_t>(std::ranges::count(proof.findings, severity, &launch::Finding::severity));
}

Json to_json(const std::string& file, const launch::Graph& graph, const launch::Proof& proof) {
  Json j;
  j["file"] = file;
  j["ok"] = proof.is_ok();
  j["nodes"] = graph.nodes.size();
  j["conflicts"] = proof.num_conflicts;
  j["errors"] = count(proof, launch::Severity::kError);
  j["warnings"] = count(proof, launch::Severity::kWarning);
  j["findings_left_out"] = proof.num_left_out;
  j["edges"] = Json::array();
  for (const launch::EdgeProof& e : proof.edges) j["edges"].push_back(edge_json(graph, e));
  j["findings"] = Json::array();
  for (const launch::Finding& f : proof.findings) j["findings"].push_back(finding_json(graph, f));
  return j;
}

std::string counted(size_t count, std::string_view what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

void print_text(const std::string& file, const launch::Graph& graph, const launch::Proof& proof) {
  std::cout << fmt::format("{}: {}, {}, {} with a write\n", file, counted(graph.nodes.size(), "node"),
                           counted(graph.edges.size(), "edge"), counted(proof.num_conflicts, "overlapping pair"));
  for (const launch::EdgeProof& e : proof.edges) {
    const launch::Edge& edge = graph.edges[e.edge];
    std::cout << fmt::format("  {} -> {}: {}\n", graph.nodes[edge.from].name, graph.nodes[edge.to].name, e.text);
  }
  for (const launch::Finding& f : proof.findings) std::cout << launch::finding_text(graph, f);
  if (proof.num_left_out != 0) std::cout << fmt::format("{} more findings are left out\n", proof.num_left_out);
  std::cout << fmt::format("{}: {}, {}\n", proof.is_ok() ? "ok" : "refused",
                           counted(count(proof, launch::Severity::kError), "error"),
                           counted(count(proof, launch::Severity::kWarning), "warning"));
}

int run_verify_launch(const VerifyLaunchArgs& args) {
  const launch::LoweredProgram program = value_or_exit(load(args.file), args.common, kVerifyLaunch);
  const launch::Proof proof = launch::prove(program);
  if (args.common.json)
    print_json(kVerifyLaunch, to_json(args.file, program.graph, proof));
  else if (!args.common.quiet)
    print_text(args.file, program.graph, proof);
  return proof.is_ok() ? 0 : exit_code(ErrorCode::kMismatch);
}

}  // namespace

Command add_verify_launch(CLI::App& verify) {
  auto args = std::make_shared<VerifyLaunchArgs>();
  CLI::App* app = verify.add_subcommand("launch", "Prove a launch graph or a program of launches on streams");
  add_common_options(*app, args->common);
  app->add_option("file", args->file, "Launch file in JSON, - is stdin")->required();
  app->footer("Example:\n  megartp verify launch tests/faults/launch/not_transitive.json");
  return {app, [args] { return run_verify_launch(*args); }};
}

}  // namespace megartp::cli
