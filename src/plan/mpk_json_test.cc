#include "plan/mpk_json.h"

#include <map>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <nlohmann/json.hpp>

#include "lowering/hand_graph.h"

namespace megartp {
namespace {

using lowering::testing::BoxGraph;
using lowering::testing::BoxTile;
using lowering::testing::HandGraph;
using lowering::testing::random_hand_graph;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::json;

constexpr uint64_t kNone = 0x7ffffffffffffffeU;

Json exported(const TaskGraph& graph, bool ahead_of_time = true) {
  const auto text = to_mpk_json(graph, {.ahead_of_time = ahead_of_time});
  EXPECT_TRUE(text) << (text ? "" : text.error().to_string());
  return text ? Json::parse(*text) : Json();
}

// What is wrong with a file of that shape, judged from the file alone; "" when nothing is.
std::string find_fault(const Json& file, bool ahead_of_time) {
  const Json& tasks = file["all_tasks"];
  const Json& events = file["all_events"];
  const auto last_event = events.size() - 1;
  const auto fault = [](const char* what, size_t id) { return fmt::format("{} {}", what, id); };
  if (tasks[0]["task_type"] != 0 || tasks[1]["task_type"] != 10 || tasks[1]["trigger_event"] != 1) return "prelude";
  if (events[0]["event_type"] != 911 || events[1]["event_type"] != 903 || events[last_event]["event_type"] != 910)
    return "fixed events";
  std::set<size_t> first_tasks;
  for (const Json& id : file["first_tasks"]) first_tasks.insert(id.get<size_t>());
  if (first_tasks.size() != file["first_tasks"].size()) return "first_tasks repeats an id";

  // Ranges of data events cut up all tasks but the first ones.
  std::vector<size_t> range_of(tasks.size(), 0);
  for (size_t e = 2; e < last_event; ++e) {
    const auto first = events[e]["first_task_id"].get<size_t>();
    const auto last = events[e]["last_task_id"].get<size_t>();
    if (first < 2 || first >= last || last > tasks.size()) return fault("range of event", e);
    for (size_t t = first; t < last; ++t) {
      if (range_of[t] != 0) return fault("two ranges hold task", t);
      range_of[t] = e;
    }
    const int launch = last - first >= 8 ? 902 : 901;
    if (events[e]["event_type"] != (ahead_of_time ? 900 : launch)) return fault("type of event", e);
  }
  for (size_t t = 2; t < tasks.size(); ++t) {
    if ((range_of[t] == 0) != first_tasks.contains(t)) return fault("neither first nor in a range: task", t);
    const auto dependent = tasks[t]["dependent_event"].get<uint64_t>();
    if (dependent != (ahead_of_time && range_of[t] != 0 ? range_of[t] : kNone)) return fault("dependent event of", t);
  }
  // Event 1 launches everything, or the first tasks.
  const auto begin = events[1]["first_task_id"].get<size_t>();
  const auto end = events[1]["last_task_id"].get<size_t>();
  if (begin != 2) return "range of event 1";
  if (ahead_of_time ? end != tasks.size() : end != 2 + first_tasks.size()) return "range of event 1";
  if (!ahead_of_time && !first_tasks.empty() && *first_tasks.rbegin() >= end) return "event 1 misses a first task";

  // Triggers: as many as the tasks that name the event, each before what it releases.
  std::vector<uint64_t> named(events.size(), 0);
  for (size_t t = 2; t < tasks.size(); ++t) {
    const auto event = tasks[t]["trigger_event"].get<uint64_t>();
    if (event < 2 || event > last_event) return fault("trigger of task", t);
    ++named[event];
    if (event != last_event && events[event]["first_task_id"].get<size_t>() <= t)
      return fault("not topological: task", t);
  }
  for (size_t e = 2; e <= last_event; ++e)
    if (events[e]["num_triggers"].get<uint64_t>() != named[e] || named[e] == 0) return fault("triggers of event", e);
  return "";
}

// (signaller, waiter) by stage and tile; the stages of these tests have opcodes of their own.
using Pairs = std::set<std::array<uint32_t, 4>>;
Pairs pairs_of(const Json& file) {
  Pairs pairs;
  const Json& tasks = file["all_tasks"];
  const auto id = [&](size_t t, const char* key) { return tasks[t][key].get<uint32_t>(); };
  for (size_t t = 2; t < tasks.size(); ++t) {
    const Json& event = file["all_events"][tasks[t]["trigger_event"].get<size_t>()];
    for (auto c = event["first_task_id"].get<size_t>(); c < event["last_task_id"].get<size_t>(); ++c)
      pairs.insert({id(t, "task_type"), id(t, "task_offset"), id(c, "task_type"), id(c, "task_offset")});
  }
  return pairs;
}
Pairs pairs_of(const TaskGraph& g) {
  Pairs pairs;
  for (const Task& a : g.tasks)
    for (const Task& b : g.tasks)
      if (a.num_signals == 1 && b.num_waits == 1 && a.signals[0].event == b.waits[0].event)
        pairs.insert({g.stages[a.stage].stage->opcode, a.tile, g.stages[b.stage].stage->opcode, b.tile});
  return pairs;
}

TEST(MpkJson, ForkAndJoinHaveTheIdsAndEventsOfTheirCompiler) {
  // F4 -> A4, B2; A, B -> G4, grouped by the least common multiple of the branches.
  HandGraph g;
  const uint32_t f = g.add_stage("F", 4, 0x7f000001);
  const uint32_t a = g.add_stage("A", 4, 0x7f000002);
  const uint32_t b = g.add_stage("B", 2, 0x7f000003);
  const uint32_t j = g.add_stage("G", 4, 0x7f000004);
  for (uint32_t half = 0; half < 2; ++half) {
    g.add_event({f + 2 * half, f + 2 * half + 1}, {a + 2 * half, a + 2 * half + 1, b + half});
    g.add_event({a + 2 * half, a + 2 * half + 1, b + half}, {j + 2 * half, j + 2 * half + 1});
  }
  const Json file = exported(g.tasks);
  EXPECT_EQ(find_fault(file, true), "");
  EXPECT_EQ(file["all_tasks"].size(), 14U + 2U);
  EXPECT_EQ(file["all_events"].size(), 7U);
  EXPECT_EQ(file["first_tasks"], Json({2, 3, 4, 5}));
  EXPECT_EQ(file["all_events"][6]["num_triggers"], 4);
  EXPECT_EQ(file["all_events"][2]["num_triggers"], 2);
  EXPECT_EQ(file["all_events"][2]["first_task_id"], 6);
  EXPECT_EQ(file["all_events"][2]["last_task_id"], 9);
  std::vector<std::pair<uint32_t, uint32_t>> released;  // A0 A1 B0, then A2 A3 B1
  for (size_t t = 6; t < 12; ++t)
    released.emplace_back(file["all_tasks"][t]["task_type"], file["all_tasks"][t]["task_offset"]);
  EXPECT_THAT(released,
              ElementsAre(std::pair(0x7f000002U, 0U), std::pair(0x7f000002U, 1U), std::pair(0x7f000003U, 0U),
                          std::pair(0x7f000002U, 2U), std::pair(0x7f000002U, 3U), std::pair(0x7f000003U, 1U)));
}

TEST(MpkJson, EightConsumersAreMassiveBeforeTheRewrite) {
  for (const uint32_t consumers : {7U, 8U}) {
    HandGraph g;
    const uint32_t p = g.add_stage("P", 1);
    const uint32_t c = g.add_stage("C", consumers);
    g.add_event(std::vector{p}, lowering::testing::task_range(c, consumers));
    const Json file = exported(g.tasks, /*ahead_of_time=*/false);
    EXPECT_EQ(find_fault(file, false), "");
    EXPECT_EQ(file["all_events"][2]["event_type"], consumers == 8 ? 902 : 901);
    EXPECT_EQ(exported(g.tasks)["all_events"][2]["event_type"], 900);
    EXPECT_EQ(file["all_events"].size(), 4U);
    EXPECT_EQ(file["all_events"][3]["num_triggers"], consumers);
  }
}

TEST(MpkJson, RootsOfLaterStagesAndUnreadTasksAreFirstAndLast) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 8, 0x7f000001);
  const uint32_t c = g.add_stage("C", 8, 0x7f000002);
  g.add_stage("B", 4, 0x7f000003);
  for (uint32_t i = 0; i < 8; ++i) g.add_event({a + i}, {c + i});
  for (const bool ahead_of_time : {true, false}) {
    const Json file = exported(g.tasks, ahead_of_time);
    EXPECT_EQ(find_fault(file, ahead_of_time), "");
    EXPECT_EQ(file["first_tasks"].size(), 12U);
    EXPECT_EQ(file["all_events"].size(), 11U);
    EXPECT_EQ(file["all_events"][10]["num_triggers"], 12);
  }
}

TEST(MpkJson, RelaysAreEmptyTasks) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 2, 0x7f000001);
  const uint32_t relay = g.add_stage("C.relay", 1, abi::kOpcodeRelay);
  const uint32_t c = g.add_stage("C", 1, 0x7f000002);
  g.add_event({a, a + 1}, {relay});
  g.add_event({relay}, {c});
  const Json file = exported(g.tasks);
  EXPECT_EQ(find_fault(file, true), "");
  const Json& task = file["all_tasks"][4];
  EXPECT_EQ(task["task_name"], "relay");
  EXPECT_EQ(task["task_type"], abi::kOpcodeRelay);
  EXPECT_TRUE(task["inputs"].empty());
  EXPECT_TRUE(task["outputs"].empty());
}

TEST(MpkJson, RegionsAreOffsetsAndStridesIntoTheirTensor) {
  HandGraph g;
  g.tasks.tensors.push_back({"x", DType::kBF16, {6, 40}, Storage::kRuntimeArg, false});
  g.tasks.tensors.push_back({"say \"y\"", DType::kF32, {2, 3, 4}, Storage::kOutput, false});
  BoxTile tile;
  tile.reads = {{0, Box::of({{2, 5}, {16, 32}})}};
  tile.writes = {{1, Box::of({{1, 2}, {0, 3}, {2, 4}})}};
  g.add_stage("S", {tile});
  const Json task = exported(g.tasks)["all_tasks"][2];
  EXPECT_EQ(task["inputs"], Json::parse(R"([{"base_ptr": "x", "offset": 192, "data_type": 941, "dims": [3, 16],
                                             "strides": [40, 1]}])"));
  EXPECT_EQ(task["outputs"], Json::parse(R"([{"base_ptr": "say \"y\"", "offset": 56, "data_type": 950,
                                              "dims": [1, 3, 2], "strides": [12, 4, 1]}])"));
  EXPECT_EQ(task["trigger_event"], 2);
  EXPECT_EQ(task["dependent_event"], kNone);
}

TEST(MpkJson, EveryTaskOfAJoinGroupTriggersAndListsTheFinalTiles) {
  BoxGraph g;
  const TensorId partial = g.add_tensor({2, 4}, true);
  const TensorId y = g.add_tensor({4});
  const auto part = [&](int32_t i) {
    return BoxTile{.reads = {}, .writes = {{partial, Box::of({{i, i + 1}, {0, 4}})}}, .join_group = 0};
  };
  g.add_stage({part(0), part(1)}, {BoxTile{.reads = {}, .writes = {{y, Box::of({{0, 4}})}}, .join_group = 0}});
  g.add_stage({BoxTile{.reads = {{y, Box::of({{0, 4}})}}, .writes = {}, .join_group = abi::kNoJoin}});
  ASSERT_TRUE(g.derive());
  const Json file = exported(g.tasks);
  EXPECT_EQ(find_fault(file, true), "");
  EXPECT_EQ(file["all_events"][2]["num_triggers"], 2) << "the group's event counts its tasks, not its final tiles";
  for (const size_t t : {2U, 3U}) {
    ASSERT_EQ(file["all_tasks"][t]["outputs"].size(), 2U);
    EXPECT_EQ(file["all_tasks"][t]["outputs"][1]["base_ptr"], g.tasks.tensors[y].name);
  }
}

TEST(MpkJson, VariantsCountTheSpecsOfAnOpcode) {
  HandGraph g;
  g.add_stage("A", 1, 0x7f000001);
  g.add_stage("B", 1, 0x7f000002);
  g.add_stage("A2", 1, 0x7f000001);
  const Json file = exported(g.tasks);
  EXPECT_EQ(file["all_tasks"][2]["variant_id"], 0);
  EXPECT_EQ(file["all_tasks"][3]["variant_id"], 0);
  EXPECT_EQ(file["all_tasks"][4]["variant_id"], 1);
}

TEST(MpkJson, TooManyWaitsOrSignalsAreRefusedWithAnAdvice) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 2);
  const uint32_t c = g.add_stage("C", 2);
  g.add_event({a}, {c + 1});
  g.add_event({a + 1}, {c + 1});
  const auto two_waits = to_mpk_json(g.tasks);
  ASSERT_FALSE(two_waits);
  EXPECT_EQ(two_waits.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(two_waits.error().message, HasSubstr("task 3 ('C' tile 1) has 2 waits"));
  EXPECT_THAT(two_waits.error().message, HasSubstr("normalise"));

  HandGraph fork;
  const uint32_t f = fork.add_stage("F", 1);
  const uint32_t x = fork.add_stage("X", 2);
  fork.add_event({f}, {x});
  fork.add_event({f}, {x + 1});
  const auto two_signals = to_mpk_json(fork.tasks);
  ASSERT_FALSE(two_signals);
  EXPECT_THAT(two_signals.error().message, HasSubstr("2 signals"));
  EXPECT_FALSE(to_mpk_json(TaskGraph{}));
}

RC_GTEST_PROP(MpkJsonProperty, RandomGraphsMakeSoundFilesWithTheSamePairs, ()) {
  HandGraph g = random_hand_graph({});
  for (uint32_t s = 0; s < g.tasks.stages.size(); ++s) g.tasks.stages[s].stage->opcode = 0x7f000000 + s;
  for (const bool ahead_of_time : {true, false}) {
    const auto text = to_mpk_json(g.tasks, {.ahead_of_time = ahead_of_time});
    RC_ASSERT(text.has_value());
    const Json file = Json::parse(*text);
    RC_ASSERT(find_fault(file, ahead_of_time) == "");
    RC_ASSERT(file["all_tasks"].size() == g.tasks.tasks.size() + 2);
    RC_ASSERT(file["all_events"].size() == g.tasks.events.size() + 3);
    RC_ASSERT(pairs_of(file) == pairs_of(g.tasks));
  }
}

// The checker itself: each change of a sound file must be noticed.
TEST(MpkJson, TheCheckerOfTheseTestsFindsFaults) {
  HandGraph g;
  const uint32_t a = g.add_stage("A", 3);
  const uint32_t c = g.add_stage("C", 3);
  g.add_event({a, a + 1}, {c, c + 1});
  g.add_event({a + 2}, {c + 2});
  const Json sound = exported(g.tasks);
  ASSERT_EQ(find_fault(sound, true), "");
  const std::vector<std::pair<std::string, Json>> changes = {{"/all_events/2/last_task_id", 6},
                                                             {"/all_events/2/last_task_id", 8},
                                                             {"/all_events/2/num_triggers", 1},
                                                             {"/all_events/4/num_triggers", 2},
                                                             {"/all_tasks/2/trigger_event", 3},
                                                             {"/all_tasks/5/dependent_event", 3},
                                                             {"/first_tasks/0", 5},
                                                             {"/all_events/1/last_task_id", 5},
                                                             {"/all_events/3/event_type", 901},
                                                             {"/all_events/2/first_task_id", 4}};
  for (const auto& [where, value] : changes) {
    Json broken = sound;
    broken[Json::json_pointer(where)] = value;
    EXPECT_NE(find_fault(broken, true), "") << where;
  }
}

}  // namespace
}  // namespace megartp
