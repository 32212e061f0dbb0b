#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <functional>

#include "trace/trace.h"
#include "trace/trace_test_support.h"

namespace megartp::trace {
namespace {

using ::testing::HasSubstr;

Trace rich_trace() {
  Trace t = testing::two_lanes();
  t.meta.begin_ns = ~uint64_t{0};
  t.meta.num_lost = 3;
  t.meta.read_gb_per_s = 4350.5;
  t.meta.timed_ns = 37012.5;
  t.tasks[1].join_group = t.tasks[3].join_group = 1;
  t.tasks[1].sent = false;
  t.tasks[0].weight_bytes = uint64_t{1} << 40;
  t.roles = {
      {0, abi::kTraceRoleWeights, 0, 30}, {0, abi::kTraceRoleCompute, 20, 90}, {3, abi::kTraceRoleStore, 280, 290}};
  t.kernel_edges = {{0, 1, "prefetch"}};
  return t;
}

TEST(TraceFile, RoundTrips) {
  for (const Trace& t : {testing::two_lanes(), rich_trace(), testing::random_trace(1, 500)}) {
    const std::string bytes = serialize_trace(t);
    const auto read = parse_trace(bytes);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(serialize_trace(*read), bytes);
    ASSERT_EQ(read->tasks.size(), t.tasks.size());
    for (size_t i = 0; i < t.tasks.size(); ++i) {
      EXPECT_EQ(read->tasks[i].id, t.tasks[i].id);
      EXPECT_EQ(read->tasks[i].lane, t.tasks[i].lane);
      EXPECT_EQ(read->tasks[i].position, t.tasks[i].position);
      EXPECT_EQ(read->tasks[i].visible_ns, t.tasks[i].visible_ns);
      EXPECT_EQ(read->tasks[i].ready_ns, t.tasks[i].ready_ns);
      EXPECT_EQ(read->tasks[i].done_ns, t.tasks[i].done_ns);
      EXPECT_EQ(read->tasks[i].join_group, t.tasks[i].join_group);
      EXPECT_EQ(read->tasks[i].sent, t.tasks[i].sent);
      EXPECT_EQ(read->tasks[i].weight_bytes, t.tasks[i].weight_bytes);
    }
    EXPECT_EQ(read->meta.shapes, t.meta.shapes);
    EXPECT_EQ(read->meta.begin_ns, t.meta.begin_ns);
    EXPECT_EQ(read->meta.num_lost, t.meta.num_lost);
    EXPECT_EQ(read->meta.timed_ns, t.meta.timed_ns);
    EXPECT_EQ(read->roles.size(), t.roles.size());
    EXPECT_EQ(read->kernel_edges, t.kernel_edges);
    ASSERT_EQ(read->events.size(), t.events.size());
    EXPECT_EQ(read->events.front().name, t.events.front().name);
    EXPECT_EQ(read->events.front().waits.front().threshold, t.events.front().waits.front().threshold);
  }
}

TEST(TraceFile, IsCompact) {
  const Trace t = testing::random_trace(2, 20000);
  EXPECT_LT(serialize_trace(t).size(), 40 * t.tasks.size());
}

TEST(TraceFile, NoCutAndNoFlippedByteIsAccepted) {
  const std::string bytes = serialize_trace(rich_trace());
  for (size_t i = 0; i < bytes.size(); ++i) {
    EXPECT_FALSE(parse_trace(std::string_view(bytes).substr(0, i))) << i;
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x20);
    EXPECT_FALSE(parse_trace(changed)) << i;
  }
}

// With a right checksum: whatever is still accepted keeps the invariants and survives a round trip.
TEST(TraceFile, ChangedBytesBehindTheChecksumNeverBreakAReader) {
  const std::string bytes = serialize_trace(rich_trace());
  size_t num_accepted = 0;
  for (size_t i = 0; i < bytes.size(); ++i)
    for (const int flip : {0x01, 0x80}) {
      std::string changed = bytes;
      changed[i] = static_cast<char>(changed[i] ^ flip);
      seal_trace_bytes(changed);
      const auto read = parse_trace(changed);
      if (!read) continue;
      ++num_accepted;
      EXPECT_TRUE(check_trace(*read));
      EXPECT_TRUE(parse_trace(serialize_trace(*read)));
    }
  EXPECT_GT(num_accepted, 10U);
}

TEST(TraceFile, SaysWhatIsWrong) {
  const auto error_of = [](const std::function<void(Trace&)>& change) {
    Trace t = testing::two_lanes();
    change(t);
    const Status status = check_trace(t);
    return status ? std::string("accepted") : status.error().message;
  };
  EXPECT_EQ(error_of([](Trace&) {}), "accepted");
  EXPECT_THAT(error_of([](Trace& t) { t.lanes.clear(); }), HasSubstr("no lane"));
  EXPECT_THAT(error_of([](Trace& t) { t.tasks[2].lane = 2; }), HasSubstr("task 2 is on lane 2 of 2"));
  EXPECT_THAT(error_of([](Trace& t) { t.tasks[1].op = 9; }), HasSubstr("op 9 of 2"));
  EXPECT_THAT(error_of([](Trace& t) { t.tasks[1].tile = 2; }), HasSubstr("text 2 of 2"));
  EXPECT_THAT(error_of([](Trace& t) { t.tasks[1].ready_ns = 103; }), HasSubstr("visible 104, ready 103"));
  EXPECT_THAT(error_of([](Trace& t) { t.tasks[3].done_ns = 301; }), HasSubstr("of a run of 300 ns"));
  EXPECT_THAT(error_of([](Trace& t) { t.tasks[1].position = 0; }), HasSubstr("does not stand in order"));
  EXPECT_THAT(error_of([](Trace& t) { t.events[0].waits[0].task = 4; }), HasSubstr("event 0 names task 4 of 4"));
  EXPECT_THAT(error_of([](Trace& t) { t.events[0].signals = {{1, 1}, {1, 1}}; }), HasSubstr("not in order"));
  EXPECT_THAT(error_of([](Trace& t) { t.kernel_edges = {{0, 2, "full"}}; }), HasSubstr("kernels 0 and 2 of 2"));
  EXPECT_THAT(error_of([](Trace& t) { t.roles = {{0, 9, 0, 1}}; }), HasSubstr("role 9"));
  EXPECT_THAT(error_of([](Trace& t) { t.ops[0].name = "a\nb"; }), HasSubstr("op's name"));
  EXPECT_THAT(error_of([](Trace& t) { t.texts[0] = "\xc0\x80"; }), HasSubstr("tile's text"));
  EXPECT_EQ(error_of([](Trace& t) { t.texts[0] = "\xc3\xa4 \xe2\x82\xac \xf0\x9f\x98\x80"; }), "accepted");
  EXPECT_THAT(error_of([](Trace& t) { t.meta.clock_resolution_ns = -1; }), HasSubstr("clock resolution"));
  EXPECT_THAT(error_of([](Trace& t) { t.meta.timed_ns = -1; }), HasSubstr("time or rates"));
}

TEST(TraceFile, SavesAndLoads) {
  const std::string path = (std::filesystem::temp_directory_path() / "megartp_trace_file_test.trace").string();
  ASSERT_TRUE(save_trace(rich_trace(), path));
  const auto read = load_trace(path);
  std::filesystem::remove(path);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(serialize_trace(*read), serialize_trace(rich_trace()));
  const auto missing = load_trace(path);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace megartp::trace
