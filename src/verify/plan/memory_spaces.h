// MemorySpaces: which tensors of a plan lie in the same memory, and in which coordinates their regions are compared.
//
// A tensor that shares no byte with another is a space of its own, in elements. Workspace tensors that overlap form
// one: in elements when all have the same place and shape, else in bytes, where a box of a tensor becomes several runs.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/kernel_plan.h"

namespace megartp::verify {

struct MemorySpace {
  std::vector<uint32_t> tensors;
  bool in_bytes = false;
  uint64_t begin = 0;       // in_bytes: offset in the workspace
  uint64_t unit_bytes = 1;  // in_bytes: of one coordinate
};

class MemorySpaces {
 public:
  explicit MemorySpaces(const KernelPlan& plan);
  uint32_t space_of(uint32_t tensor) const { return space_of_[tensor]; }
  const MemorySpace& space(uint32_t idx) const { return spaces_[idx]; }
  size_t size() const { return spaces_.size(); }
  bool is_shared(uint32_t tensor) const { return spaces_[space_of_[tensor]].tensors.size() > 1; }

  // Appends the box in its space's coordinates. False: coordinates are too coarse or the runs too many, and what was
  // appended is more than the box.
  bool add_box(uint32_t tensor, const Box& box, std::vector<Box>& out) const;

 private:
  const KernelPlan& plan_;
  std::vector<uint32_t> space_of_;
  std::vector<MemorySpace> spaces_;
};

Box whole_box(const std::vector<int64_t>& dims);
int64_t volume(const Box& box);
int64_t overlap_volume(const Box& a, const Box& b);

}  // namespace megartp::verify
