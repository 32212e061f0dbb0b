#include "conformance/partition_cases.h"

#include <utility>

namespace megartp::test {
namespace {

using Map = std::array<int64_t, 3>;
constexpr Map kAll{-1, -1, -1};
constexpr Map kX0{0, -1, -1};
constexpr Map kX1{1, -1, -1};
constexpr Map kY0{-1, 0, -1};
constexpr Map kY1{-1, 1, -1};
constexpr Map kX0Y1{0, 1, -1};
constexpr Map kX1Y0{1, 0, -1};
constexpr Map kX0Y1Z2{0, 1, 2};

// Lists ops and what must come of them, a line each.
class CaseBuilder {
 public:
  explicit CaseBuilder(std::string name) { case_.name = std::move(name); }

  CaseBuilder& op(std::string name, Map grid, std::vector<PartitionAccess> reads, std::vector<PartitionAccess> writes) {
    case_.graph.ops.push_back({std::move(name), grid, std::move(reads), std::move(writes)});
    return *this;
  }
  CaseBuilder& shape(std::string tensor, std::vector<int64_t> dims) {
    case_.graph.tensors.push_back({std::move(tensor), std::move(dims)});
    return *this;
  }
  CaseBuilder& counts(uint64_t tasks, uint64_t roots, uint64_t end_triggers) {
    case_.tasks = tasks;
    case_.roots = roots;
    case_.end_triggers = end_triggers;
    return *this;
  }
  CaseBuilder& gcd(uint64_t events, std::vector<ExpectedEdge> edges) {
    case_.gcd = ExpectedEvents{events, std::move(edges), /*one_wait_one_signal=*/true};
    return *this;
  }
  CaseBuilder& exact(std::optional<uint64_t> events, std::vector<ExpectedEdge> edges) {
    case_.exact = ExpectedEvents{events, std::move(edges), /*one_wait_one_signal=*/false};
    return *this;
  }
  CaseBuilder& both(uint64_t events, const std::vector<ExpectedEdge>& edges) {
    return gcd(events, edges).exact(events, edges);
  }
  operator PartitionCase() const { return case_; }

 private:
  PartitionCase case_;
};

CaseBuilder chain(const std::string& name, int64_t producers, int64_t consumers) {
  CaseBuilder c(name);
  c.op("P", {producers, 1, 1}, {}, {{"t", kX0}}).op("C", {consumers, 1, 1}, {{"t", kX0}}, {{"u", kX0}});
  c.counts(static_cast<uint64_t>(producers + consumers), static_cast<uint64_t>(producers),
           static_cast<uint64_t>(consumers));
  return c;
}

void add_chains(std::vector<PartitionCase>& cases) {
  cases.push_back(chain("Chain128To128", 128, 128).both(128, {{"P", "C", {{1, 1, 128}}}}));
  cases.push_back(chain("Chain128To64", 128, 64).both(64, {{"P", "C", {{2, 1, 64}}}}));
  cases.push_back(chain("Chain128To1", 128, 1).both(1, {{"P", "C", {{128, 1, 1}}}}));
  cases.push_back(
      chain("Chain128To127", 128, 127).gcd(1, {{"P", "C", {{128, 127, 1}}}}).exact(127, {{"P", "C", {{2, 1, 127}}}}));
  cases.push_back(chain("Chain1To128", 1, 128).both(1, {{"P", "C", {{1, 128, 1}}}}));
  cases.push_back(
      chain("Chain4To6", 4, 6).gcd(2, {{"P", "C", {{2, 3, 2}}}}).exact(6, {{"P", "C", {{1, 1, 4}, {2, 1, 2}}}}));
  cases.push_back(
      chain("Chain96To64", 96, 64).gcd(32, {{"P", "C", {{3, 2, 32}}}}).exact(64, {{"P", "C", {{2, 1, 64}}}}));
  cases.push_back(chain("Chain1To7", 1, 7).both(1, {{"P", "C", {{1, 7, 1}}}}));
  cases.push_back(chain("Chain1To8", 1, 8).both(1, {{"P", "C", {{1, 8, 1}}}}));
  cases.push_back(CaseBuilder("ChainOverDim1")
                      .op("P", {128, 1, 1}, {}, {{"t", kX1}})
                      .op("C", {128, 1, 1}, {{"t", kX1}}, {{"u", kX1}})
                      .counts(256, 128, 128)
                      .both(128, {{"P", "C", {{1, 1, 128}}}}));
}

void add_multi_axis(std::vector<PartitionCase>& cases) {
  cases.push_back(CaseBuilder("TwoAxes")
                      .op("P", {4, 6, 1}, {}, {{"t", kX0Y1}})
                      .op("C", {6, 4, 1}, {{"t", kX0Y1}}, {{"u", kX0Y1}})
                      .counts(48, 24, 24)
                      .gcd(4, {{"P", "C", {{6, 6, 4}}}}));
  cases.push_back(CaseBuilder("TwoAxesTransposed")
                      .op("P", {4, 6, 1}, {}, {{"t", kX0Y1}})
                      .op("C", {6, 4, 1}, {{"t", kX1Y0}}, {{"u", kX1Y0}})
                      .counts(48, 24, 24)
                      .both(24, {{"P", "C", {{1, 1, 24}}}}));
  cases.push_back(CaseBuilder("RowsToColumns")
                      .op("P", {8, 1, 1}, {}, {{"t", kX0}})
                      .op("C", {8, 1, 1}, {{"t", kX1}}, {{"u", kX1}})
                      .counts(16, 8, 8)
                      .both(1, {{"P", "C", {{8, 8, 1}}}}));
  cases.push_back(CaseBuilder("ReplicatedInput")
                      .op("P", {16, 1, 1}, {}, {{"t", kX0}})
                      .op("C", {10, 4, 1}, {{"t", kAll}}, {{"u", kX0Y1}})
                      .counts(56, 16, 40)
                      .both(1, {{"P", "C", {{16, 40, 1}}}}));
  cases.push_back(CaseBuilder("EightWritersOfOneTile")
                      .op("P", {4, 8, 1}, {}, {{"t", kX0}})
                      .op("C", {4, 1, 1}, {{"t", kX0}}, {{"u", kX0}})
                      .counts(36, 32, 4)
                      .both(4, {{"P", "C", {{8, 1, 4}}}}));
  cases.push_back(CaseBuilder("GridOfOneThatIsMapped")
                      .op("P", {1, 1, 1}, {}, {{"t", kX0}})
                      .op("C", {8, 1, 1}, {{"t", kX0}}, {{"u", kX0}})
                      .counts(9, 1, 8)
                      .both(1, {{"P", "C", {{1, 8, 1}}}}));
}

CaseBuilder plain_fork(int64_t b) {
  CaseBuilder c("ForkOf" + std::to_string(b));
  c.op("A", {b, 1, 1}, {}, {{"a", kX0}})
      .op("B", {b, 1, 1}, {{"a", kX0}}, {{"b", kX0}})
      .op("C", {b, 1, 1}, {{"a", kX0}}, {{"c", kX0}});
  const auto n = static_cast<uint32_t>(b);
  c.counts(3 * n, n, 2 * n).both(n, {{"A", "B", {{1, 2, n}}}, {"A", "C", {{1, 2, n}}}});
  return c;
}

void add_forks(std::vector<PartitionCase>& cases) {
  cases.push_back(
      CaseBuilder("ForkAndJoin")
          .op("F", {4, 1, 1}, {}, {{"f", kX0}})
          .op("A", {4, 1, 1}, {{"f", kX0}}, {{"a", kX0}})
          .op("B", {2, 1, 1}, {{"f", kX0}}, {{"b", kX0}})
          .op("G", {4, 1, 1}, {{"a", kX0}, {"b", kX0}}, {{"g", kX0}})
          .counts(14, 4, 4)
          .gcd(4, {{"F", "A", {{2, 3, 2}}}, {"F", "B", {{2, 3, 2}}}, {"A", "G", {{3, 2, 2}}}, {"B", "G", {{3, 2, 2}}}})
          .exact({}, {{"F", "A", {{1, 1, 4}}}, {"F", "B", {{2, 1, 2}}}}));
  cases.push_back(
      CaseBuilder("ForkOneToOneAndJoin")
          .op("F", {4, 1, 1}, {}, {{"f", kX0}})
          .op("A", {4, 1, 1}, {{"f", kX0}}, {{"a", kX0}})
          .op("B", {4, 1, 1}, {{"f", kX0}}, {{"b", kX0}})
          .op("G", {2, 1, 1}, {{"a", kX0}, {"b", kX0}}, {{"g", kX0}})
          .counts(14, 4, 2)
          .gcd(6,
               {{"F", "A", {{1, 2, 4}}}, {"F", "B", {{1, 2, 4}}}, {"A", "G", {{4, 1, 2}}}, {"B", "G", {{4, 1, 2}}}}));
  cases.push_back(CaseBuilder("ForkWithABroadcastBranch")
                      .op("F", {16, 1, 1}, {}, {{"f", kX0}})
                      .op("A", {16, 1, 1}, {{"f", kX0}}, {{"a", kX0}})
                      .op("B", {10, 1, 1}, {{"f", kAll}}, {{"b", kX0}})
                      .counts(42, 16, 26)
                      .gcd(1, {{"F", "A", {{16, 26, 1}}}, {"F", "B", {{16, 26, 1}}}})
                      .exact(17, {{"F", "A", {{1, 1, 16}}}, {"F", "B", {{16, 10, 1}}}}));
  cases.push_back(CaseBuilder("ForkOverTwoAxes")
                      .op("F", {4, 4, 1}, {}, {{"f", kX0Y1}})
                      .op("A", {4, 2, 1}, {{"f", kX0Y1}}, {{"a", kX0Y1}})
                      .op("B", {2, 4, 1}, {{"f", kX0Y1}}, {{"b", kX0Y1}})
                      .counts(32, 16, 16)
                      .gcd(4, {{"F", "A", {{4, 4, 4}}}, {"F", "B", {{4, 4, 4}}}})
                      .exact(16, {{"F", "A", {{2, 1, 8}}}, {"F", "B", {{2, 1, 8}}}}));
  for (const int64_t b : {4, 8, 16}) cases.push_back(plain_fork(b));
}

void add_joins(std::vector<PartitionCase>& cases) {
  cases.push_back(CaseBuilder("JoinWithAReplicatedInput")
                      .op("A", {8, 1, 1}, {}, {{"a", kX0}})
                      .op("B", {8, 1, 1}, {}, {{"b", kX0}})
                      .op("C", {64, 8, 1}, {{"a", kAll}, {"b", kY0}}, {{"c", kX0Y1}})
                      .counts(528, 16, 512)
                      .gcd(1, {{"A", "C", {{16, 512, 1}}}, {"B", "C", {{16, 512, 1}}}})
                      .exact(9, {{"A", "C", {{8, 512, 1}}}, {"B", "C", {{1, 64, 8}}}}));
  cases.push_back(CaseBuilder("ResidualBehindABarrier")
                      .op("A", {8, 1, 1}, {}, {{"a", kX0}})
                      .op("B", {8, 1, 1}, {{"a", kX0}}, {{"b", kX0}})
                      .op("C", {64, 8, 1}, {{"b", kAll}, {"a", kY0}}, {{"c", kX0Y1}})
                      .counts(528, 8, 512)
                      .both(9, {{"A", "B", {{1, 1, 8}}}, {"B", "C", {{8, 512, 1}}}, {"A", "C", {}}}));
  cases.push_back(CaseBuilder("Diamond")
                      .op("A", {8, 1, 1}, {}, {{"a", kX0}})
                      .op("B", {64, 8, 1}, {{"a", kAll}}, {{"b", kX0}})
                      .op("C", {64, 8, 1}, {{"a", kAll}}, {{"c", kX0}})
                      .op("D", {64, 8, 1}, {{"b", kAll}, {"c", kAll}}, {{"d", kX0}})
                      .counts(1544, 8, 512)
                      .gcd(2, {{"A", "B", {{8, 1024, 1}}},
                               {"A", "C", {{8, 1024, 1}}},
                               {"B", "D", {{1024, 512, 1}}},
                               {"C", "D", {{1024, 512, 1}}}}));
  cases.push_back(CaseBuilder("NormProjectionsAttention")
                      .op("N", {8, 1, 1}, {}, {{"n", kX0}})
                      .op("Q", {8, 1, 1}, {{"n", kAll}}, {{"q", kX1}})
                      .op("K", {4, 1, 1}, {{"n", kAll}}, {{"k", kX1}})
                      .op("V", {4, 1, 1}, {{"n", kAll}}, {{"v", kX1}})
                      .op("ATT", {4, 1, 1}, {{"q", kX1}, {"k", kX1}, {"v", kX1}}, {{"o", kX1}})
                      .counts(28, 8, 4)
                      .gcd(5, {{"N", "Q", {{8, 16, 1}}},
                               {"N", "K", {{8, 16, 1}}},
                               {"N", "V", {{8, 16, 1}}},
                               {"Q", "ATT", {{4, 1, 4}}},
                               {"K", "ATT", {{4, 1, 4}}},
                               {"V", "ATT", {{4, 1, 4}}}}));
  cases.push_back(CaseBuilder("AnUnreadRoot")
                      .op("A", {8, 1, 1}, {}, {{"a", kX0}})
                      .op("B", {4, 1, 1}, {}, {{"b", kX0}})
                      .op("C", {8, 1, 1}, {{"a", kX0}}, {{"c", kX0}})
                      .counts(20, 12, 12)
                      .both(8, {{"A", "C", {{1, 1, 8}}}}));
}

// MPK refuses these: a task there has one wait and one signal.
void add_not_series_parallel(std::vector<PartitionCase>& cases) {
  cases.push_back(CaseBuilder("ForkProducerThatIsAJoinProducer")
                      .op("L", {8, 1, 1}, {}, {{"l", kX0}})
                      .op("M", {8, 1, 1}, {}, {{"m", kX0}})
                      .op("B", {64, 8, 1}, {{"l", kAll}, {"m", kY0}}, {{"b", kX0Y1}})
                      .op("C", {8, 1, 1}, {{"l", kX0}}, {{"c", kX0}})
                      .counts(536, 16, 520)
                      .exact(17, {{"L", "B", {{8, 512, 1}}}, {"M", "B", {{1, 64, 8}}}, {"L", "C", {{1, 1, 8}}}}));
  cases.push_back(CaseBuilder("NGraph")
                      .op("A", {8, 1, 1}, {}, {{"a", kX0}})
                      .op("B", {8, 1, 1}, {}, {{"b", kX0}})
                      .op("C", {8, 1, 1}, {{"a", kX0}}, {{"c", kX0}})
                      .op("D", {8, 1, 1}, {{"a", kX0}, {"b", kX0}}, {{"d", kX0}})
                      .counts(32, 16, 16)
                      .exact(16, {{"A", "C", {{1, 2, 8}}}, {"A", "D", {{1, 2, 8}}}, {"B", "D", {{1, 1, 8}}}}));
  cases.push_back(CaseBuilder("WGraph")
                      .op("A", {4, 1, 1}, {}, {{"a", kX0}})
                      .op("B", {6, 1, 1}, {}, {{"b", kX0}})
                      .op("C", {4, 1, 1}, {{"a", kX0}}, {{"c", kX0}})
                      .op("D", {3, 1, 1}, {{"a", kX0}, {"b", kX0}}, {{"d", kX0}})
                      .op("E", {6, 1, 1}, {{"b", kX0}}, {{"e", kX0}})
                      .counts(23, 10, 13));
  // One task would wait for nine ops, and one would send nine different signals.
  CaseBuilder wide("MoreWaitsAndSignalsThanAnInstructionHolds");
  std::vector<PartitionAccess> all;
  wide.op("S", {36, 1, 1}, {}, {{"s", kX0}});
  for (int64_t i = 1; i <= 9; ++i) {
    const std::string name = "M" + std::to_string(i);
    wide.op(name, {i, 1, 1}, {{"s", kX0}}, {{name, kX0}});
    all.push_back({name, kX0});
  }
  wide.op("T", {5, 1, 1}, all, {{"t", kX0}}).counts(36 + 45 + 5, 36, 5);
  cases.push_back(wide);
}

void add_fragments(std::vector<PartitionCase>& cases) {
  cases.push_back(CaseBuilder("Mlp")
                      .op("GATE_UP", {64, 1, 1}, {}, {{"g", kX1}})
                      .op("SILU", {32, 1, 1}, {{"g", kX1}}, {{"s", kX1}})
                      .op("DOWN", {64, 1, 1}, {{"s", kAll}}, {{"d", kX1}})
                      .counts(160, 64, 64)
                      .both(33, {{"GATE_UP", "SILU", {{2, 1, 32}}}, {"SILU", "DOWN", {{32, 64, 1}}}}));
  cases.push_back(
      CaseBuilder("AttentionBlock")
          .op("NORM", {8, 1, 1}, {}, {{"n", kX0}})
          .op("QKV", {128, 1, 1}, {{"n", kAll}}, {{"qkv", kX1}})
          .op("ATT", {8, 8, 1}, {{"qkv", kX0Y1}}, {{"o", kX0Y1}})
          .op("O", {64, 1, 1}, {{"o", kAll}}, {{"p", kX1}})
          .counts(264, 8, 64)
          .both(10, {{"NORM", "QKV", {{8, 128, 1}}}, {"QKV", "ATT", {{16, 8, 8}}}, {"ATT", "O", {{64, 64, 1}}}}));
  cases.push_back(
      CaseBuilder("SplitKvAttention")
          .op("QKV", {128, 1, 1}, {}, {{"qkv", kX1}})
          .op("SPLIT", {1, 8, 4}, {{"qkv", kY1}}, {{"part", kX0Y1Z2}})
          .op("MERGE", {1, 8, 1}, {{"part", kX0Y1}}, {{"o", kY1}})
          .op("O", {64, 1, 1}, {{"o", kAll}}, {{"p", kX1}})
          .counts(232, 128, 64)
          .both(17, {{"QKV", "SPLIT", {{16, 4, 8}}}, {"SPLIT", "MERGE", {{4, 1, 8}}}, {"MERGE", "O", {{8, 64, 1}}}}));
  cases.push_back(CaseBuilder("ResidualOneToOne")
                      .op("U", {8, 1, 1}, {}, {{"u", kX0}})
                      .op("W", {8, 1, 1}, {{"u", kX0}}, {{"w", kX0}})
                      .op("V", {8, 1, 1}, {{"u", kX0}, {"w", kX0}}, {{"v", kX0}})
                      .counts(24, 8, 8)
                      .both(16, {{"U", "W", {{1, 1, 8}}}, {"W", "V", {{1, 1, 8}}}, {"U", "V", {}}}));
}

// A compiler that looks at ops instead of regions loses dependencies of these.
void add_adversarial(std::vector<PartitionCase>& cases) {
  cases.push_back(CaseBuilder("A1ResidualThatIsReplicated")
                      .op("U", {8, 1, 1}, {}, {{"u", kX0}})
                      .op("W", {8, 1, 1}, {{"u", kX0}}, {{"w", kX0}})
                      .op("V", {8, 1, 1}, {{"u", kAll}, {"w", kX0}}, {{"v", kX0}})
                      .counts(24, 8, 8)
                      .exact(17, {{"U", "W", {{1, 1, 8}}}, {"W", "V", {{1, 1, 8}}}, {"U", "V", {{8, 8, 1}}}}));
  cases.push_back(CaseBuilder("A2TwoTensorsOfOnePair")
                      .op("P", {8, 1, 1}, {}, {{"p", kX0}, {"q", kX0}})
                      .op("C", {8, 1, 1}, {{"p", kX0}, {"q", kAll}}, {{"c", kX0}})
                      .counts(16, 8, 8)
                      .exact(1, {}));
  cases.push_back(CaseBuilder("A4TwoTensorsAndAFork")
                      .op("P", {8, 1, 1}, {}, {{"p", kX0}, {"q", kX0}})
                      .op("A", {8, 1, 1}, {{"p", kX0}, {"q", kX0}}, {{"a", kX0}})
                      .op("B", {8, 1, 1}, {{"p", kX0}}, {{"b", kX0}})
                      .counts(24, 8, 16)
                      .both(8, {{"P", "A", {{1, 2, 8}}}, {"P", "B", {{1, 2, 8}}}}));
  cases.push_back(CaseBuilder("A6TwoAxesOnOneDim")
                      .op("P", {2, 3, 1}, {}, {{"t", {0, 0, -1}}})
                      .op("C", {2, 3, 1}, {{"t", {0, 0, -1}}}, {{"u", {0, 0, -1}}})
                      .counts(12, 6, 6)
                      .both(6, {{"P", "C", {{1, 1, 6}}}}));
  cases.push_back(CaseBuilder("A6TwoAxesAgainstOne")
                      .op("P", {2, 3, 1}, {}, {{"t", {0, 0, -1}}})
                      .op("C", {1, 3, 4}, {{"t", {-1, 0, 0}}}, {{"u", {-1, 0, 0}}})
                      .counts(18, 6, 12)
                      .both(6, {{"P", "C", {{1, 2, 6}}}}));
  cases.push_back(CaseBuilder("A7ABufferThatIsRewritten")
                      .op("A", {8, 1, 1}, {}, {{"buf", kX0}})
                      .op("B", {8, 1, 1}, {{"buf", kAll}}, {{"y", kX0}})
                      .op("C", {8, 1, 1}, {{"y", kX0}}, {{"buf", kX0}})
                      .op("D", {8, 1, 1}, {{"buf", kX0}}, {{"d", kX0}})
                      .counts(32, 8, 8)
                      .exact(10, {{"A", "B", {{8, 8, 1}}}, {"C", "D", {{1, 1, 8}}}}));
  // Blocks of 13 against blocks of 17: consumer j needs the blocks floor(17j/13) to ceil(min(17(j+1), 100)/13) - 1.
  cases.push_back(CaseBuilder("A9RaggedTail")
                      .shape("t", {100})
                      .op("P", {8, 1, 1}, {}, {{"t", kX0}})
                      .op("C", {6, 1, 1}, {{"t", kX0}}, {{"u", kX0}})
                      .counts(14, 8, 6)
                      .exact(6, {{"P", "C", {{2, 1, 5}, {3, 1, 1}}}}));
  cases.push_back(CaseBuilder("A9RaggedInTwoDims")
                      .shape("t", {7, 10})
                      .op("P", {3, 4, 1}, {}, {{"t", kX0Y1}})
                      .op("C", {2, 3, 1}, {{"t", kX0Y1}}, {{"u", kX0Y1}})
                      .counts(18, 12, 6));
}

}  // namespace

const std::vector<PartitionCase>& partition_cases() {
  static const std::vector<PartitionCase> cases = [] {
    std::vector<PartitionCase> list;
    add_chains(list);
    add_multi_axis(list);
    add_forks(list);
    add_joins(list);
    add_not_series_parallel(list);
    add_fragments(list);
    add_adversarial(list);
    return list;
  }();
  return cases;
}

}  // namespace megartp::test
