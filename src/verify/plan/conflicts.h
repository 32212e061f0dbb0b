// ConflictChecker: every two accesses to the same memory of which one writes are ordered as the program has them, and
// every read finds what the program means.
//
// Segments come in program order. Of each space the phases that still matter are kept; a box of a phase no longer does
// once later writes cover it, because these were proved to come after it. Checks are made per distinct box: all
// accessors of the earlier boxes that it overlaps become one requirement (worker -> position), which each of its own
// accessors' clocks must reach.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "verify/plan/happens_before.h"
#include "verify/plan/phases.h"

namespace megartp::verify {

class ConflictChecker {
 public:
  ConflictChecker(const PlanNodes& nodes, const MemorySpaces& spaces, const HappensBefore& order,
                  const ReportFinding& report, PlanProofStats& stats);

  void add(Segment& segment);
  // All segments are in: every output must be written.
  void finish();

  // By (writing row, reading row): how many tasks or groups of the writer the neediest region of the reader needs.
  const std::map<std::pair<uint32_t, uint32_t>, uint32_t>& needs() const { return needs_; }

 private:
  struct Required {
    uint32_t worker;
    uint32_t position;
  };
  struct Memory {  // of one space
    std::vector<std::shared_ptr<Phase>> live;
  };
  struct Tensor {
    int64_t written_volume = 0;  // means something while writes do not overlap
    bool has_overlaps = false;
  };

  std::vector<std::shared_ptr<Phase>>& live(const Phase& phase) { return memory_[spaces_.space_of(phase.tensor)].live; }
  void find_self_overlaps(Phase& phase);
  void check(const Phase& earlier, const Phase& later);
  void require(const Phase& phase, uint32_t box);
  void report_pair(const Phase& earlier, const Phase& later, uint32_t later_box, const Accessor& who);
  void check_inside(const Phase& writes, const Phase& other);
  void check_pair_inside(const Phase& writes, const Accessor& writer, const Phase& other, const Accessor& toucher,
                         const Box& box);
  void supersede(const Phase& writes);
  void check_written(const Phase& reads);
  void find_all(const Phase& phase, const Box& box, std::vector<uint32_t>& out) const;
  bool is_wholly_written(uint32_t tensor) const;
  std::string region(const Phase& phase, const Box& box) const;
  void report_race(const Phase& earlier, const Accessor& before, const Phase& later, const Accessor& after,
                   const Box& box);

  const PlanNodes& nodes_;
  const KernelPlan& plan_;
  const MemorySpaces& spaces_;
  const HappensBefore& order_;
  const ReportFinding& report_;
  PlanProofStats& stats_;
  std::vector<Memory> memory_;
  std::vector<Tensor> tensors_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> needs_;
  // Requirement in the making: by worker; touched_ lists those that are not zero.
  std::vector<uint32_t> required_;
  std::vector<uint32_t> touched_;
  std::vector<uint32_t> found_;
  size_t num_inside_faults_ = 0;
};

// Whether the boxes, painted one over the other, leave a part of `target` bare, or show another tensor there.
struct Painted {
  Box box;
  bool is_own = true;
};
enum class Cover : uint8_t { kWhole, kBare, kForeign, kTooComplex };
// `where`: a part that is not as it should be.
Cover paint(const Box& target, const std::vector<Painted>& layers, Box& where);

}  // namespace megartp::verify
