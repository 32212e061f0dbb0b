#include "bench/bench_cases.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::bench {
namespace {

std::string batch_text(const Batch& b) { return fmt::format("M={} KV={} R={}", b.m, b.kv, b.requests); }

// The order in which the subgraph grows: the critical chain last, so that what each op adds is what it adds beside
// others.
constexpr std::string_view kGrowth[] = {"A0", "C0", "B1", "B0", "D0", "D1", "D2", "E1"};

// The launch with all its CTAs, of which none has an instruction.
BenchCase mega_frame_case(const MegaPlanOptions& mega, const Batch& batch, const LaunchOptions& base) {
  return {"frame of mega", "no instruction", batch, base, RowKind::kPlain, mega, true};
}

}  // namespace

std::vector<BenchCase> backend_cases(std::span<const LaunchMode> modes, std::span<const Batch> batches,
                                     const LaunchOptions& base, const std::optional<MegaPlanOptions>& mega) {
  std::vector<BenchCase> cases;
  for (const Batch& batch : batches) {
    for (const LaunchMode mode : modes) {
      BenchCase c{batch_text(batch), std::string(to_string(mode)), batch, base, RowKind::kPlain, std::nullopt, false};
      c.launch.mode = mode;
      cases.push_back(std::move(c));
    }
    if (mega) cases.push_back({batch_text(batch), "mega", batch, base, RowKind::kPlain, mega, false});
  }
  if (mega && !batches.empty()) cases.push_back(mega_frame_case(*mega, batches[0], base));
  return cases;
}

std::vector<BenchCase> ablation_cases(const Batch& batch, const LaunchOptions& base) {
  constexpr std::pair<const char*, LaunchMode> kCells[] = {{"linear, full", LaunchMode::kSerial},
                                                           {"linear, PDL", LaunchMode::kPdl},
                                                           {"DAG, full", LaunchMode::kDag},
                                                           {"DAG, PDL", LaunchMode::kCmp}};
  std::vector<BenchCase> cases;
  for (const auto& [name, mode] : kCells) {
    BenchCase c{"ablation " + batch_text(batch), name, batch, base, RowKind::kPlain, std::nullopt, false};
    c.launch.mode = mode;
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<BenchCase> growing_cases(const OpGraph& graph, LaunchMode mode, const Batch& batch,
                                     const LaunchOptions& base) {
  std::vector<std::string> ops;
  for (const std::string_view name : kGrowth)
    if (std::ranges::find(graph.ops(), name, &OpInfo::name) != graph.ops().end()) ops.emplace_back(name);
  std::vector<BenchCase> cases;
  std::vector<std::string> so_far;
  for (const std::string& op : ops) {
    so_far.push_back(op);
    BenchCase c{fmt::format("growing {}", to_string(mode)),
                (so_far.size() == 1 ? "" : "+") + op,
                batch,
                base,
                RowKind::kCumulative,
                std::nullopt};
    c.launch.mode = mode;
    c.launch.only_ops = so_far;
    cases.push_back(std::move(c));
  }
  for (const std::string& op : ops) {
    BenchCase c{fmt::format("alone {}", to_string(mode)), op, batch, base, RowKind::kPlain, std::nullopt, false};
    c.launch.mode = mode;
    c.launch.only_ops = {op};
    cases.push_back(std::move(c));
  }
  return cases;
}

std::vector<BenchCase> mega_growing_cases(const OpGraph& graph, const MegaPlanOptions& mega, const Batch& batch,
                                          const LaunchOptions& base) {
  std::vector<BenchCase> cases = growing_cases(graph, LaunchMode::kCmp, batch, base);
  for (BenchCase& c : cases) {
    c.group = (c.kind == RowKind::kCumulative ? "growing " : "alone ") + std::string("mega");
    c.mega = mega;
  }
  cases.insert(cases.begin(), mega_frame_case(mega, batch, base));
  return cases;
}

Result<PdlEdge> find_pdl_edge(const OpGraph& graph, const LaunchPlan& plan, int which) {
  const auto op_of = [&](uint32_t kernel) { return graph.ops()[plan.kernels[kernel].op].name; };
  const LaunchEdge* best = nullptr;
  for (const LaunchEdge& e : plan.edges) {
    if (e.is_moved) continue;  // the two share no data
    const DeviceKernel& to = plan.kernels[e.to].kernel;
    if (which == 1) {
      const bool is_candidate = op_of(e.from) == "A0" && op_of(e.to) == "B0";
      if (is_candidate && (best == nullptr || to.weight_bytes > plan.kernels[best->to].kernel.weight_bytes)) best = &e;
    } else if (best == nullptr && (to.weight_bytes == 0 || !to.has_prologue)) {
      best = &e;
    }
  }
  if (best == nullptr)
    return make_error(ErrorCode::kUnsupported,
                      which == 1 ? "PDL case 1: the graph has no edge from A0 to B0"
                                 : "PDL case 2: every kernel that follows another one has weights to prefetch");
  PdlEdge edge{edge_name(plan, *best), {op_of(best->from)}};
  if (op_of(best->to) != edge.ops[0]) edge.ops.push_back(op_of(best->to));
  return edge;
}

std::vector<BenchCase> pdl_cases(int which, const PdlEdge& edge, std::span<const int64_t> rows, const Batch& batch) {
  std::vector<BenchCase> cases;
  for (const int64_t m : rows)
    for (const EdgeLevel level :
         {EdgeLevel::kFull, EdgeLevel::kEnterOnly, EdgeLevel::kPrologue, EdgeLevel::kPrefetch}) {
      BenchCase c;
      c.batch = batch;
      c.batch.m = m;
      c.batch.requests = std::min(c.batch.requests, m);
      c.group = fmt::format("PDL case {}: {}, M={}", which, edge.name, m);
      c.name = level == EdgeLevel::kFull ? std::string("PDL off") : std::string(to_string(level));
      c.launch.mode = LaunchMode::kCmp;
      c.launch.only_ops = edge.ops;
      c.launch.default_level = EdgeLevel::kFull;  // this edge alone
      c.launch.levels.emplace(edge.name, level);
      cases.push_back(std::move(c));
    }
  return cases;
}

}  // namespace megartp::bench
