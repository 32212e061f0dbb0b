#include "trace/export.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include <map>

#include "trace/trace_test_support.h"

namespace megartp::trace {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

AnalysedTrace analysed(Trace t) {
  AnalysedTrace a{std::move(t), {}};
  a.analysis = analyse(a.trace);
  return a;
}

// Lanes whose tasks overlap, waiting that overlaps with work, roles.
Trace crowded(uint64_t seed) {
  Trace t = testing::random_trace(seed, 200);
  std::mt19937_64 random(seed);
  for (TraceTask& task : t.tasks) {
    task.visible_ns -= std::min<uint64_t>(task.visible_ns, random() % 200);
    task.done_ns = std::min<uint64_t>(t.meta.span_ns, task.done_ns + random() % 90);
  }
  for (uint32_t i = 0; i < t.tasks.size(); i += 2)
    t.roles.push_back({i, 1 + static_cast<uint32_t>(random() % 4), t.tasks[i].visible_ns, t.tasks[i].done_ns});
  EXPECT_TRUE(check_trace(t)) << check_trace(t).error().to_string();
  return t;
}

TEST(Tracks, HoldEverySpanOnceAndNoneOverlap) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const Trace t = crowded(seed);
    std::vector<int> seen(t.tasks.size());
    size_t num_roles = 0;
    for (const Track& track : lay_out(t)) {
      uint64_t end = 0;
      for (const TrackSpan& s : track.spans) {
        EXPECT_GE(s.wait_begin_ns, end);
        EXPECT_LE(s.wait_begin_ns, s.begin_ns);
        EXPECT_LE(s.begin_ns, s.end_ns);
        end = s.end_ns;
        if (track.role != 0) {
          ++num_roles;
          EXPECT_EQ(t.roles[s.item].role, track.role);
          continue;
        }
        ++seen[s.item];
        EXPECT_EQ(units_of(t).of_lane[t.tasks[s.item].lane], track.unit);
        EXPECT_EQ(t.tasks[s.item].ready_ns, s.begin_ns);
      }
    }
    EXPECT_EQ(std::ranges::count(seen, 1), static_cast<std::ptrdiff_t>(t.tasks.size()));
    EXPECT_EQ(num_roles, t.roles.size());
  }
}

TEST(Chrome, SpansOfATrackNeverOverlapInPart) {
  const std::vector<AnalysedTrace> traces{analysed(crowded(3)), analysed(testing::two_lanes())};
  const auto json = nlohmann::json::parse(to_chrome(traces));
  std::map<std::pair<int, int>, std::vector<std::pair<double, double>>> spans;
  size_t num_tasks = 0;
  for (const auto& e : json["traceEvents"]) {
    if (e["ph"] != "X") continue;
    spans[{e["pid"], e["tid"]}].emplace_back(e["ts"].get<double>(), e["ts"].get<double>() + e["dur"].get<double>());
    if (e["cat"] == "task") ++num_tasks;
  }
  EXPECT_EQ(num_tasks, traces[0].trace.tasks.size() + traces[1].trace.tasks.size());
  EXPECT_GT(spans.size(), 6U);
  for (auto& [track, list] : spans) {
    std::ranges::sort(list);
    for (size_t i = 1; i < list.size(); ++i) EXPECT_LE(list[i - 1].second, list[i].first + 1e-9);
  }
}

TEST(Csv, HasALineATaskAndQuotes) {
  const std::string csv = to_csv(std::vector{analysed(testing::two_lanes())});
  EXPECT_THAT(csv, HasSubstr("\r\ntest,2,B0.gemm,gemm,\"m 0..16, n 0..128\",worker 0,1,104,105,200,90,0,0,0,0\r\n"));
  EXPECT_EQ(std::ranges::count(csv, '\n'), 5);
}

TEST(ViewerJson, SaysWhatTheTraceSays) {
  const auto json = nlohmann::json::parse(to_viewer_json(std::vector{analysed(testing::two_lanes())}));
  ASSERT_EQ(json["version"], 1);
  const auto& t = json["traces"][0];
  EXPECT_EQ(t["machine"], "a machine, \"quoted\" <&>");
  EXPECT_EQ(t["shapes"]["KV"], 8192);
  EXPECT_EQ(t["clock"]["resolution_ns"], 27);
  EXPECT_EQ(t["span_ns"], 300);
  EXPECT_EQ(t["lanes"], nlohmann::json({"worker 0", "worker 1"}));
  EXPECT_EQ(t["tasks"]["ready"], nlohmann::json({10, 105, 20, 110}));
  EXPECT_EQ(t["tasks"]["slack"], nlohmann::json({0, 90, 50, 0}));
  EXPECT_EQ(t["events"][0], nlohmann::json({{"name", "e0 A0"}, {"signallers", {0}}, {"waiters", {3}}}));
  EXPECT_EQ(t["critical"][2],
            nlohmann::json({{"task", 3}, {"kind", "wait"}, {"begin", 100}, {"end", 110}, {"event", 0}}));
  uint64_t idle = 0;
  for (const auto& reason : t["idle"]) idle += reason["ns"].get<uint64_t>();
  EXPECT_EQ(idle, 600U - 395);
}

TEST(ViewerJson, NamesOnlyWhoDidSignal) {
  Trace t = testing::two_lanes();
  t.tasks[0].sent = false;
  t.tasks[0].join_group = t.tasks[1].join_group = 0;
  t.events[0].signals = {{0, 1}, {1, 1}};
  const auto json = nlohmann::json::parse(to_viewer_json(std::vector{analysed(t)}));
  EXPECT_EQ(json["traces"][0]["events"][0]["signallers"], nlohmann::json({1}));
}

// Two CTAs on one SM, the second there early; a third on another one.
Trace shared_sm() {
  Trace t = testing::two_lanes();
  t.lanes = {{"SM 4", 4}, {"SM 4 (2)", 4}, {"SM 7", 7}};
  t.ops = {{"A0", "add"}, {"L7.B0", "gemm"}};
  t.kernel_edges = {{0, 1, "prefetch"}};
  t.tasks = {{.id = 0, .lane = 0, .position = 0, .op = 0, .visible_ns = 0, .ready_ns = 10, .done_ns = 100},
             {.id = 0, .lane = 1, .position = 0, .op = 1, .visible_ns = 20, .ready_ns = 110, .done_ns = 300},
             {.id = 1, .lane = 2, .position = 0, .op = 0, .visible_ns = 0, .ready_ns = 10, .done_ns = 105}};
  t.events = {{"A0 done", {{0, 1}, {2, 1}}, {{1, 2}}}};
  EXPECT_TRUE(check_trace(t)) << check_trace(t).error().to_string();
  return t;
}

TEST(Units, AnSmIsOneRowHoweverManyCtasItHeld) {
  const AnalysedTrace t = analysed(shared_sm());
  EXPECT_THAT(units_of(t.trace).names, ::testing::ElementsAre("SM 4", "SM 7"));
  const std::vector<Track> tracks = lay_out(t.trace);
  ASSERT_EQ(tracks.size(), 2U) << "work that does not overlap needs one track";
  EXPECT_EQ(tracks[0].spans.size(), 2U);
  EXPECT_EQ(tracks[0].spans[1].wait_begin_ns, 100U) << "waiting beside work is not shown";
  const auto json = nlohmann::json::parse(to_viewer_json(std::vector{t}))["traces"][0];
  EXPECT_EQ(json["lanes"], nlohmann::json({"SM 4", "SM 7"}));
  EXPECT_EQ(json["tasks"]["lane"], nlohmann::json({0, 0, 1}));
  EXPECT_THAT(to_text(t, {.width = 60}), HasSubstr("3 tasks on 2 lanes"));
}

TEST(Html, HoldsTheDataAndNoWayOut) {
  const std::string page = to_html(std::vector{analysed(testing::two_lanes())});
  EXPECT_THAT(page, HasSubstr("\"span_ns\":300"));
  EXPECT_THAT(page, Not(HasSubstr("MEGARTP_TRACE_DATA")));
  EXPECT_THAT(page, Not(HasSubstr("<&>")));  // from the machine's name
}

TEST(Svg, IsAPictureOfEveryLane) {
  const std::string svg = to_svg(analysed(testing::two_lanes()));
  EXPECT_TRUE(svg.starts_with("<svg "));
  EXPECT_TRUE(svg.ends_with("</svg>\n"));
  for (const char* text :
       {"worker 0", "worker 1", "critical path", "B0.gemm", "prefers-color-scheme", "B0.gemm m 0..16, n 0..128"})
    EXPECT_THAT(svg, HasSubstr(text));
  // Large traces stay small: what is thinner than a pixel is drawn together.
  EXPECT_LT(to_svg(analysed(testing::random_trace(5, 20000))).size(), size_t{1} << 20);
}

TEST(Text, DrawsLanesAndSums) {
  TextOptions options;
  options.width = 71;  // 60 columns of 5 ns
  const std::string text = to_text(analysed(testing::two_lanes()), options);
  EXPECT_THAT(text, HasSubstr("worker 0 | .AAAAAAAAAAAAAAAAAA BBBBBBBBBBBBBBBBBBB"));
  EXPECT_THAT(text, HasSubstr("worker 1 |   .AAAAAA ...........BBB"));
  EXPECT_THAT(text, HasSubstr("critical path: 5 links, 0.3 us of 0.3 measured (100.00 %)"));
  EXPECT_THAT(text, HasSubstr("no two ops ran at the same time"));
  EXPECT_THAT(text, Not(HasSubstr("\x1b[")));
  options.color = true;
  options.max_lanes = 1;
  const std::string colored = to_text(analysed(testing::two_lanes()), options);
  EXPECT_THAT(colored, HasSubstr("\x1b[38;5;"));
  EXPECT_THAT(colored, HasSubstr("... and 1 more lanes"));
}

}  // namespace
}  // namespace megartp::trace
