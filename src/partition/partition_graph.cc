#include "partition/partition_graph.h"

#include <algorithm>
#include <limits>
#include <new>
#include <numeric>
#include <unordered_map>
#include <unordered_set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "graph/text.h"
#include "lowering/passes.h"
#include "partition/grid_stage.h"

namespace megartp {
namespace {

constexpr int64_t kMaxExtent = std::numeric_limits<int32_t>::max();
constexpr int64_t kMaxTasks = std::numeric_limits<int32_t>::max();
constexpr char kAxisNames[] = {'x', 'y', 'z'};

tl::unexpected<Error> invalid(std::string message) {
  return make_error(ErrorCode::kInvalidArgument, std::move(message));
}

// The tensors of a graph with their extents: those listed first, then the others as ops name them.
class TensorTable {
 public:
  struct Entry {
    std::string name;
    bool is_given = false;
    std::vector<int64_t> extents;
  };

  Status list(const PartitionTensor& tensor) {
    if (const std::string_view problem = name_problem(tensor.name); !problem.empty())
      return invalid(fmt::format("the tensor name {} {}", quote_name(tensor.name), problem));
    if (ids_.contains(tensor.name)) return invalid(fmt::format("tensor {} is listed twice", quote_name(tensor.name)));
    Entry& entry = entries_[find_or_add(tensor.name)];
    if (!tensor.shape) return {};
    const auto fail = [&](std::string_view what) {
      return invalid(
          fmt::format("tensor {}: shape [{}] {}", quote_name(tensor.name), fmt::join(*tensor.shape, ", "), what));
    };
    entry.is_given = true;
    entry.extents = *tensor.shape;
    if (entry.extents.empty() || entry.extents.size() > kMaxRank) return fail("must have 1 to 4 dims");
    for (const int64_t e : entry.extents)
      if (e < 1 || e > kMaxExtent) return fail("must hold extents from 1 to 2^31 - 1");
    return check_size(entry);
  }

  // Notes what an op does to a tensor; `use` ("op 'C' reads tensor 't'") opens an error's sentence.
  Status note(const std::array<int64_t, 3>& grid, const PartitionAccess& access, const std::string& use) {
    if (const std::string_view problem = name_problem(access.tensor); !problem.empty())
      return invalid(fmt::format("{}: a tensor name {}", use, problem));
    Entry& entry = entries_[find_or_add(access.tensor)];
    std::array<int64_t, kMaxRank> parts{1, 1, 1, 1};
    for (size_t axis = 0; axis < 3; ++axis) {
      const int64_t dim = access.map[axis];
      if (dim == -1) continue;
      if (dim < -1 || dim >= int64_t{kMaxRank})
        return invalid(fmt::format("{}: its map gives grid axis {} dim {}; dims are 0 to {}, and -1 is none", use,
                                   kAxisNames[axis], dim, kMaxRank - 1));
      if (entry.is_given && dim >= static_cast<int64_t>(entry.extents.size()))
        return invalid(fmt::format("{}: its map gives grid axis {} dim {}, which shape [{}] does not have", use,
                                   kAxisNames[axis], dim, fmt::join(entry.extents, ", ")));
      parts[static_cast<size_t>(dim)] *= grid[axis];
      if (!entry.is_given && static_cast<int64_t>(entry.extents.size()) <= dim)
        entry.extents.resize(static_cast<size_t>(dim) + 1, 1);
    }
    if (entry.is_given) return {};
    for (size_t d = 0; d < entry.extents.size(); ++d) {
      int64_t& extent = entry.extents[d];
      const int64_t more = parts[d] / std::gcd(extent, parts[d]);
      if (more > kMaxExtent / extent)
        return invalid(
            fmt::format("{}: no extent of dim {} up to 2^31 - 1 is divided by {} parts and by what the ops before "
                        "need ({}); give the tensor a shape",
                        use, d, parts[d], extent));
      extent *= more;
    }
    return check_size(entry);
  }

  // A tensor that nothing cuts has one dim.
  void finish() {
    for (Entry& e : entries_)
      if (e.extents.empty()) e.extents = {1};
  }

  TensorId id(const std::string& name) const { return ids_.at(name); }
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  TensorId find_or_add(const std::string& name) {
    const auto [it, is_new] = ids_.try_emplace(name, static_cast<TensorId>(entries_.size()));
    if (is_new) entries_.push_back({name, false, {}});
    return it->second;
  }
  static Status check_size(const Entry& entry) {
    int64_t elements = sizeof(float);
    for (const int64_t e : entry.extents)
      if (__builtin_mul_overflow(elements, e, &elements))
        return invalid(fmt::format("tensor {} of shape [{}] is too large", quote_name(entry.name),
                                   fmt::join(entry.extents, ", ")));
    return {};
  }

  std::vector<Entry> entries_;
  std::unordered_map<std::string, TensorId> ids_;
};

Status check_op(const PartitionOp& op, TensorTable& tensors) {
  const std::string name = fmt::format("op {}", quote_name(op.name));
  if (const std::string_view problem = name_problem(op.name); !problem.empty())
    return invalid(fmt::format("the op name {} {}", quote_name(op.name), problem));
  for (size_t axis = 0; axis < 3; ++axis)
    if (op.grid[axis] < 1 || op.grid[axis] > kMaxGridAxis)
      return invalid(fmt::format("{}: grid [{}] has {} along {}, allowed are 1 to {}", name, fmt::join(op.grid, ", "),
                                 op.grid[axis], kAxisNames[axis], kMaxGridAxis));
  if (op.num_tasks() > kMaxTasks)
    return make_error(ErrorCode::kOutOfResources,
                      fmt::format("{}: grid [{}] has more than 2^31 - 1 tasks", name, fmt::join(op.grid, ", ")));
  std::unordered_set<std::string_view> names;
  std::unordered_set<std::string_view> written;
  for (const PartitionAccess& in : op.inputs) {
    MEGARTP_TRY(tensors.note(op.grid, in, fmt::format("{} reads tensor {}", name, quote_name(in.tensor))));
    names.insert(in.tensor);
  }
  for (const PartitionAccess& out : op.outputs) {
    MEGARTP_TRY(tensors.note(op.grid, out, fmt::format("{} writes tensor {}", name, quote_name(out.tensor))));
    names.insert(out.tensor);
    // Two maps of one tensor could give a task regions that overlap those of another in part.
    if (!written.insert(out.tensor).second)
      return invalid(fmt::format("{} lists tensor {} twice among its outputs", name, quote_name(out.tensor)));
  }
  if (names.size() > abi::kOperandSlots)
    return make_error(ErrorCode::kOutOfResources, fmt::format("{} names {} tensors, an operand row holds {}", name,
                                                              names.size(), abi::kOperandSlots));
  return {};
}

Result<TensorTable> check(const PartitionGraph& graph) {
  if (graph.ops.empty()) return invalid("the partition graph has no ops");
  TensorTable tensors;
  for (const PartitionTensor& t : graph.tensors) MEGARTP_TRY(tensors.list(t));
  std::unordered_set<std::string_view> op_names;
  int64_t num_tasks = 0;
  for (const PartitionOp& op : graph.ops) {
    MEGARTP_TRY(check_op(op, tensors));
    if (!op_names.insert(op.name).second) return invalid(fmt::format("two ops are named {}", quote_name(op.name)));
    num_tasks += op.num_tasks();
    if (num_tasks > kMaxTasks)
      return make_error(ErrorCode::kOutOfResources,
                        fmt::format("op {}: more than 2^31 - 1 tasks up to here", quote_name(op.name)));
  }
  tensors.finish();
  return tensors;
}

std::vector<GridSplit> make_splits(const PartitionOp& op, const std::vector<PartitionAccess>& accesses,
                                   const TensorTable& tensors) {
  std::vector<GridSplit> splits;
  for (const PartitionAccess& a : accesses) {
    const TensorId id = tensors.id(a.tensor);
    splits.push_back(make_grid_split(id, op.grid, a.map, tensors.entries()[id].extents));
  }
  return splits;
}

Result<TaskGraph> lower_checked(const PartitionGraph& graph, const EventOptions& options) {
  const TensorTable tensors = MEGARTP_TRY(check(graph));
  TaskGraph out;
  out.name = "partition-graph";
  out.event_mode = options.mode;
  for (const TensorTable::Entry& t : tensors.entries())
    out.tensors.push_back({t.name, DType::kF32, t.extents, Storage::kActivation, false});
  for (const PartitionOp& op : graph.ops) {
    out.op_names.push_back(op.name);
    out.op_kinds.emplace_back("abstract");
  }
  {
    lowering::StageAppender appender(out);
    for (OpId id = 0; id < graph.ops.size(); ++id) {
      const PartitionOp& op = graph.ops[id];
      MEGARTP_TRY(appender.append(id, std::make_unique<GridStage>(op.name, op.grid, make_splits(op, op.inputs, tensors),
                                                                  make_splits(op, op.outputs, tensors))));
    }
  }
  MEGARTP_TRY(lowering::expand_tasks(out));
  MEGARTP_TRY(lowering::derive_events(out, options));
  return out;
}

// The map without axes that do not matter.
std::array<int64_t, 3> effective_map(const PartitionOp& op, const PartitionAccess& access) {
  std::array<int64_t, 3> map = access.map;
  for (size_t axis = 0; axis < 3; ++axis)
    if (op.grid[axis] == 1) map[axis] = -1;
  return map;
}

void warn_of_repeated_writes(const PartitionOp& op, const PartitionAccess& out, std::vector<std::string>& warnings) {
  int64_t times = 1;
  std::string axes;
  for (size_t axis = 0; axis < 3; ++axis) {
    if (op.grid[axis] == 1 || out.map[axis] != -1) continue;
    times *= op.grid[axis];
    axes += fmt::format("{}{}", axes.empty() ? "" : " and ", kAxisNames[axis]);
  }
  if (times > 1)
    warnings.push_back(
        fmt::format("op {}: {} tasks write each region of tensor {}, because grid axis {} does not split it: "
                    "the work is done {} times over",
                    quote_name(op.name), times, quote_name(out.tensor), axes, times));
}

void warn_of_surplus(const PartitionOp& op, const PartitionAccess& access, const GridSplit& split,
                     std::string_view verb, std::vector<std::string>& warnings) {
  for (size_t d = 0; d < split.dims.size(); ++d) {
    const DimSplit& dim = split.dims[d];
    if (const int64_t surplus = dim.num_parts - dim.num_used_parts(); surplus > 0)
      warnings.push_back(fmt::format(
          "op {}: {} of the {} parts of dim {} of tensor {} (extent {}, blocks of {}) lie beyond it: "
          "their tasks {} nothing of it",
          quote_name(op.name), surplus, dim.num_parts, d, quote_name(access.tensor), dim.extent, dim.block(), verb));
  }
}

}  // namespace

Status check_partition_graph(const PartitionGraph& graph) {
  MEGARTP_TRY(check(graph));
  return {};
}

Result<TaskGraph> lower_partition_graph(const PartitionGraph& graph, const EventOptions& options) {
  try {
    return lower_checked(graph, options);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory,
                      fmt::format("no memory to lower a partition graph of {} ops", graph.ops.size()));
  }
}

std::vector<std::string> partition_warnings(const PartitionGraph& graph) {
  std::vector<std::string> warnings;
  const Result<TensorTable> tensors = check(graph);
  if (!tensors) return warnings;
  for (const PartitionOp& op : graph.ops) {
    const std::vector<GridSplit> reads = make_splits(op, op.inputs, *tensors);
    const std::vector<GridSplit> writes = make_splits(op, op.outputs, *tensors);
    for (size_t i = 0; i < reads.size(); ++i) warn_of_surplus(op, op.inputs[i], reads[i], "read", warnings);
    for (size_t i = 0; i < writes.size(); ++i) {
      const PartitionAccess& out = op.outputs[i];
      warn_of_surplus(op, out, writes[i], "write", warnings);
      warn_of_repeated_writes(op, out, warnings);
      const bool races = std::ranges::any_of(op.inputs, [&](const PartitionAccess& in) {
        return in.tensor == out.tensor && effective_map(op, in) != effective_map(op, out);
      });
      if (races)
        warnings.push_back(
            fmt::format("op {}: its tasks read regions of tensor {} that other tasks of the same op write; tasks of "
                        "one op are not ordered",
                        quote_name(op.name), quote_name(out.tensor)));
    }
  }
  return warnings;
}

}  // namespace megartp
