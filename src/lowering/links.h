// Link: one table of a consumer stage against one table of an earlier stage on the same tensor, resolved per distinct
// box.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "lowering/stage_accesses.h"

namespace megartp::lowering {

// An earlier stage's table that later stages must still be ordered after.
struct HistoryEntry {
  uint32_t stage = 0;
  std::shared_ptr<const AccessTable> table;
};

// What later stages must know of a stage besides its tables.
struct StageUnits {
  bool is_fused = false;
  uint32_t num_units = 0;
  uint8_t last_publication = 0;
  StageGroups groups;  // fused only
};

struct Link {
  HistoryEntry producer;
  HazardKind hazard = HazardKind::kRaw;
  EdgePolicy policy = EdgePolicy::kTileCover;  // before any fallback
  bool gave_up = false;                        // too irregular to enumerate: treat every box as touching every unit
  std::vector<SetId> set_of_box;               // units that the consumer's box must wait for
  std::vector<uint32_t> events;                // of tiles that the link makes wait, with repetitions
};

// Time is linear in boxes and units: an irregular pair that would take more sets gave_up.
Link resolve_link(const HistoryEntry& producer, const StageUnits& units, const AccessTable& consumer, bool is_partial,
                  UnitSets& sets);

// True when the `writes` of a later stage cover every box of `earlier`: whoever touches one of its elements from now on
// waits for a writer that has itself waited, so the entry needs no edge of its own any more. Relies on tiles of one
// stage writing disjoint boxes, except where they scatter.
bool is_superseded(const AccessTable& earlier, std::span<const AccessTable* const> writes);

}  // namespace megartp::lowering
