#include "verify/plan/phases.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "verify/plan/happens_before.h"

namespace megartp::verify {
namespace {

bool is_read_only(Storage storage) { return storage == Storage::kWeight || storage == Storage::kRuntimeArg; }

uint64_t hash_box(const Box& box) {
  uint64_t hash = box.rank;
  for (uint32_t d = 0; d < box.rank; ++d)
    hash = (hash ^ (uint64_t{static_cast<uint32_t>(box.begin[d])} << 32 | static_cast<uint32_t>(box.end[d]))) *
           0xd6e8feb86659fd93U;
  return lowering::mix64(hash);
}

bool same_accesses(const std::vector<Access>& a, const std::vector<Access>& b) {
  return std::ranges::equal(a, b, [](const Access& x, const Access& y) {
    return x.tensor == y.tensor && x.box == y.box && x.publication == y.publication && x.scatter == y.scatter;
  });
}

// Operand types of one row, as families see them.
using Operands = std::array<OperandType, abi::kOperandSlots>;
std::vector<Operands> operand_types(const KernelPlan& plan) {
  std::vector<Operands> out(plan.operand_rows.size());
  for (size_t r = 0; r < out.size(); ++r)
    for (uint32_t s = 0; s < abi::kOperandSlots; ++s)
      if (const uint32_t t = plan.operand_rows[r].tensors[s]; t != kInvalidId)
        out[r][s] = {true, plan.tensors[t].dtype, plan.tensors[t].dims};
  return out;
}

class SegmentBuilder {
 public:
  SegmentBuilder(const PlanNodes& nodes, const MemorySpaces& spaces, const ReportFinding& report, PlanProofStats& stats)
      : nodes_(nodes), plan_(nodes.plan), spaces_(spaces), report_(report), stats_(stats) {}

  PlanSegments run() {
    out_.last_publications.assign(plan_.operand_rows.size(), 0);
    group_at_.assign(nodes_.num_groups, kNone);
    const std::vector<Operands> operands = operand_types(plan_);
    uint32_t t = 0;
    while (t < nodes_.num_tasks) {
      const uint32_t row = nodes_.instruction(t).operand_row;
      const uint32_t first = t;
      while (t < nodes_.num_tasks && nodes_.instruction(t).operand_row == row) ++t;
      if (plan_.operand_rows[row].opcode == abi::kOpcodeRelay) continue;
      build(row, first, t, operands[row]);
    }
    return std::move(out_);
  }

 private:
  struct Building {
    std::shared_ptr<Phase> phase;
    lowering::IndexTable lookup;
    uint32_t last_box = 0;
    std::vector<std::pair<uint32_t, Accessor>> accesses;  // box, who
  };
  struct Group {
    uint32_t id = 0;
    uint32_t first_member = 0;
    InstructionRegions finals;
    bool is_complete = false;  // its last member is here
  };

  void build(uint32_t row, uint32_t first, uint32_t end, const Operands& operands) {
    const OpFamily* family = find_op_family_by_opcode(plan_.operand_rows[row].opcode);
    tensors_ = plan_.operand_rows[row].tensors;
    segment_ = &out_.segments.emplace_back();
    segment_->row = row;
    building_.clear();
    named_ = 0;
    groups_.clear();
    for (uint32_t t = first; t < end; ++t) {
      const abi::Instruction& i = nodes_.instruction(t);
      regions_.clear();
      family->regions({i, plan_.specs[i.spec_id].words, operands}, regions_);
      add(regions_.reads, false, t);
      add(regions_.writes, true, t);
      if (i.join_counter != abi::kNoJoin) join(t, i.join_counter);
    }
    for (const Group& g : groups_) {
      if (!g.is_complete) continue;
      add(g.finals.final_reads, false, nodes_.num_tasks + g.id);
      add(g.finals.final_writes, true, nodes_.num_tasks + g.id);
    }
    add_undeclared(first, end);
    for (Building& b : building_) finish(b);
    for (const Group& g : groups_) group_at_[g.id] = kNone;
  }

  void join(uint32_t task, uint32_t group) {
    if (group_at_[group] == kNone) {
      group_at_[group] = static_cast<uint32_t>(groups_.size());
      groups_.push_back({group, task, {}, false});
      Group* it = &groups_.back();
      std::swap(it->finals.final_reads, regions_.final_reads);
      std::swap(it->finals.final_writes, regions_.final_writes);
      if (it->finals.final_writes.empty())
        report_({PlanFault::kJoinMismatch,
                 false,
                 fmt::format("{} is in join group {}, but a tile of its kind never arrives there: its signals "
                             "are never sent",
                             nodes_.name(task), group),
                 {nodes_.place(task)},
                 {}});
    } else if (const Group* it = &groups_[group_at_[group]];
               !same_accesses(it->finals.final_reads, regions_.final_reads) ||
               !same_accesses(it->finals.final_writes, regions_.final_writes)) {
      report_({PlanFault::kJoinMismatch,
               false,
               fmt::format("{} and {} share join group {}, but would finalize different rows as last arrivers",
                           nodes_.name(it->first_member), nodes_.name(task), group),
               {nodes_.place(it->first_member), nodes_.place(task)},
               {}});
    }
    groups_[group_at_[group]].is_complete |= nodes_.members_of(group).back() == task;
  }

  void add(const std::vector<Access>& accesses, bool is_write, uint32_t node) {
    for (const Access& a : accesses) {
      named_ |= 1U << a.tensor;
      const uint32_t tensor = tensors_[a.tensor];
      if (tensor == kInvalidId || volume(a.box) == 0) continue;
      if (is_write) {
        uint32_t& last = out_.last_publications[segment_->row];
        last = std::max<uint32_t>(last, a.publication);
      }
      if (is_read_only(plan_.tensors[tensor].storage)) {
        if (is_write) report_read_only(tensor, node);
        continue;
      }
      add_box(tensor, a.box, is_write, a.scatter, {node, is_write ? uint32_t{a.publication} : HappensBefore::kAll});
    }
  }

  void add_box(uint32_t tensor, const Box& box, bool is_write, bool is_scatter, const Accessor& who) {
    ++stats_.num_regions;
    Building& b = building(tensor, is_write);
    Phase& phase = *b.phase;
    boxes_.clear();
    if (!spaces_.add_box(tensor, box, boxes_)) phase.is_exact = false;
    phase.is_scatter = phase.is_scatter || is_scatter;
    for (const Box& piece : boxes_) {
      if (phase.boxes.empty() || !(phase.boxes[b.last_box] == piece)) {
        const uint64_t hash = hash_box(piece);
        b.last_box = b.lookup.find(hash, [&](uint32_t i) { return phase.boxes[i] == piece; });
        if (b.last_box == lowering::IndexTable::kNone) {
          b.last_box = static_cast<uint32_t>(phase.boxes.size());
          phase.boxes.push_back(piece);
          b.lookup.insert(hash, b.last_box);
        }
      }
      b.accesses.emplace_back(b.last_box, who);
    }
  }

  // An operand that no instruction of the row names counts as read whole by every one: a family that leaves out its
  // weights or positions stays right when some op computes them.
  void add_undeclared(uint32_t first, uint32_t end) {
    for (uint32_t s = 0; s < abi::kOperandSlots; ++s) {
      const uint32_t tensor = tensors_[s];
      if (tensor == kInvalidId || (named_ >> s & 1) != 0 || is_read_only(plan_.tensors[tensor].storage)) continue;
      if (std::ranges::any_of(building_, [&](const Building& b) { return b.phase->tensor == tensor; })) continue;
      const Box whole = whole_box(plan_.tensors[tensor].dims);
      for (uint32_t t = first; t < end; ++t) add_box(tensor, whole, false, false, {t, HappensBefore::kAll});
    }
  }

  void report_read_only(uint32_t tensor, uint32_t node) {
    report_({PlanFault::kPrefetchMutable,
             false,
             fmt::format("{} writes {} '{}', which loaders may read before any wait", nodes_.name(node),
                         to_string(plan_.tensors[tensor].storage), plan_.tensors[tensor].name),
             {nodes_.place(node)},
             plan_.tensors[tensor].name});
  }

  Building& building(uint32_t tensor, bool is_write) {
    for (Building& b : building_)
      if (b.phase->tensor == tensor && b.phase->is_write == is_write) return b;
    Building& b = building_.emplace_back();
    b.phase = std::make_shared<Phase>();
    b.phase->row = segment_->row;
    b.phase->tensor = tensor;
    b.phase->is_write = is_write;
    return b;
  }

  void finish(Building& b) {
    Phase& p = *b.phase;
    const size_t n = p.boxes.size();
    p.accessor_offsets.assign(n + 1, 0);
    for (const auto& [box, who] : b.accesses) ++p.accessor_offsets[box + 1];
    for (size_t i = 1; i <= n; ++i) p.accessor_offsets[i] += p.accessor_offsets[i - 1];
    p.accessors.resize(b.accesses.size());
    std::vector<uint32_t> next(p.accessor_offsets.begin(), p.accessor_offsets.end() - 1);
    for (const auto& [box, who] : b.accesses) p.accessors[next[box]++] = who;
    p.is_superseded.assign(n, 0);
    p.num_live = static_cast<uint32_t>(n);
    stats_.num_distinct_regions += n;
    segment_->phases.push_back(std::move(b.phase));
  }

  const PlanNodes& nodes_;
  const KernelPlan& plan_;
  const MemorySpaces& spaces_;
  const ReportFinding& report_;
  PlanProofStats& stats_;
  PlanSegments out_;
  Segment* segment_ = nullptr;
  std::span<const uint32_t> tensors_;  // of the row
  std::vector<Building> building_;
  static constexpr uint32_t kNone = 0xffffffffU;
  std::vector<Group> groups_;
  std::vector<uint32_t> group_at_;  // by group: index in groups_
  uint32_t named_ = 0;              // slots that some instruction of the segment names
  InstructionRegions regions_;
  std::vector<Box> boxes_;
};

}  // namespace

int64_t Phase::total_volume() const {
  int64_t sum = 0;
  for (const Box& b : boxes) sum += volume(b);
  return sum;
}

PlanSegments collect_segments(const PlanNodes& nodes, const MemorySpaces& spaces, const ReportFinding& report,
                              PlanProofStats& stats) {
  return SegmentBuilder(nodes, spaces, report, stats).run();
}

}  // namespace megartp::verify
