// Phase: everything that consecutive tasks of one operand row do to one tensor in one way, by distinct box.
//
// A plan is a sequence of segments (runs of tasks with one operand row, in program order), a segment a handful of
// phases. Tiles with the same box share one entry, so that checks are made per distinct box and not per pair of tasks.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "lowering/box_index.h"
#include "lowering/index_table.h"
#include "verify/plan/memory_spaces.h"
#include "verify/plan/nodes.h"

namespace megartp::verify {

struct Accessor {
  uint32_t node = 0;
  uint32_t publication = 0;  // HappensBefore::kAll for reads
};

struct Phase {
  uint32_t row = 0;
  uint32_t tensor = 0;
  bool is_write = false;
  bool is_scatter = false;                 // tiles hit places inside the box that only the data know
  bool is_exact = true;                    // boxes are no larger than what is touched
  bool is_disjoint = true;                 // of a write phase: no two boxes overlap, no box has two writers
  std::vector<Box> boxes;                  // in the coordinates of the tensor's space
  std::vector<uint32_t> accessor_offsets;  // CSR box -> accessors
  std::vector<Accessor> accessors;
  std::vector<uint8_t> is_superseded;  // by box: later writes cover it and were ordered after it
  uint32_t num_live = 0;               // boxes that are not

  std::span<const Accessor> accessors_of(uint32_t box) const {
    return std::span(accessors).subspan(accessor_offsets[box], accessor_offsets[box + 1] - accessor_offsets[box]);
  }
  const lowering::BoxIndex& index() const {
    if (!index_) index_ = std::make_unique<lowering::BoxIndex>(boxes);
    return *index_;
  }
  int64_t total_volume() const;

 private:
  mutable std::unique_ptr<lowering::BoxIndex> index_;
};

struct Segment {
  uint32_t row = 0;
  std::vector<std::shared_ptr<Phase>> phases;  // of memory that tasks of the plan may write
};

using ReportFinding = std::function<void(PlanFinding)>;

struct PlanSegments {
  std::vector<Segment> segments;            // in program order
  std::vector<uint32_t> last_publications;  // by operand row: the highest that its tasks write
};

// Reports writes to read-only tensors and join groups whose members disagree. `stats` gets the numbers of regions.
PlanSegments collect_segments(const PlanNodes& nodes, const MemorySpaces& spaces, const ReportFinding& report,
                              PlanProofStats& stats);

}  // namespace megartp::verify
