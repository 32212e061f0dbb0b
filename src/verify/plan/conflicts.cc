#include "verify/plan/conflicts.h"

#include <algorithm>

#include <fmt/format.h>

namespace megartp::verify {
ConflictChecker::ConflictChecker(const PlanNodes& nodes, const MemorySpaces& spaces, const HappensBefore& order,
                                 const ReportFinding& report, PlanProofStats& stats)
    : nodes_(nodes),
      plan_(nodes.plan),
      spaces_(spaces),
      order_(order),
      report_(report),
      stats_(stats),
      memory_(spaces.size()),
      tensors_(nodes.plan.tensors.size()),
      required_(nodes.plan.num_workers, 0) {}

void ConflictChecker::add(Segment& segment) {
  for (const auto& p : segment.phases)
    if (p->is_write) find_self_overlaps(*p);
  for (const auto& p : segment.phases) {
    for (const auto& earlier : live(*p))
      if (p->is_write || earlier->is_write) check(*earlier, *p);
    for (const auto& other : segment.phases)
      if (p->is_write && spaces_.space_of(p->tensor) == spaces_.space_of(other->tensor)) check_inside(*p, *other);
  }
  for (const auto& p : segment.phases)
    if (p->is_write) supersede(*p);
  for (const auto& p : segment.phases)
    if (p->is_write) live(*p).push_back(p);
  for (const auto& p : segment.phases) {
    if (p->is_write) continue;
    if (plan_.tensors[p->tensor].storage != Storage::kState) check_written(*p);
    live(*p).push_back(p);
  }
  segment.phases.clear();
}

void ConflictChecker::find_all(const Phase& phase, const Box& box, std::vector<uint32_t>& out) const {
  out.clear();
  uint64_t work = 0;
  phase.index().find(phase.index().cells(box), out, work, ~uint64_t{0});
  std::ranges::sort(out);
  out.erase(std::ranges::unique(out).begin(), out.end());
}

// Tiles of one stage write apart from each other; the volume of what they write can then be added up.
void ConflictChecker::find_self_overlaps(Phase& phase) {
  if (phase.is_scatter || !phase.is_exact) {
    phase.is_disjoint = false;
  } else if (phase.boxes.size() > 1) {
    for (uint32_t b = 0; b < phase.boxes.size() && phase.is_disjoint; ++b) {
      find_all(phase, phase.boxes[b], found_);
      phase.is_disjoint = found_.size() == 1;
    }
  }
  if (phase.accessors.size() != phase.boxes.size()) phase.is_disjoint = false;
  Tensor& t = tensors_[phase.tensor];
  t.written_volume += phase.total_volume();
  t.has_overlaps = t.has_overlaps || !phase.is_disjoint;
}

// Adds who touched the box to the requirement.
void ConflictChecker::require(const Phase& phase, uint32_t box) {
  const auto add = [&](uint32_t worker, uint32_t position) {
    if (required_[worker] == 0) touched_.push_back(worker);
    required_[worker] = std::max(required_[worker], position);
  };
  for (const Accessor& a : phase.accessors_of(box)) {
    if (!nodes_.is_group(a.node)) {
      add(nodes_.worker(a.node), order_.task_position(a.node, a.publication));
      continue;
    }
    for (const uint32_t m : nodes_.members_of(a.node - nodes_.num_tasks))
      add(nodes_.worker(m), order_.group_position(m, a.publication));
  }
}

void ConflictChecker::check(const Phase& earlier, const Phase& later) {
  if (earlier.num_live == 0) return;
  // Boxes that touch the same cells of the earlier phase's grid have the same requirement.
  struct Entry {
    lowering::CellRange cells;
    uint32_t first = 0;
    uint32_t count = 0;
  };
  std::vector<Entry> entries;
  std::vector<Required> pool;
  lowering::IndexTable table;
  const lowering::BoxIndex& index = earlier.index();
  uint32_t need = 0;
  for (uint32_t b = 0; b < later.boxes.size(); ++b) {
    const lowering::CellRange cells = index.cells(later.boxes[b]);
    if (cells.empty) continue;
    uint64_t hash = 0;
    for (uint32_t d = 0; d < later.boxes[b].rank; ++d)
      hash = lowering::hash_combine(hash, uint64_t{cells.begin[d]} << 32 | cells.end[d]);
    uint32_t e = table.find(hash, [&](uint32_t i) { return entries[i].cells == cells; });
    if (e == lowering::IndexTable::kNone) {
      e = static_cast<uint32_t>(entries.size());
      table.insert(hash, e);
      entries.push_back({cells, static_cast<uint32_t>(pool.size()), 0});
      find_all(earlier, later.boxes[b], found_);
      uint32_t units = 0;
      for (const uint32_t i : found_) {
        if (earlier.is_superseded[i] != 0) continue;
        require(earlier, i);
        units += static_cast<uint32_t>(earlier.accessors_of(i).size());
      }
      need = std::max(need, units);
      for (const uint32_t w : touched_) {
        pool.push_back({w, required_[w]});
        required_[w] = 0;
      }
      touched_.clear();
      entries[e].count = static_cast<uint32_t>(pool.size()) - entries[e].first;
      if (earlier.is_write && later.is_write && units > 0 && earlier.tensor == later.tensor)
        tensors_[later.tensor].has_overlaps = true;
    }
    if (entries[e].count == 0) continue;
    const std::span<const Required> required = std::span(pool).subspan(entries[e].first, entries[e].count);
    for (const Accessor& a : later.accessors_of(b)) {
      ++stats_.num_orderings;
      const std::span<const uint32_t> clock = order_.clock(a.node);
      bool is_ordered = true;
      for (const Required& r : required) is_ordered = is_ordered && clock[r.worker] >= r.position;
      if (is_ordered) continue;
      report_pair(earlier, later, b, a);
      return;  // the first of the two phases
    }
  }
  if (earlier.is_write && !later.is_write && earlier.row != later.row) {
    uint32_t& most = needs_[{earlier.row, later.row}];
    most = std::max(most, need);
  }
}

// Somebody who touched what `who` touches need not be over.
void ConflictChecker::report_pair(const Phase& earlier, const Phase& later, uint32_t later_box, const Accessor& who) {
  find_all(earlier, later.boxes[later_box], found_);
  for (const uint32_t i : found_) {
    if (earlier.is_superseded[i] != 0) continue;
    for (const Accessor& a : earlier.accessors_of(i)) {
      if (order_.is_before(a.node, a.publication, who.node)) continue;
      report_race(earlier, a, later, who, later.boxes[later_box]);
      return;
    }
  }
}

void ConflictChecker::report_race(const Phase& earlier, const Accessor& before, const Phase& later,
                                  const Accessor& after, const Box& box) {
  PlanFinding f;
  f.fault = !later.is_write    ? PlanFault::kReadBeforeWrite
            : earlier.is_write ? PlanFault::kWawReorder
                               : PlanFault::kWarReuse;
  f.tensor = plan_.tensors[later.tensor].name;
  f.places = {nodes_.place(after.node), nodes_.place(before.node)};
  const bool is_reversed = order_.is_before(after.node, after.publication, before.node);
  const std::string why = is_reversed ? "the plan runs them the other way round" : "no event or queue orders them";
  const std::string shared = earlier.tensor == later.tensor
                                 ? std::string("it")
                                 : fmt::format("'{}', which shares this memory,", plan_.tensors[earlier.tensor].name);
  f.message = fmt::format("{} may {} {} before {} has {} {}: {}", nodes_.name(after.node),
                          later.is_write ? (earlier.is_write ? "write" : "overwrite") : "read", region(later, box),
                          nodes_.name(before.node), earlier.is_write ? "written" : "read", shared, why);
  report_(std::move(f));
}

// Conflicts between tasks of one segment: tiles of one stage do not touch what others of it write, but a group's last
// arriver reads what its members left.
void ConflictChecker::check_inside(const Phase& writes, const Phase& other) {
  const bool is_self = &writes == &other;
  if (is_self && (writes.is_disjoint || writes.is_scatter)) return;        // scatter: slots are unique within a stage
  if (other.is_write && !is_self && other.tensor < writes.tensor) return;  // the pair comes the other way round too
  std::vector<uint32_t> overlapped;
  for (uint32_t b = 0; b < other.boxes.size(); ++b) {
    find_all(writes, other.boxes[b], overlapped);
    for (const uint32_t w : overlapped)
      for (const Accessor& writer : writes.accessors_of(w))
        for (const Accessor& toucher : other.accessors_of(b)) {
          const size_t before = num_inside_faults_;
          check_pair_inside(writes, writer, other, toucher, other.boxes[b]);
          if (num_inside_faults_ != before) return;
        }
  }
}

void ConflictChecker::check_pair_inside(const Phase& writes, const Accessor& writer, const Phase& other,
                                        const Accessor& toucher, const Box& box) {
  const bool same_tensor = writes.tensor == other.tensor;
  if (writer.node == toucher.node) {
    // One tile reads and writes the same: its own affair in one tensor, but it cannot know of shared memory.
    if (same_tensor) return;
    ++num_inside_faults_;
    report_({PlanFault::kAlias,
             false,
             fmt::format("{} touches {} and writes '{}', which share memory", nodes_.name(writer.node),
                         region(other, box), plan_.tensors[writes.tensor].name),
             {nodes_.place(writer.node)},
             plan_.tensors[other.tensor].name});
    return;
  }
  ++stats_.num_orderings;
  const uint32_t write_key = nodes_.last_task(writer.node);
  const uint32_t other_key = nodes_.last_task(toucher.node);
  const bool writer_first = write_key < other_key || (write_key == other_key && nodes_.is_group(toucher.node));
  const auto& [first, second] = writer_first ? std::pair{writer, toucher} : std::pair{toucher, writer};
  if (!order_.is_before(first.node, first.publication, second.node)) {
    ++num_inside_faults_;
    const Phase& earlier = writer_first ? writes : other;
    const Phase& later = writer_first ? other : writes;
    report_race(earlier, first, later, second, box);
    return;
  }
  if (writer_first && !other.is_write && !same_tensor) {
    ++num_inside_faults_;
    report_({PlanFault::kAlias,
             false,
             fmt::format("{} reads {}, but {} has written '{}' to the same memory", nodes_.name(toucher.node),
                         region(other, box), nodes_.name(writer.node), plan_.tensors[writes.tensor].name),
             {nodes_.place(toucher.node), nodes_.place(writer.node)},
             plan_.tensors[other.tensor].name});
  }
}

// Earlier boxes that these writes cover need no more checks: whoever comes after the writes comes after them.
void ConflictChecker::supersede(const Phase& writes) {
  if (!writes.is_disjoint) return;
  const bool is_all = !spaces_.space(spaces_.space_of(writes.tensor)).in_bytes &&
                      writes.total_volume() == volume(whole_box(plan_.tensors[writes.tensor].dims));
  std::vector<uint32_t> overlapped;
  for (const auto& p : live(writes)) {
    if (is_all) {
      p->num_live = 0;
      continue;
    }
    // A scattered or irregular phase may take long to search: it stays, and costs checks only.
    uint64_t work = 0;
    const uint64_t max_work = 1024 + 64 * (p->boxes.size() + writes.boxes.size());
    for (uint32_t b = 0; b < p->boxes.size(); ++b) {
      if (p->is_superseded[b] != 0) continue;
      overlapped.clear();
      if (!writes.index().find(writes.index().cells(p->boxes[b]), overlapped, work, max_work)) break;
      std::ranges::sort(overlapped);
      overlapped.erase(std::ranges::unique(overlapped).begin(), overlapped.end());
      int64_t covered = 0;
      for (const uint32_t w : overlapped) covered += overlap_volume(p->boxes[b], writes.boxes[w]);
      if (covered < volume(p->boxes[b])) continue;
      p->is_superseded[b] = 1;
      --p->num_live;
    }
  }
  std::erase_if(live(writes), [](const auto& p) { return p->num_live == 0; });
}

bool ConflictChecker::is_wholly_written(uint32_t tensor) const {
  return !spaces_.is_shared(tensor) && !tensors_[tensor].has_overlaps &&
         tensors_[tensor].written_volume == volume(whole_box(plan_.tensors[tensor].dims));
}

// A read finds values that the program has put there: no hole, and nothing of another tensor.
void ConflictChecker::check_written(const Phase& reads) {
  if (is_wholly_written(reads.tensor)) return;
  std::vector<Painted> layers;
  for (uint32_t b = 0; b < reads.boxes.size(); ++b) {
    layers.clear();
    int64_t sum = 0;
    bool is_simple = true;
    const std::shared_ptr<Phase>* only = nullptr;
    for (const auto& p : live(reads)) {
      const bool is_own = p->tensor == reads.tensor;
      if (!p->is_write || (!is_own && p->row == reads.row)) continue;
      find_all(*p, reads.boxes[b], found_);
      for (const uint32_t i : found_) {
        if (p->is_superseded[i] != 0) continue;
        layers.push_back({p->boxes[i], is_own});
        sum += overlap_volume(p->boxes[i], reads.boxes[b]);
        is_simple = is_simple && is_own && p->is_disjoint && (only == nullptr || only == &p);
        only = &p;
      }
    }
    if (is_simple && sum == volume(reads.boxes[b])) continue;
    Box where;
    const Cover cover = paint(reads.boxes[b], layers, where);
    if (cover == Cover::kWhole) continue;
    const Accessor& reader = reads.accessors_of(b)[0];
    PlanFinding f;
    f.fault = cover == Cover::kForeign ? PlanFault::kAlias : PlanFault::kUnwrittenRead;
    f.tensor = plan_.tensors[reads.tensor].name;
    f.places = {nodes_.place(reader.node)};
    f.message =
        fmt::format("{} reads {}, {}", nodes_.name(reader.node), region(reads, where),
                    cover == Cover::kForeign ? "but another tensor that shares this memory was written there since"
                    : cover == Cover::kBare  ? "which no task has written"
                                             : "of which the writes are too scattered to follow");
    report_(std::move(f));
    return;
  }
}

void ConflictChecker::finish() {
  for (uint32_t t = 0; t < plan_.tensors.size(); ++t) {
    if (plan_.tensors[t].storage != Storage::kOutput || is_wholly_written(t)) continue;
    std::vector<Painted> layers;
    Phase whole;
    whole.tensor = t;
    for (const auto& p : live(whole))
      if (p->is_write)
        for (const Box& box : p->boxes) layers.push_back({box, true});
    Box where;
    const Cover cover = paint(whole_box(plan_.tensors[t].dims), layers, where);
    if (cover == Cover::kWhole) continue;
    report_({PlanFault::kTailLost,
             false,
             cover == Cover::kTooComplex
                 ? fmt::format("output {}: its writes are too scattered to follow", plan_.tensors[t].name)
                 : fmt::format("output {} is never written", region(whole, where)),
             {},
             plan_.tensors[t].name});
  }
}

std::string ConflictChecker::region(const Phase& phase, const Box& box) const {
  const MemorySpace& space = spaces_.space(spaces_.space_of(phase.tensor));
  std::string out = plan_.tensors[phase.tensor].name + " [";
  for (uint32_t d = 0; d < box.rank; ++d) {
    const uint64_t unit = space.in_bytes ? space.unit_bytes : 1;
    const uint64_t at = space.in_bytes ? space.begin : 0;
    out += fmt::format("{}{}..{}", d == 0 ? "" : ", ", at + static_cast<uint64_t>(box.begin[d]) * unit,
                       at + static_cast<uint64_t>(box.end[d]) * unit);
  }
  return out + (space.in_bytes ? "] (bytes of the workspace)" : "]");
}

}  // namespace megartp::verify
