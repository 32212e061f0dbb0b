// parallel_for: a loop over an index range on all cores, for set-up work (synthetic weights, scans, tables). Not for
// running plans.
//
// The body sees disjoint ranges and must give the same result however the range is cut.
#pragma once

#include <algorithm>
#include <cstdint>
#include <system_error>
#include <thread>
#include <vector>

namespace megartp {

// Calls body(begin, end) for ranges that together cover [0, count), each of at least `grain` indices (the last may be
// shorter). Returns when all are done. The body must not throw.
template <class Body>
void parallel_for(uint64_t count, uint64_t grain, const Body& body) {
  const uint64_t cores = std::max(1U, std::thread::hardware_concurrency());
  const uint64_t parts = std::clamp<uint64_t>(count / std::max<uint64_t>(grain, 1), 1, std::min<uint64_t>(cores, 64));
  const auto edge = [&](uint64_t part) { return count / parts * part + std::min(part, count % parts); };
  std::vector<std::thread> threads;
  uint64_t started = 1;  // part 0 is this thread's
  try {
    for (; started < parts; ++started)
      threads.emplace_back([&body, begin = edge(started), end = edge(started + 1)] { body(begin, end); });
  } catch (const std::system_error&) {
    // No more threads to be had: this one does the rest.
  }
  body(0, edge(1));
  if (started < parts) body(edge(started), count);
  for (std::thread& t : threads) t.join();
}

}  // namespace megartp
