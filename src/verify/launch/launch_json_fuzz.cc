// libFuzzer entry of launch files: whatever the text is, reading ends with a one-line error or a graph or program that
// is written and read back as the same text; a small one is proved, and a very small one must have the hazards that
// running it in every order shows.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "verify/launch/launch_explore.h"
#include "verify/launch/launch_json.h"
#include "verify/launch/launch_prover.h"

namespace {

namespace launch = megartp::launch;

// Above these an input is slow rather than interesting.
constexpr size_t kMaxNodes = 32, kMaxAccesses = 128, kMaxRunNodes = 3;

void check_error(const megartp::Error& error) {
  const std::string text = error.to_string();
  if (text.empty() || text.find('\n') != std::string::npos || error.code == megartp::ErrorCode::kInternal) std::abort();
}

size_t num_accesses(const launch::Graph& graph) {
  size_t count = 0;
  for (const launch::Node& node : graph.nodes) count += node.accesses.size();
  return count;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto input = launch::launch_from_json({reinterpret_cast<const char*>(data), size});
  if (!input) {
    check_error(input.error());
    return 0;
  }
  const auto text_of = [](const launch::LaunchInput& i) {
    return std::visit([](const auto& v) { return launch::to_json(v); }, i);
  };
  const std::string json = text_of(*input);
  const auto again = launch::launch_from_json(json);
  if (!again || text_of(*again) != json) std::abort();
  const auto program = launch::to_graph(*input);
  if (!program) std::abort();
  const launch::Graph& graph = program->graph;
  if (graph.nodes.size() > kMaxNodes || num_accesses(graph) > kMaxAccesses) return 0;
  const launch::Proof proof = launch::prove(*program);
  for (const launch::Finding& f : proof.findings)
    if (launch::finding_text(graph, f).empty()) std::abort();
  if (graph.nodes.size() > kMaxRunNodes) return 0;
  const auto run = launch::explore(graph, {.max_states = 20'000});
  if (!run) std::abort();
  if (run->is_complete && run->races.size() != launch::find_hazards(graph).size()) std::abort();
  return 0;
}
