// EventCostModel: what finer events save and what they cost, per pair of stages.
//
// Producer tiles run in waves over the workers, consumers start when their events fire:
//
//   saving of finer events   consumers start before the last producer tile is done, as far as workers are idle then
//   cost of finer events     more signals a producer sends, one after another, in each of its waves
//   cost of coarser events   more adds to one counter, which the memory takes one by one
//
// All in microseconds of the pair's span. A model for choosing, not for predicting: constants in EventCosts.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "lowering/lower.h"
#include "lowering/need_lists.h"

namespace megartp::lowering {

class EventCostModel {
 public:
  EventCostModel(const TaskGraph& graph, Dependencies& dependencies, const EventCosts& costs);

  // Makes the needs of each pair of stages as coarse as costs least: exact, blocks of 2, 4, 8 ... units, or whole.
  void coarsen();
  // Fills the edge's costs.
  void explain(StageEdge& edge) const;

 private:
  struct Use {
    ListId list = kEmptyList;
    uint32_t need = 0;  // position in the list
    SetId set = kEmptySet;
    uint32_t num_tasks = 0;
  };
  struct Pair {
    std::vector<Use> uses;
    uint32_t block = 1;  // units that count as one; 0: all
    double exact_us = 0;
    double chosen_us = 0;
    double whole_us = 0;
  };
  double cost_us(uint32_t producer, const Pair& pair, uint32_t block);
  SetId round_up(SetId set, uint32_t num_units, uint32_t block);

  Dependencies& d_;
  EventCosts costs_;
  std::vector<double> tile_us_;  // by stage, mean
  std::map<std::pair<uint32_t, uint32_t>, Pair> pairs_;
};

}  // namespace megartp::lowering
