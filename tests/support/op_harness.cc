#include "support/op_harness.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <span>

#include <gtest/gtest.h>

#include "base/bfloat16.h"
#include "base/float8.h"

namespace megartp::test {

double calc_diff(const std::vector<double>& x, const std::vector<double>& y) {
  double xy = 0;
  double xx = 0;
  double yy = 0;
  if (x.size() != y.size()) return std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < x.size(); ++i) {
    if (std::isinf(x[i]) && x[i] == y[i]) continue;
    if (!std::isfinite(x[i]) || !std::isfinite(y[i])) return std::numeric_limits<double>::infinity();
    xy += x[i] * y[i];
    xx += x[i] * x[i];
    yy += y[i] * y[i];
  }
  return xx + yy == 0 ? 0.0 : 1.0 - 2.0 * xy / (xx + yy);
}

std::vector<double> to_doubles(DType dtype, const void* data, size_t count) {
  std::vector<double> v(count);
  for (size_t i = 0; i < count; ++i) {
    switch (dtype) {
      case DType::kF64: v[i] = static_cast<const double*>(data)[i]; break;
      case DType::kF32: v[i] = static_cast<double>(static_cast<const float*>(data)[i]); break;
      case DType::kBF16: v[i] = static_cast<double>(to_float(static_cast<const bf16*>(data)[i])); break;
      case DType::kF8E4M3: v[i] = static_cast<double>(to_float(static_cast<const e4m3*>(data)[i])); break;
      case DType::kI64: v[i] = static_cast<double>(static_cast<const int64_t*>(data)[i]); break;
      case DType::kI32: v[i] = static_cast<double>(static_cast<const int32_t*>(data)[i]); break;
      case DType::kU8: v[i] = static_cast<double>(static_cast<const uint8_t*>(data)[i]); break;
    }
  }
  return v;
}

size_t HostBuffer::count() const {
  size_t n = 1;
  for (const int64_t d : dims) n *= static_cast<size_t>(d);
  return n;
}

namespace {

HostBuffer make_buffer(DType dtype, std::vector<int64_t> dims, uint8_t fill) {
  HostBuffer b{dtype, std::move(dims), {}};
  b.bytes.assign(b.count() * size_in_bytes(dtype), std::byte{fill});
  return b;
}

// Calls visit(element offset, number of elements) for every contiguous run of the box.
template <class Visit>
void for_each_run(const Box& box, const std::vector<int64_t>& dims, Visit visit) {
  const auto rank = static_cast<uint32_t>(dims.size());
  ASSERT_EQ(box.rank, rank);
  for (uint32_t d = 0; d < rank; ++d) {
    ASSERT_GE(box.begin[d], 0);
    ASSERT_LE(box.end[d], dims[d]);
    if (box.begin[d] >= box.end[d]) return;
  }
  std::array<int64_t, kMaxRank> at{};
  for (uint32_t d = 0; d < rank; ++d) at[d] = box.begin[d];
  const int64_t run = box.end[rank - 1] - box.begin[rank - 1];
  while (true) {
    int64_t offset = 0;
    for (uint32_t d = 0; d < rank; ++d) offset = offset * dims[d] + at[d];
    visit(static_cast<size_t>(offset), static_cast<size_t>(run));
    int32_t d = static_cast<int32_t>(rank) - 2;
    for (; d >= 0; --d) {
      const auto u = static_cast<uint32_t>(d);
      if (++at[u] < box.end[u]) break;
      at[u] = box.begin[u];
    }
    if (d < 0) break;
  }
}

struct Slot {  // a tensor of the run
  HostBuffer buffer;
  bool tracked = false;
  bool is_workspace = false;
  bool writable = false;
};

class HarnessContext final : public LowerContext {
 public:
  HarnessContext(const OpGraph& graph, const OpCase& op_case, FinalizerMode mode)
      : op_(graph.ops()[0]), shapes_(op_case.shapes), mode_(mode), num_sms_(op_case.num_sms) {
    for (const TensorInfo& t : graph.tensors()) {
      const auto dims = shapes_.eval(t.shape);
      tensors_.push_back({t.name, t.dtype, dims.value(), t.storage, t.is_partial});
    }
  }
  const OpInfo& op() const override { return op_; }
  const ConcreteTensor& tensor(TensorId id) const override { return tensors_[id]; }
  const ShapeEnv& shapes() const override { return shapes_; }
  FinalizerMode finalizer() const override { return mode_; }
  uint32_t num_sms() const override { return num_sms_; }
  TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims, bool is_partial) override {
    tensors_.push_back({op_.name + "." + std::string(name), dtype, std::move(dims), Storage::kActivation, is_partial});
    return static_cast<TensorId>(tensors_.size() - 1);
  }
  const std::vector<ConcreteTensor>& tensors() const { return tensors_; }

 private:
  const OpInfo& op_;
  const ShapeEnv& shapes_;
  FinalizerMode mode_;
  uint32_t num_sms_;
  std::vector<ConcreteTensor> tensors_;
};

OpGraph build_graph(const OpCase& c) {
  OpGraph graph("op_harness");
  std::vector<Tensor> inputs;
  for (const OpInput& in : c.inputs)
    inputs.push_back(in.is_state ? graph.state(in.name, in.dtype, in.shape)
                                 : graph.runtime_arg(in.name, in.dtype, in.shape));
  graph.op(c.kind, "op", inputs, c.attrs);
  EXPECT_TRUE(graph.status()) << graph.status().error().to_string();
  return graph;
}

HostBuffer make_input(const OpCase& c, const OpInput& in) {
  HostBuffer b = make_buffer(in.dtype, c.shapes.eval(in.shape).value(), 0);
  in.fill(b);
  return b;
}

class TileRunner {
 public:
  TileRunner(const OpFamily& family, std::vector<Slot>& slots, uint8_t poison)
      : family_(family), slots_(slots), poison_(poison), scratch_(kCpuScratchBytes + 64), covered_(slots.size()) {}

  void run_stage(const Stage& stage, std::mt19937_64& rng) {
    std::vector<uint32_t> order(stage.num_tiles);
    for (uint32_t i = 0; i < stage.num_tiles; ++i) order[i] = i;
    std::shuffle(order.begin(), order.end(), rng);
    std::vector<uint32_t> arrivals(stage.num_join_groups, 0);
    std::vector<uint32_t> expected(stage.num_join_groups, 0);
    std::vector<std::vector<FinalDesc>> finals(stage.num_join_groups);
    TileDesc tile;
    for (uint32_t i = 0; i < stage.num_tiles; ++i) {
      tile.clear();
      stage.tile(i, tile);
      if (tile.join_group != abi::kNoJoin) ++expected.at(tile.join_group);
    }
    for (uint32_t i = 0; i < stage.num_final_tiles; ++i) {
      FinalDesc f;
      stage.final_tile(i, f);
      finals.at(f.join_group).push_back(f);
    }
    std::vector<std::vector<uint8_t>> stage_writes(slots_.size());
    for (const uint32_t i : order) {
      tile.clear();
      stage.tile(i, tile);
      const bool last = tile.join_group != abi::kNoJoin && ++arrivals[tile.join_group] == expected[tile.join_group];
      run_tile(stage, tile, last ? &finals[tile.join_group] : nullptr, stage_writes);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }

  const std::vector<std::vector<uint8_t>>& covered() const { return covered_; }

 private:
  void run_tile(const Stage& stage, const TileDesc& tile, const std::vector<FinalDesc>* finals,
                std::vector<std::vector<uint8_t>>& stage_writes) {
    check_instruction(stage, tile);
    std::vector<std::vector<uint8_t>> may_write(slots_.size());
    std::vector<std::vector<uint8_t>> may_read(slots_.size());
    for (const Access& a : tile.writes) mark(a, may_write, &stage_writes);
    for (const Access& a : tile.reads) mark(a, may_read, nullptr);
    if (finals != nullptr) {
      for (const FinalDesc& f : *finals) {
        for (const Access& a : f.writes) mark(a, may_write, &stage_writes);
        for (const Access& a : f.reads) mark(a, may_read, nullptr);
      }
    }
    if (::testing::Test::HasFatalFailure()) return;
    // Poison what the tile has no right to read, and remember everything to find out what it wrote.
    const bool fused = tile.join_group != abi::kNoJoin;
    std::vector<std::vector<std::byte>> before(slots_.size());
    std::vector<std::vector<std::byte>> original(slots_.size());
    for (size_t s = 0; s < slots_.size(); ++s) {
      Slot& slot = slots_[s];
      const bool track = slot.tracked || (slot.is_workspace && !fused && may_write[s].empty());
      if (track) {
        original[s] = slot.buffer.bytes;
        const size_t size = size_in_bytes(slot.buffer.dtype);
        for (size_t e = 0; e < slot.buffer.count(); ++e)
          if (may_read[s].empty() || may_read[s][e] == 0) std::memset(slot.buffer.bytes.data() + e * size, 0xff, size);
      }
      before[s] = slot.buffer.bytes;
    }
    execute(stage, tile, finals != nullptr);
    for (size_t s = 0; s < slots_.size(); ++s) {
      Slot& slot = slots_[s];
      if (slot.buffer.bytes != before[s]) {
        const size_t size = size_in_bytes(slot.buffer.dtype);
        for (size_t e = 0; e < slot.buffer.count(); ++e) {
          if (std::memcmp(slot.buffer.bytes.data() + e * size, before[s].data() + e * size, size) == 0) continue;
          ASSERT_TRUE(!may_write[s].empty() && may_write[s][e] != 0)
              << stage.name << ": a tile (" << describe(stage, tile) << ") wrote element " << e << " of tensor " << s
              << ", which is outside its declared write boxes";
        }
      }
      if (!original[s].empty()) {
        ASSERT_EQ(slot.buffer.bytes, before[s]) << stage.name << ": a tile wrote a tracked input";
        slot.buffer.bytes = original[s];
      }
    }
  }

  std::string describe(const Stage& stage, const TileDesc& tile) const {
    return family_.describe_payload(stage.opcode, std::span(tile.payload.data(), tile.num_payload));
  }

  void check_instruction(const Stage& stage, const TileDesc& tile) {
    abi::Instruction instruction{};
    instruction.opcode = stage.opcode;
    instruction.counts = abi::make_counts(0, 0, tile.num_payload);
    std::copy(tile.payload.begin(), tile.payload.end(), instruction.payload);
    std::vector<OperandType> operands(abi::kOperandSlots);
    ASSERT_LE(stage.slots.size(), abi::kOperandSlots);
    for (size_t s = 0; s < stage.slots.size(); ++s) {
      if (stage.slots[s] == kInvalidId) continue;
      const HostBuffer& b = slots_[stage.slots[s]].buffer;
      operands[s] = {true, b.dtype, b.dims};
    }
    const Status ok = family_.check_instruction(InstructionCheck{instruction, stage.spec, operands});
    ASSERT_TRUE(ok) << stage.name << ": check_instruction refused a tile of lower(): " << ok.error().to_string();
  }

  void mark(const Access& a, std::vector<std::vector<uint8_t>>& marks,
            std::vector<std::vector<uint8_t>>* stage_writes) {
    ASSERT_LT(a.tensor, slots_.size());
    Slot& slot = slots_[a.tensor];
    auto& m = marks[a.tensor];
    m.resize(slot.buffer.count());
    const bool is_write = stage_writes != nullptr;
    ASSERT_TRUE(!is_write || slot.writable) << "a tile writes the read-only tensor " << a.tensor;
    for_each_run(a.box, slot.buffer.dims, [&](size_t offset, size_t n) {
      std::fill_n(m.begin() + static_cast<ptrdiff_t>(offset), n, uint8_t{1});
    });
    if (!is_write) return;
    auto& all = (*stage_writes)[a.tensor];
    auto& covered = covered_[a.tensor];
    all.resize(slot.buffer.count());
    covered.resize(slot.buffer.count());
    bool overlap = false;
    for_each_run(a.box, slot.buffer.dims, [&](size_t offset, size_t n) {
      for (size_t e = offset; e < offset + n; ++e) {
        overlap = overlap || (all[e] != 0 && !a.scatter);
        all[e] = 1;
        covered[e] = a.scatter ? 2 : 1;
      }
    });
    ASSERT_FALSE(overlap) << "write boxes of one stage overlap on tensor " << a.tensor;
  }

  void execute(const Stage& stage, const TileDesc& tile, bool last) {
    std::vector<void*> row(abi::kOperandSlots, nullptr);
    for (size_t s = 0; s < stage.slots.size(); ++s)
      if (stage.slots[s] != kInvalidId) row[s] = slots_[stage.slots[s]].buffer.bytes.data();
    bool joined = false;
    const std::function<bool()> join = [&] {
      EXPECT_FALSE(joined) << stage.name << ": a tile joined twice";
      joined = true;
      return last;
    };
    auto* base = reinterpret_cast<std::byte*>(round_up_64(reinterpret_cast<uintptr_t>(scratch_.data())));
    std::fill(scratch_.begin(), scratch_.end(), std::byte{poison_});
    CpuTile t;
    t.opcode = stage.opcode;
    t.payload = tile.payload.data();
    t.spec = stage.spec;
    t.operands = row.data();
    t.scratch = std::span(base, kCpuScratchBytes);
    t.join = tile.join_group == abi::kNoJoin ? nullptr : &join;
    family_.run_tile(t);
    EXPECT_EQ(joined, tile.join_group != abi::kNoJoin)
        << stage.name << ": a tile of a join group must arrive exactly once";
  }

  static uintptr_t round_up_64(uintptr_t x) { return (x + 63) & ~uintptr_t{63}; }

  const OpFamily& family_;
  std::vector<Slot>& slots_;
  uint8_t poison_;
  std::vector<std::byte> scratch_;
  std::vector<std::vector<uint8_t>> covered_;  // per tensor: 1 written by boxes, 2 by scatter
};

std::string output_name(const OpGraph& graph, size_t i) {
  const std::string& full = graph.tensor(graph.ops()[0].outputs[i]).name;
  return full.starts_with("op.") ? full.substr(3) : full;
}

}  // namespace

OpResult run_op_tiles(const OpCase& c, FinalizerMode mode, uint64_t order_seed, uint8_t poison) {
  OpResult result;
  const OpGraph graph = build_graph(c);
  if (!graph.status()) return result;
  const OpFamily* family = find_op_family(c.kind);
  HarnessContext context(graph, c, mode);
  auto stages = family->lower(context);
  EXPECT_TRUE(stages) << stages.error().to_string();
  if (!stages) return result;
  std::vector<Slot> slots;
  for (size_t i = 0; i < context.tensors().size(); ++i) {
    const ConcreteTensor& t = context.tensors()[i];
    Slot slot;
    if (i < c.inputs.size()) {
      slot.buffer = make_input(c, c.inputs[i]);
      slot.tracked = c.inputs[i].tracked;
      slot.writable = c.inputs[i].is_state;
    } else {
      slot.buffer = make_buffer(t.dtype, t.dims, poison);
      slot.writable = true;
      slot.is_workspace = i >= graph.tensors().size();
    }
    slots.push_back(std::move(slot));
  }
  std::mt19937_64 rng(order_seed);
  TileRunner runner(*family, slots, poison);
  for (const auto& stage : *stages) {
    runner.run_stage(*stage, rng);
    result.num_tiles += stage->num_tiles;
    result.num_final_tiles += stage->num_final_tiles;
    if (::testing::Test::HasFatalFailure()) return result;
  }
  for (size_t i = 0; i < graph.ops()[0].outputs.size(); ++i) {
    const TensorId id = graph.ops()[0].outputs[i];
    const std::string name = output_name(graph, i);
    const auto& covered = runner.covered()[id];
    const bool partial = std::find(c.partial_outputs.begin(), c.partial_outputs.end(), name) != c.partial_outputs.end();
    const auto written =
        static_cast<size_t>(std::count_if(covered.begin(), covered.end(), [](uint8_t v) { return v != 0; }));
    if (!partial) {
      EXPECT_EQ(written, slots[id].buffer.count()) << "output '" << name << "' is not fully written";
    }
    // Unwritten elements take one fixed value, so that runs with different poison compare equal.
    const size_t size = size_in_bytes(slots[id].buffer.dtype);
    for (size_t e = 0; e < slots[id].buffer.count(); ++e)
      if (covered.empty() || covered[e] == 0) std::memset(slots[id].buffer.bytes.data() + e * size, 0, size);
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) result.inputs.push_back(slots[i].buffer);
  for (const TensorId id : graph.ops()[0].outputs) result.outputs.push_back(slots[id].buffer);
  return result;
}

OpResult run_op_reference(const OpCase& c) {
  OpResult result;
  const OpGraph graph = build_graph(c);
  if (!graph.status()) return result;
  for (const OpInput& in : c.inputs) result.inputs.push_back(make_input(c, in));
  for (const TensorId id : graph.ops()[0].outputs)
    result.outputs.push_back(make_buffer(graph.tensor(id).dtype, c.shapes.eval(graph.tensor(id).shape).value(), 0));
  std::vector<HostTensor> in;
  std::vector<HostTensor> out;
  for (HostBuffer& b : result.inputs) in.push_back({b.dtype, b.dims, b.bytes.data()});
  for (HostBuffer& b : result.outputs) out.push_back({b.dtype, b.dims, b.bytes.data()});
  const Status ok = find_op_family(c.kind)->reference(ReferenceContext{graph.ops()[0], c.shapes, in, out});
  EXPECT_TRUE(ok) << ok.error().to_string();
  return result;
}

OpResult check_op(const OpCase& c) {
  OpResult base = run_op_tiles(c, FinalizerMode::kFused, 1, 0xff);
  if (::testing::Test::HasFatalFailure() || base.inputs.empty()) return base;
  const std::vector<std::pair<FinalizerMode, uint64_t>> others{{FinalizerMode::kFused, 2}, {FinalizerMode::kTasks, 3}};
  for (const auto& [mode, seed] : others) {
    const OpResult r = run_op_tiles(c, mode, seed, 0x3c);
    if (::testing::Test::HasFatalFailure() || r.inputs.empty()) return base;
    for (size_t i = 0; i < base.outputs.size(); ++i)
      EXPECT_TRUE(r.outputs[i].bytes == base.outputs[i].bytes)
          << c.kind << ": output " << i << " depends on tile order, poison or finalizer mode (mode "
          << static_cast<int>(mode) << ")";
    for (size_t i = 0; i < base.inputs.size(); ++i)
      EXPECT_TRUE(r.inputs[i].bytes == base.inputs[i].bytes) << c.kind << ": input " << i << " differs between runs";
  }
  const OpGraph graph = build_graph(c);
  const OpResult ref = run_op_reference(c);
  for (size_t i = 0; i < base.outputs.size(); ++i) {
    const HostBuffer& got = base.outputs[i];
    const HostBuffer& want = ref.outputs[i];
    const std::string name = output_name(graph, i);
    const auto limit = c.max_calc_diff_of.find(name);
    const double diff = calc_diff(to_doubles(got.dtype, got.bytes.data(), got.count()),
                                  to_doubles(want.dtype, want.bytes.data(), want.count()));
    EXPECT_LE(diff, limit == c.max_calc_diff_of.end() ? c.max_calc_diff : limit->second)
        << c.kind << ": output '" << name << "' against the reference";
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.inputs[i].is_state) continue;
    const HostBuffer& got = base.inputs[i];
    const HostBuffer& want = ref.inputs[i];
    if (got.dtype == DType::kU8) {
      size_t differ = 0;
      for (size_t b = 0; b < got.bytes.size(); ++b) differ += got.bytes[b] != want.bytes[b] ? 1 : 0;
      EXPECT_LE(static_cast<double>(differ), c.max_byte_mismatch * static_cast<double>(got.bytes.size()))
          << c.kind << ": state '" << c.inputs[i].name << "' against the reference";
    } else {
      EXPECT_LE(calc_diff(to_doubles(got.dtype, got.bytes.data(), got.count()),
                          to_doubles(want.dtype, want.bytes.data(), want.count())),
                c.max_calc_diff)
          << c.kind << ": state '" << c.inputs[i].name << "' against the reference";
    }
  }
  return base;
}

namespace {
void store(HostBuffer& b, size_t i, double v) {
  switch (b.dtype) {
    case DType::kF64: b.as<double>()[i] = v; break;
    case DType::kF32: b.as<float>()[i] = static_cast<float>(v); break;
    case DType::kBF16: b.as<bf16>()[i] = to_bf16(static_cast<float>(v)); break;
    case DType::kF8E4M3: b.as<e4m3>()[i] = to_e4m3(static_cast<float>(v)); break;
    case DType::kI64: b.as<int64_t>()[i] = static_cast<int64_t>(v); break;
    case DType::kI32: b.as<int32_t>()[i] = static_cast<int32_t>(v); break;
    case DType::kU8: b.as<uint8_t>()[i] = static_cast<uint8_t>(v); break;
  }
}
}  // namespace

std::function<void(HostBuffer&)> fill_normal(uint64_t seed, double stddev, double mean) {
  return [=](HostBuffer& b) {
    std::mt19937_64 rng(seed);
    std::normal_distribution<double> dist(mean, stddev);
    for (size_t i = 0; i < b.count(); ++i) store(b, i, dist(rng));
  };
}

std::function<void(HostBuffer&)> fill_uniform(uint64_t seed, double low, double high) {
  return [=](HostBuffer& b) {
    std::mt19937_64 rng(seed);
    std::uniform_real_distribution<double> dist(low, high);
    for (size_t i = 0; i < b.count(); ++i) store(b, i, dist(rng));
  };
}

std::function<void(HostBuffer&)> fill_const(double value) {
  return [=](HostBuffer& b) {
    for (size_t i = 0; i < b.count(); ++i) store(b, i, value);
  };
}

std::function<void(HostBuffer&)> fill_int(uint64_t seed, int64_t low, int64_t high) {
  return [=](HostBuffer& b) {
    std::mt19937_64 rng(seed);
    std::uniform_int_distribution<int64_t> dist(low, high - 1);
    for (size_t i = 0; i < b.count(); ++i) store(b, i, static_cast<double>(dist(rng)));
  };
}

std::function<void(HostBuffer&)> fill_values(std::vector<int64_t> values) {
  return [values = std::move(values)](HostBuffer& b) {
    ASSERT_EQ(values.size(), b.count());
    for (size_t i = 0; i < b.count(); ++i) store(b, i, static_cast<double>(values[i]));
  };
}

}  // namespace megartp::test
