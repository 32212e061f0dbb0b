#include "backends/cpu_threads/explore_image.h"

#include <algorithm>

#include "base/math.h"

namespace megartp {

ImageLayout::ImageLayout(const KernelPlan& plan) {
  for (const PlanTensor& t : plan.tensors) {
    const bool written =
        t.storage == Storage::kActivation || t.storage == Storage::kOutput || t.storage == Storage::kState;
    offsets_.push_back(written ? num_bytes_ : kNotInside);
    if (written) num_bytes_ = round_up(num_bytes_ + t.num_bytes, uint64_t{256});
  }
}

void ImageLayout::load(const Bindings& bindings, std::byte* image) const {
  for (size_t t = 0; t < offsets_.size(); ++t)
    if (offsets_[t] != kNotInside)
      std::memcpy(image + offsets_[t], bindings.tensors()[t].address, bindings.tensors()[t].num_bytes);
}

void ImageLayout::store(const Bindings& bindings, const std::byte* image) const {
  for (size_t t = 0; t < offsets_.size(); ++t)
    if (offsets_[t] != kNotInside)
      std::memcpy(bindings.tensors()[t].address, image + offsets_[t], bindings.tensors()[t].num_bytes);
}

void Writes::apply(std::byte* image) const {
  for (const Range& r : ranges) std::memcpy(image + r.begin, bytes.data() + r.first_byte, r.length);
}

void Writes::add_difference(const std::byte* before, const std::byte* after, uint64_t num_bytes) {
  constexpr uint64_t kBlock = 256;
  for (uint64_t block = 0; block < num_bytes; block += kBlock) {
    const uint64_t end = std::min(block + kBlock, num_bytes);
    if (std::memcmp(before + block, after + block, end - block) == 0) continue;
    for (uint64_t i = block; i < end;) {
      if (before[i] == after[i]) {
        ++i;
        continue;
      }
      uint64_t stop = i + 1;
      while (stop < end && before[stop] != after[stop]) ++stop;
      ranges.push_back({i, stop - i, bytes.size()});
      bytes.insert(bytes.end(), after + i, after + stop);
      i = stop;
    }
  }
}

bool clash(const Writes& a, const Writes& b) {
  // Ranges ascend but for the part behind a join, so neither list is sorted as a whole: sort one, search with the
  // other.
  std::vector<const Writes::Range*> sorted;
  sorted.reserve(b.ranges.size());
  for (const Writes::Range& r : b.ranges) sorted.push_back(&r);
  std::ranges::sort(sorted, {}, [](const Writes::Range* r) { return r->begin; });
  for (const Writes::Range& x : a.ranges) {
    // Ranges are at most a block long, so nothing that begins a block earlier reaches here.
    const uint64_t from = x.begin < 256 ? 0 : x.begin - 256;
    auto it = std::ranges::lower_bound(sorted, from, {}, [](const Writes::Range* r) { return r->begin; });
    for (; it != sorted.end() && (*it)->begin < x.begin + x.length; ++it) {
      const Writes::Range& y = **it;
      const uint64_t begin = std::max(x.begin, y.begin);
      const uint64_t end = std::min(x.begin + x.length, y.begin + y.length);
      if (begin < end && std::memcmp(a.bytes.data() + x.first_byte + (begin - x.begin),
                                     b.bytes.data() + y.first_byte + (begin - y.begin), end - begin) != 0)
        return true;
    }
  }
  return false;
}

}  // namespace megartp
