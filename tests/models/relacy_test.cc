// Counters and rings under Relacy: every interleaving of a few operations of two or three threads within a bound on
// context switches, with the values that the C++ memory model allows. The twins, with their releases or acquires
// weakened, and a ring whose writers do not look, must fail.
#include "models/relacy_atomics.h"

namespace megartp {
namespace {

// Relacy replaces operator new while it runs a test, so its output must not allocate: the beginning is kept.
class FixedBuffer : public std::streambuf {
 public:
  FixedBuffer() { setp(text_.data(), text_.data() + text_.size()); }
  std::string text() const { return {pbase(), pptr()}; }

 protected:
  int_type overflow(int_type c) override { return traits_type::not_eof(c); }

 private:
  std::array<char, 1U << 15> text_{};
};

// Relacy's verdict ("DATA RACE", "USER ASSERT FAILED", ...; empty: nothing wrong) and how many interleavings it ran.
struct Verdict {
  std::string result;
  uint64_t interleavings = 0;
  std::string history;
};

template <class Test>
Verdict simulate() {
  FixedBuffer buffer;
  std::ostream out(&buffer);
  rl::test_params params;
  params.search_type = rl::fair_context_bound_scheduler_type;
  params.context_bound = 3;
  params.execution_depth_limit = 1000;
  params.output_stream = &out;
  params.progress_stream = &out;
  rl::simulate<Test>(params);
  const bool is_sound = params.test_result == rl::test_result_success;
  return {is_sound ? "" : rl::test_result_str(params.test_result), params.stop_iteration, buffer.text()};
}

// Items in the order in which a thread saw them. No vector: Relacy explores what an allocator may do as well.
struct Items {
  std::array<uint32_t, 8> values{};
  uint32_t count = 0;

  void push_back(uint32_t v) { values[count++] = v; }
  const uint32_t* begin() const { return values.data(); }
  const uint32_t* end() const { return values.data() + count; }
  bool operator==(const Items&) const = default;
};

template <class Sound>
void expect_sound() {
  const Verdict verdict = simulate<Sound>();
  EXPECT_EQ(verdict.result, "") << verdict.history;
  EXPECT_GT(verdict.interleavings, 50U) << "too few to mean anything";
  std::cout << verdict.interleavings << " interleavings\n";
}

// Two tasks write and signal; whoever sees the threshold reached sees what they wrote.
template <Weaken weaken>
struct SignalAndWait : rl::test_suite<SignalAndWait<weaken>, 3> {
  using Atomics = RelacyAtomics<weaken>;
  BasicCounters<Atomics> counters{1};
  typename Atomics::template Plain<int> data[2];

  void thread(unsigned t) {
    if (t < 2) {
      data[t].set(7);
      counters.signal(0, 1, t);
    } else {
      for (int tries = 0; tries < 2; ++tries) {
        if (!counters.reached(0, 2)) continue;
        RL_ASSERT(data[0].get() == 7 && data[1].get() == 7);
        break;
      }
    }
  }
};
TEST(Relacy, AReachedEventShowsWhatItsSignallersWrote) {
  expect_sound<SignalAndWait<Weaken::kNothing>>();
  EXPECT_EQ(simulate<SignalAndWait<Weaken::kRelease>>().result, "DATA RACE");
  EXPECT_EQ(simulate<SignalAndWait<Weaken::kAcquire>>().result, "DATA RACE");
}

// The signaller that completes an event has seen what the others wrote: a scheduler passes that on.
template <Weaken weaken>
struct LastSignaller : rl::test_suite<LastSignaller<weaken>, 3> {
  using Atomics = RelacyAtomics<weaken>;
  BasicCounters<Atomics> counters{1};
  typename Atomics::template Plain<int> data[3];
  typename Atomics::template Plain<int> crossed[3];

  void before() {
    for (auto& c : crossed) c.set(0);
  }
  void thread(unsigned t) {
    data[t].set(7);
    if (counters.signal(0, 1, t) != 2) return;
    crossed[t].set(1);
    for (auto& d : data) RL_ASSERT(d.get() == 7);
  }
  void after() { RL_ASSERT(crossed[0].get() + crossed[1].get() + crossed[2].get() == 1); }
};
TEST(Relacy, OneSignallerCompletesAnEventAndHasSeenTheOthers) {
  expect_sound<LastSignaller<Weaken::kNothing>>();
  EXPECT_EQ(simulate<LastSignaller<Weaken::kRelease>>().result, "DATA RACE");
  EXPECT_EQ(simulate<LastSignaller<Weaken::kAcquire>>().result, "DATA RACE");
}

// Of each round of arrivals exactly one is the last, and it sees what the others wrote.
template <Weaken weaken>
struct Join : rl::test_suite<Join<weaken>, 3> {
  using Atomics = RelacyAtomics<weaken>;
  BasicCounters<Atomics> counters{1};
  typename Atomics::template Plain<int> data[3];
  typename Atomics::template Plain<int> lasts[3];

  void before() {
    for (auto& l : lasts) l.set(0);
  }
  void thread(unsigned t) {
    data[t].set(7);
    if (!counters.join(0, 3)) return;
    lasts[t].set(1);
    for (auto& d : data) RL_ASSERT(d.get() == 7);
  }
  void after() { RL_ASSERT(lasts[0].get() + lasts[1].get() + lasts[2].get() == 1); }
};
TEST(Relacy, OneArriverIsTheLastAndSeesTheOthers) {
  expect_sound<Join<Weaken::kNothing>>();
  EXPECT_EQ(simulate<Join<Weaken::kRelease>>().result, "DATA RACE");
  EXPECT_EQ(simulate<Join<Weaken::kAcquire>>().result, "DATA RACE");
}

// (Rings are made with new: Relacy puts the test itself into memory that is not aligned for their cache lines.)
//
// Two writers push two items each into a ring of two; a reader takes what it finds. Each item once, in its writer's
// order, none overwritten.
template <Weaken weaken>
struct RingTest : rl::test_suite<RingTest<weaken>, 3> {
  using Atomics = RelacyAtomics<weaken>;
  std::unique_ptr<Ring<uint32_t, Atomics>> ring = std::make_unique<Ring<uint32_t, Atomics>>(2);
  Items pushed[2], popped;

  void thread(unsigned t) {
    if (t < 2) {
      for (uint32_t i = 1; i <= 2; ++i)
        if (ring->try_push(10 * t + i)) pushed[t].push_back(10 * t + i);
    } else {
      for (int tries = 0; tries < 3; ++tries)
        if (const auto item = ring->try_pop()) popped.push_back(*item);
    }
  }
  void after() {
    while (const auto item = ring->try_pop()) popped.push_back(*item);
    Items of[2];
    for (const uint32_t item : popped) of[item / 10].push_back(item);
    RL_ASSERT(of[0] == pushed[0] && of[1] == pushed[1]);
  }
};
TEST(Relacy, ARingLosesDuplicatesAndOverwritesNothing) {
  expect_sound<RingTest<Weaken::kNothing>>();
  EXPECT_EQ(simulate<RingTest<Weaken::kRelease>>().result, "DATA RACE");
  EXPECT_EQ(simulate<RingTest<Weaken::kAcquire>>().result, "DATA RACE");
}

// Two readers take from one ring (a ready ring has one reader; the class promises more).
struct TwoReaders : rl::test_suite<TwoReaders, 3> {
  std::unique_ptr<Ring<uint32_t, RelacyAtomics<Weaken::kNothing>>> ring =
      std::make_unique<Ring<uint32_t, RelacyAtomics<Weaken::kNothing>>>(2);
  Items popped[2];

  void thread(unsigned t) {
    if (t == 2) {
      ring->try_push(1);
      ring->try_push(2);
      ring->try_push(3);
      return;
    }
    for (int tries = 0; tries < 2; ++tries)
      if (const auto item = ring->try_pop()) popped[t].push_back(*item);
  }
  void after() {
    bool seen[4] = {};
    for (const auto& list : popped)
      for (const uint32_t item : list) {
        RL_ASSERT(item >= 1 && item <= 3 && !seen[item]);
        seen[item] = true;
      }
  }
};
TEST(Relacy, EachItemOfARingIsTakenOnce) { expect_sound<TwoReaders>(); }

// A writer pushes three items into a broadcast ring of two, another one; both readers see all in one order.
template <Weaken weaken>
struct Broadcast : rl::test_suite<Broadcast<weaken>, 3> {
  using Atomics = RelacyAtomics<weaken>;
  std::unique_ptr<BroadcastRing<uint32_t, Atomics>> ring = std::make_unique<BroadcastRing<uint32_t, Atomics>>(2, 2);
  Items pushed, read[2];

  void thread(unsigned t) {
    if (t == 2) {
      for (uint32_t i = 1; i <= 3; ++i)
        if (ring->try_push(i)) pushed.push_back(i);
    } else {
      for (int tries = 0; tries < 3; ++tries)
        if (const auto item = ring->try_read(t)) read[t].push_back(*item);
    }
  }
  void after() {
    for (uint32_t r = 0; r < 2; ++r) {
      while (const auto item = ring->try_read(r)) read[r].push_back(*item);
      RL_ASSERT(read[r] == pushed);
    }
  }
};
TEST(Relacy, ABroadcastReachesBothReadersBeforeItIsOverwritten) {
  expect_sound<Broadcast<Weaken::kNothing>>();
  EXPECT_EQ(simulate<Broadcast<Weaken::kRelease>>().result, "DATA RACE");
  EXPECT_EQ(simulate<Broadcast<Weaken::kAcquire>>().result, "DATA RACE");
}

// Two writers reserve positions of a broadcast ring at the same time.
struct TwoWriters : rl::test_suite<TwoWriters, 3> {
  std::unique_ptr<BroadcastRing<uint32_t, RelacyAtomics<Weaken::kNothing>>> ring =
      std::make_unique<BroadcastRing<uint32_t, RelacyAtomics<Weaken::kNothing>>>(2, 1);
  Items pushed[2], read;

  void thread(unsigned t) {
    if (t == 2) {
      for (int tries = 0; tries < 2; ++tries)
        if (const auto item = ring->try_read(0)) read.push_back(*item);
      return;
    }
    for (uint32_t i = 1; i <= 2; ++i)
      if (ring->try_push(10 * t + i)) pushed[t].push_back(10 * t + i);
  }
  void after() {
    while (const auto item = ring->try_read(0)) read.push_back(*item);
    Items of[2];
    for (const uint32_t item : read) of[item / 10].push_back(item);
    RL_ASSERT(of[0] == pushed[0] && of[1] == pushed[1]);
  }
};
TEST(Relacy, WritersOfABroadcastDoNotTakeOnePosition) { expect_sound<TwoWriters>(); }

// A ring whose writers do not look at the turn number, as the ring that this one replaces: it overwrites.
struct Careless : rl::test_suite<Careless, 2> {
  using Atomics = RelacyAtomics<Weaken::kNothing>;
  Atomics::Plain<uint32_t> items[2];
  Atomics::Atomic<uint64_t> tail;

  void before() { tail.store(0, std::memory_order_relaxed); }
  void thread(unsigned t) {
    if (t == 0) {
      for (uint32_t i = 0; i < 3; ++i) {
        items[i % 2].set(i);
        tail.store(i + 1, std::memory_order_release);
      }
    } else {
      for (uint64_t head = 0; head < tail.load(std::memory_order_acquire); ++head)
        RL_ASSERT(items[head % 2].get() == head);
    }
  }
};
TEST(Relacy, ARingWithoutBackPressureFails) { EXPECT_NE(simulate<Careless>().result, ""); }

}  // namespace
}  // namespace megartp
