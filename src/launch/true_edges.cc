// Edges from what kernels touch.
#include <algorithm>
#include <map>

#include "launch/launch_passes.h"

namespace megartp::launching {
namespace {

struct Use {
  bool reads = false, writes = false;
};

std::map<TensorId, Use> uses_of(const DeviceKernel& kernel) {
  std::map<TensorId, Use> uses;
  for (const DeviceAccess& a : kernel.accesses) {
    Use& use = uses[kernel.params[a.param].tensor];
    (a.is_write ? use.writes : use.reads) = true;
  }
  return uses;
}

}  // namespace

std::vector<LaunchEdge> true_edges(const LaunchPlan& plan) {
  // For each tensor the kernels that have touched it so far.
  struct Touch {
    uint32_t kernel;
    Use use;
  };
  std::map<TensorId, std::vector<Touch>> touches;
  std::map<std::pair<uint32_t, uint32_t>, std::vector<EdgeReason>> reasons;
  for (uint32_t k = 0; k < plan.kernels.size(); ++k) {
    for (const auto& [tensor, use] : uses_of(plan.kernels[k].kernel)) {
      std::vector<Touch>& earlier = touches[tensor];
      for (const Touch& t : earlier) {
        std::vector<EdgeReason>* list = nullptr;
        const auto add = [&](EdgeReason::Kind kind) {
          if (list == nullptr) list = &reasons[{t.kernel, k}];
          list->push_back({kind, tensor});
        };
        if (t.use.writes && use.reads) add(EdgeReason::Kind::kReadAfterWrite);
        if (t.use.reads && use.writes) add(EdgeReason::Kind::kWriteAfterRead);
        if (t.use.writes && use.writes) add(EdgeReason::Kind::kWriteAfterWrite);
      }
      earlier.push_back({k, use});
    }
  }
  std::vector<LaunchEdge> edges;
  edges.reserve(reasons.size());
  for (auto& [ends, list] : reasons) {
    LaunchEdge e;
    e.from = ends.first;
    e.to = ends.second;
    e.reasons = std::move(list);
    edges.push_back(std::move(e));
  }
  return edges;
}

std::vector<LaunchEdge> chain_edges(const LaunchPlan& plan, const std::vector<LaunchEdge>& edges) {
  std::vector<LaunchEdge> chain;
  for (uint32_t k = 1; k < plan.kernels.size(); ++k) {
    LaunchEdge e;
    e.from = k - 1;
    e.to = k;
    for (const LaunchEdge& t : edges)
      if (t.from == e.from && t.to == e.to) e.reasons = t.reasons;
    chain.push_back(std::move(e));
  }
  return chain;
}

std::vector<char> redundant_edges(size_t num_kernels, const std::vector<LaunchEdge>& edges) {
  // reach[k]: the kernels that a path leads to k from, as bits. Edges go forward, so one pass in order is enough.
  const size_t words = num_kernels / 64 + 1;
  std::vector<uint64_t> reach(num_kernels * words, 0);
  std::vector<std::vector<uint32_t>> sources(num_kernels);
  for (const LaunchEdge& e : edges) sources[e.to].push_back(e.from);
  for (uint32_t k = 0; k < num_kernels; ++k)
    for (const uint32_t s : sources[k]) {
      reach[k * words + s / 64] |= uint64_t{1} << (s % 64);
      for (size_t w = 0; w < words; ++w) reach[k * words + w] |= reach[s * words + w];
    }
  std::vector<char> redundant(edges.size(), 0);
  for (size_t i = 0; i < edges.size(); ++i) {
    const LaunchEdge& e = edges[i];
    redundant[i] = static_cast<char>(std::ranges::any_of(sources[e.to], [&](uint32_t s) {
      return s != e.from && (reach[s * words + e.from / 64] >> (e.from % 64) & 1) != 0;
    }));
  }
  return redundant;
}

}  // namespace megartp::launching
