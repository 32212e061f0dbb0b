#include <cstring>
#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

#include "plan/plan_json.h"
#include "plan/plan_seal.h"
#include "plan/plan_test_support.h"

namespace megartp {
namespace {

using ::testing::HasSubstr;

TEST(PlanFile, RoundTripKeepsEveryByte) {
  for (const Packer packer : kPackers) {
    KernelPlan plan = testing::packed_chain(4, 7, 3, packer);
    plan.graph_hash = "0123456789abcdef0123456789abcdef";
    const std::string bytes = serialize_plan(plan);
    const auto read = parse_plan(bytes);
    ASSERT_TRUE(read) << read.error().to_string();
    EXPECT_EQ(serialize_plan(*read), bytes);
    EXPECT_EQ(read->graph_name, "chain");
    EXPECT_EQ(read->graph_hash, plan.graph_hash);
    EXPECT_EQ(read->packer, to_string(packer));
    EXPECT_EQ(read->shapes.symbols.at("M"), 7);
    EXPECT_EQ(read->shapes.requests, plan.shapes.requests);
    ASSERT_EQ(read->instructions.size(), plan.instructions.size());
    EXPECT_EQ(0, std::memcmp(read->instructions.data(), plan.instructions.data(),
                             plan.instructions.size() * sizeof(abi::Instruction)));
    EXPECT_EQ(disassemble(*read), disassemble(plan));
  }
}

TEST(PlanFile, EveryFlippedByteIsNoticed) {
  const std::string good = serialize_plan(testing::packed_chain(2, 2, 2));
  for (size_t at = 0; at < good.size(); ++at) {
    for (const char mask : {char(0x01), char(0x80)}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(bytes[at] ^ mask);
      const auto plan = parse_plan(bytes);
      ASSERT_FALSE(plan) << "byte " << at;
      ASSERT_EQ(plan.error().code, ErrorCode::kParse);
    }
  }
}

TEST(PlanFile, EveryTruncationIsNoticed) {
  const std::string good = serialize_plan(testing::packed_chain(2, 2, 2));
  for (size_t size = 0; size < good.size(); ++size)
    ASSERT_FALSE(parse_plan(std::string_view(good).substr(0, size))) << size;
  EXPECT_FALSE(parse_plan(good + '\0'));
}

// Behind the checksum: whatever is changed, the reader answers, and what it accepts is a sound plan.
TEST(PlanFile, NoSealedChangeGetsPastTheChecks) {
  const std::string good = serialize_plan(testing::packed_chain(2, 2, 2));
  size_t accepted = 0;
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int value : {0x00, 0xff, 0x7f, int{static_cast<unsigned char>(good[at])} ^ 0x01}) {
      std::string bytes = good;
      bytes[at] = static_cast<char>(value);
      seal_plan_bytes(bytes);
      const auto plan = parse_plan(bytes);
      if (!plan) continue;
      ++accepted;
      EXPECT_TRUE(check_plan(*plan));
      EXPECT_FALSE(disassemble(*plan).empty());
    }
  }
  EXPECT_GT(accepted, 0U) << "a name's letter may change";
  for (size_t size = 0; size < good.size(); ++size) {
    std::string bytes = good.substr(0, size);
    seal_plan_bytes(bytes);
    ASSERT_FALSE(parse_plan(bytes)) << size;
  }
}

RC_GTEST_PROP(PlanFileProperty, SealedMutationsNeverCrash, ()) {
  static const std::string good = serialize_plan(testing::packed_chain(3, 3, 2));
  std::string bytes = good;
  for (int n = *rc::gen::inRange(1, 8); n > 0; --n)
    bytes[*rc::gen::inRange<size_t>(0, bytes.size())] = *rc::gen::arbitrary<char>();
  if (*rc::gen::arbitrary<bool>()) bytes.resize(*rc::gen::inRange<size_t>(0, bytes.size()));
  seal_plan_bytes(bytes);
  if (const auto plan = parse_plan(bytes)) RC_ASSERT(check_plan(*plan).has_value());
}

// Replaces text of the same length in the JSON header.
std::string with_header_text(std::string bytes, std::string_view from, std::string_view to) {
  EXPECT_EQ(from.size(), to.size());
  const size_t at = bytes.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  bytes.replace(at, from.size(), to);
  seal_plan_bytes(bytes);
  return bytes;
}

TEST(PlanFile, ErrorsSayWhatIsWrong) {
  const std::string good = serialize_plan(testing::packed_chain(2, 2, 2));
  const auto message = [](const std::string& bytes) {
    const auto plan = parse_plan(bytes);
    return plan ? std::string("accepted") : plan.error().message;
  };
  EXPECT_THAT(message(""), HasSubstr("not a plan file"));
  EXPECT_THAT(message(std::string(100, 'x')), HasSubstr("not a plan file"));
  std::string other = good;
  other[8] = 9;
  EXPECT_THAT(message(other), HasSubstr("format version 9, this program reads 1"));
  other = good;
  other[12] = 9;
  EXPECT_THAT(message(other), HasSubstr("instruction ABI version 9, this program runs 1"));
  other = good;
  other[16] = static_cast<char>(other[16] ^ 1);
  EXPECT_THAT(message(other), HasSubstr("its header says"));
  other = good;
  other[good.size() - 1] = static_cast<char>(other[good.size() - 1] ^ 1);
  EXPECT_THAT(message(other), HasSubstr("checksum"));
  EXPECT_THAT(message(with_header_text(good, "\"num_workers\":2", "\"num_workers\":3")), HasSubstr("sections"));
  EXPECT_THAT(message(with_header_text(good, "\"num_events\":2", "\"num_events\":9")), HasSubstr("sections"));
  EXPECT_THAT(message(with_header_text(good, "\"num_tasks\"", "\"num_taskz\"")), HasSubstr("'num_tasks'"));
  EXPECT_THAT(message(with_header_text(good, "\"BF16\"", "\"BF17\"")), HasSubstr("dtype 'BF17'"));
  EXPECT_THAT(message(with_header_text(good, "\"activation\"", "\"activatiom\"")), HasSubstr("storage 'activatiom'"));
  EXPECT_THAT(message(with_header_text(good, "{\"finalizer\"", "[\"finalizer\"")), HasSubstr("not JSON"));
}

TEST(PlanFile, LyingSizesAllocateNothing) {
  // Counts near 2^32 in a file of a few kilobytes: rejected by what the file could hold.
  const std::string good = serialize_plan(testing::packed_chain(2, 2, 2));
  for (const std::string field : {"num_events", "num_joins", "num_specs", "queue_depth", "num_workers"}) {
    std::string bytes = good;
    const size_t at = bytes.find("\"" + field + "\":") + field.size() + 3;
    size_t end = at;
    while (bytes[end] >= '0' && bytes[end] <= '9') ++end;
    // Keep the header's length: take the digits out of the graph name's value.
    bytes.replace(at, end - at, "4294967295");
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data() + 24, 8);
    header_bytes += 10 - (end - at);
    std::memcpy(bytes.data() + 24, &header_bytes, 8);
    // Padding shrinks by as much, or grows to the next boundary.
    const size_t header_end = 48 + header_bytes;
    const size_t old_end = header_end - (10 - (end - at));
    const size_t old_sections = (old_end + 127) / 128 * 128;
    const std::string sections = good.substr(old_sections);
    bytes.resize(header_end);
    bytes.resize((header_end + 127) / 128 * 128, '\0');
    bytes += sections;
    seal_plan_bytes(bytes);
    const auto plan = parse_plan(bytes);
    ASSERT_FALSE(plan) << field;
    EXPECT_THAT(plan.error().message, HasSubstr("sections")) << field;
  }
}

TEST(PlanFile, SaveAndLoad) {
  const auto folder = std::filesystem::temp_directory_path() / ("megartp_plan_test_" + std::to_string(getpid()));
  std::filesystem::create_directories(folder);
  const std::string path = folder / "p.plan";
  const KernelPlan plan = testing::packed_chain(2, 3, 2);
  ASSERT_TRUE(save_plan(plan, path));
  const auto read = load_plan(path);
  ASSERT_TRUE(read) << read.error().to_string();
  EXPECT_EQ(serialize_plan(*read), serialize_plan(plan));
  std::ofstream(path, std::ios::binary | std::ios::app) << "x";
  const auto damaged = load_plan(path);
  ASSERT_FALSE(damaged);
  EXPECT_THAT(damaged.error().to_string(), HasSubstr(path));
  const auto missing = load_plan(folder / "missing.plan");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  std::filesystem::remove_all(folder);
}

TEST(Disassemble, ListsEveryInstruction) {
  const std::string text = disassemble(testing::packed_chain(2, 3, 2));
  EXPECT_EQ(text, R"(plan of graph 'chain' for cpu, packer round-robin, finalizer fused
shapes: M=3 [3 rows, kv 100]
6 tasks, 2 workers x 3, 3 events, 0 join counters, workspace 512 bytes

specs
  s0 add: N=64

tensors
  t0 x BF16 [3, 64] runtime_arg
  t1 b BF16 [3, 64] runtime_arg
  t2 add0.out BF16 [3, 64] activation @0x0
  t3 add1.out BF16 [3, 64] output

operand rows
  r0 add0 (op add0, add): t0 t1 t2
  r1 add1 (op add1, add): t2 t1 t3

events
  e0 total 1 from add0 publication 0
  e1 total 1 from add0 publication 0
  e2 total 1 from add0 publication 0

worker 0
  0: task 0 add0 add s0 | row 0 | signal e0+1 (p0)
  1: task 2 add0 add s0 | row 2 | signal e2+1 (p0)
  2: task 4 add1 add s0 | row 1 | wait e1>=1

worker 1
  0: task 1 add0 add s0 | row 1 | signal e1+1 (p0)
  1: task 3 add1 add s0 | row 0 | wait e0>=1
  2: task 5 add1 add s0 | row 2 | wait e2>=1
)");
}

TEST(Disassemble, SurvivesAnythingInAnInstruction) {
  const KernelPlan plan = testing::packed_chain(1, 1, 1);
  abi::Instruction i;
  std::memset(&i, 0xff, sizeof(i));
  EXPECT_FALSE(disassemble(plan, i).empty());
  i.opcode = plan.instructions[0].opcode;
  EXPECT_FALSE(disassemble(plan, i).empty());
}

TEST(PlanJson, DerivesCountsAndEvents) {
  const auto json = nlohmann::json::parse(plan_to_json(testing::packed_chain(2, 3, 4)));
  EXPECT_EQ(json["tasks"], 6);
  EXPECT_EQ(json["events"], 3);
  EXPECT_EQ(json["workers"], 4);
  EXPECT_EQ(json["queue_depth"], 2);
  EXPECT_EQ(json["queue_shape"], nlohmann::json({4, 2, 32}));
  EXPECT_EQ(json["workers_full"], 2);
  EXPECT_EQ(json["noops"], 2);
  EXPECT_EQ(json["tasks_per_op"], nlohmann::json({{"add0", 3}, {"add1", 3}}));
  ASSERT_EQ(json["events_list"].size(), 3U);
  const auto& event = json["events_list"][1];
  EXPECT_EQ(event["threshold"], 1);
  EXPECT_EQ(event["producers"]["op"], "add0");
  EXPECT_EQ(event["producers"]["tasks"], nlohmann::json({{1, 1}}));
  EXPECT_EQ(event["consumers"]["add1"]["count"], 1);
  EXPECT_EQ(event["consumers"]["add1"]["tasks"], nlohmann::json({{4, 4}}));
  EXPECT_EQ(json["operand_table_shape"], nlohmann::json({2, 16}));
  EXPECT_EQ(json["operand_table"][1]["slots"][0], "add0.out");
  EXPECT_TRUE(json["operand_table"][1]["slots"][3].is_null());
  EXPECT_EQ(json["specs"][0]["text"], "N=64");
}

}  // namespace
}  // namespace megartp
