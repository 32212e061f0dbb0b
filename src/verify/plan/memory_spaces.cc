#include "verify/plan/memory_spaces.h"

#include <algorithm>
#include <numeric>

namespace megartp::verify {
namespace {

constexpr int64_t kMaxRuns = 4096;

}  // namespace

Box whole_box(const std::vector<int64_t>& dims) {
  Box box;
  for (const int64_t d : dims) box.end[box.rank++] = static_cast<int32_t>(d);
  return box;
}

int64_t volume(const Box& box) {
  int64_t v = box.rank == 0 ? 0 : 1;
  for (uint32_t d = 0; d < box.rank; ++d) v *= std::max<int64_t>(0, int64_t{box.end[d]} - box.begin[d]);
  return v;
}

int64_t overlap_volume(const Box& a, const Box& b) {
  int64_t v = a.rank == 0 ? 0 : 1;
  for (uint32_t d = 0; d < a.rank; ++d)
    v *= std::max<int64_t>(0, int64_t{std::min(a.end[d], b.end[d])} - std::max(a.begin[d], b.begin[d]));
  return v;
}

MemorySpaces::MemorySpaces(const KernelPlan& plan) : plan_(plan), space_of_(plan.tensors.size(), 0) {
  std::vector<uint32_t> inside;
  for (uint32_t t = 0; t < plan.tensors.size(); ++t) {
    if (plan.tensors[t].arena_offset != kExternal) {
      inside.push_back(t);
      continue;
    }
    space_of_[t] = static_cast<uint32_t>(spaces_.size());
    spaces_.push_back({{t}});
  }
  std::ranges::sort(inside, {}, [&](uint32_t t) { return plan.tensors[t].arena_offset; });
  uint64_t end = 0;
  for (const uint32_t t : inside) {
    const PlanTensor& tensor = plan.tensors[t];
    if (end <= tensor.arena_offset || end == 0) spaces_.push_back({{}, false, tensor.arena_offset});
    end = std::max(end, tensor.arena_offset + tensor.num_bytes);
    space_of_[t] = static_cast<uint32_t>(spaces_.size() - 1);
    spaces_.back().tensors.push_back(t);
  }
  for (MemorySpace& s : spaces_) {
    const PlanTensor& first = plan.tensors[s.tensors[0]];
    uint64_t span = 0;
    for (const uint32_t t : s.tensors) {
      const PlanTensor& tensor = plan.tensors[t];
      s.in_bytes = s.in_bytes || tensor.arena_offset != first.arena_offset || tensor.dims != first.dims ||
                   size_in_bytes(tensor.dtype) != size_in_bytes(first.dtype);
      const uint64_t at = tensor.arena_offset - s.begin;
      s.unit_bytes = t == s.tensors[0] ? size_in_bytes(tensor.dtype)
                                       : std::gcd(std::gcd(s.unit_bytes, size_in_bytes(tensor.dtype)), at);
      span = std::max(span, at + tensor.num_bytes);
    }
    while (s.in_bytes && span / s.unit_bytes >= INT32_MAX) s.unit_bytes *= 2;
  }
}

bool MemorySpaces::add_box(uint32_t tensor_idx, const Box& box, std::vector<Box>& out) const {
  const MemorySpace& s = spaces_[space_of_[tensor_idx]];
  if (!s.in_bytes) {
    out.push_back(box);
    return true;
  }
  const PlanTensor& tensor = plan_.tensors[tensor_idx];
  const uint64_t element = size_in_bytes(tensor.dtype);
  const uint64_t at = tensor.arena_offset - s.begin;
  bool is_exact = true;
  const auto add = [&](uint64_t first, uint64_t last) {  // elements
    const uint64_t lo = at + first * element;
    const uint64_t hi = at + last * element;
    is_exact = is_exact && lo % s.unit_bytes == 0 && hi % s.unit_bytes == 0;
    const Box run = Box::of(
        {{static_cast<int64_t>(lo / s.unit_bytes), static_cast<int64_t>((hi + s.unit_bytes - 1) / s.unit_bytes)}});
    if (!out.empty() && out.back().end[0] == run.begin[0])
      out.back().end[0] = run.end[0];
    else
      out.push_back(run);
  };
  // Dimensions that the box covers wholly continue the run of the one before.
  uint32_t outer = box.rank;  // dims [outer, rank) make one run
  uint64_t inner = 1;         // elements of one step in dim outer - 1
  while (outer > 0 && box.begin[outer - 1] == 0 && box.end[outer - 1] == tensor.dims[outer - 1])
    inner *= static_cast<uint64_t>(tensor.dims[--outer]);
  if (outer == 0) {
    add(0, inner);
    return is_exact;
  }
  --outer;
  int64_t num_runs = 1;
  for (uint32_t d = 0; d < outer; ++d) num_runs = std::min(num_runs * (box.end[d] - box.begin[d]), kMaxRuns + 1);
  const auto element_at = [&](const std::array<int32_t, kMaxRank>& c, int32_t last) {
    uint64_t idx = 0;
    for (uint32_t d = 0; d < outer; ++d)
      idx = idx * static_cast<uint64_t>(tensor.dims[d]) + static_cast<uint64_t>(c[d]);
    return (idx * static_cast<uint64_t>(tensor.dims[outer]) + static_cast<uint64_t>(last)) * inner;
  };
  if (num_runs > kMaxRuns) {
    std::array<int32_t, kMaxRank> last = box.end;
    for (uint32_t d = 0; d < outer; ++d) --last[d];
    add(element_at(box.begin, box.begin[outer]), element_at(last, box.end[outer]));
    return false;
  }
  std::array<int32_t, kMaxRank> c = box.begin;
  for (int64_t r = 0; r < num_runs; ++r) {
    add(element_at(c, box.begin[outer]), element_at(c, box.end[outer]));
    for (uint32_t d = outer; d-- > 0;) {
      if (++c[d] < box.end[d]) break;
      c[d] = box.begin[d];
    }
  }
  return is_exact;
}

}  // namespace megartp::verify
