#include "bench/bench_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace megartp::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

BenchReport example() {
  BenchReport r;
  r.model = "glm52-attention-pre";
  r.device = "NVIDIA H200";
  r.driver = "13.0";
  r.num_copies = 8;
  r.l2_bytes = 62914560;
  r.weight_bytes = 64000000;
  r.offset = summarize({1.28});
  r.empty = summarize({2.66});
  BenchRow serial{"M=16 KV=8192 R=2", "serial", {}, 11, 68100000, summarize({37.6, 35.3, 36.0}), {}, {}, 19.8};
  BenchRow cmp{"M=16 KV=8192 R=2", "cmp", {}, 11, 68100000, summarize({22.2}), summarize({22.1}), {}, 19.8};
  r.rows = {serial, cmp};
  return r;
}

TEST(BenchReport, TableHasARowACaseAndTheFrame) {
  const std::string text = to_table(example());
  EXPECT_THAT(text, HasSubstr("NVIDIA H200 (driver 13.0)"));
  EXPECT_THAT(text, HasSubstr("two event records alone 1.28 us, empty kernel 2.66 us"));
  EXPECT_THAT(text, HasSubstr("M=16 KV=8192 R=2  kernels     MB   cold"));
  EXPECT_THAT(text, HasSubstr("serial                 11  68.10  36.00  35.37  37.44  3"));
  EXPECT_THAT(text, HasSubstr("89%"));
  EXPECT_THAT(text, Not(HasSubstr("added")));
}

TEST(BenchReport, TableIsOneBlockAGroup) {
  BenchReport r = example();
  r.rows[1].group = "other";
  const std::string text = to_table(r);
  EXPECT_THAT(text, HasSubstr("\n\nother "));
}

TEST(BenchReport, CsvHasAsManyFieldsInEveryLine) {
  BenchReport r = example();
  const std::string csv = to_csv(r);
  std::vector<size_t> commas;
  for (size_t begin = 0; begin < csv.size();) {
    const size_t end = csv.find('\n', begin);
    commas.push_back(static_cast<size_t>(
        std::count(csv.begin() + static_cast<ptrdiff_t>(begin), csv.begin() + static_cast<ptrdiff_t>(end), ',')));
    begin = end + 1;
  }
  EXPECT_THAT(commas, testing::ElementsAre(22, 22, 22));
  r.rows[0].name = "linear, \"full\"";
  EXPECT_THAT(to_csv(r), HasSubstr("\"linear, \"\"full\"\"\""));
}

TEST(BenchReport, JsonKeepsEveryFigure) {
  const auto j = nlohmann::json::parse(to_json(example()));
  EXPECT_EQ(j["rows"][0]["cold_us"]["median"], 36.0);
  EXPECT_EQ(j["rows"][0]["cold_us"]["n"], 3);
  EXPECT_FALSE(j["rows"][0].contains("same_us"));
  EXPECT_EQ(j["rows"][1]["same_us"]["median"], 22.1);
  EXPECT_NEAR(j["rows"][1]["share_of_read"].get<double>(), 19.8 / 22.2, 1e-12);
  EXPECT_EQ(j["offset_us"]["median"], 1.28);
}

TEST(BenchReport, SpansHaveColumnsWhereThereAreSome) {
  BenchReport r = example();
  EXPECT_THAT(to_table(r), Not(HasSubstr("span")));
  r.span_note = "CUPTI is not there";
  EXPECT_THAT(to_table(r), HasSubstr("\nGPU span n/a: CUPTI is not there\n"));
  EXPECT_EQ(nlohmann::json::parse(to_json(r))["span_note"], "CUPTI is not there");
  r.span_note.clear();
  r.rows[1].span = summarize({20.5, 20.7, 20.9});
  r.rows[1].traced = summarize({23.1});
  const std::string text = to_table(r);
  EXPECT_THAT(text, HasSubstr(" span     p5    p95  traced"));
  EXPECT_THAT(text, HasSubstr("20.70  20.52  20.88   23.10"));
  EXPECT_THAT(to_csv(r), HasSubstr(",20.700,20.520,20.880,3,23.100,"));
  const auto j = nlohmann::json::parse(to_json(r));
  EXPECT_EQ(j["rows"][1]["span_us"]["median"], 20.7);
  EXPECT_EQ(j["rows"][1]["traced_us"]["median"], 23.1);
  EXPECT_FALSE(j["rows"][0].contains("span_us"));
}

TEST(BenchReport, CumulativeRowsSayWhatTheyAdd) {
  std::vector<BenchCase> cases(4);
  for (int i = 0; i < 3; ++i) cases[static_cast<size_t>(i)].kind = RowKind::kCumulative;
  std::vector<BenchRow> rows(4);
  for (size_t i = 0; i < 4; ++i) rows[i].cold = summarize({static_cast<double>(10 + i * i)});
  add_differences(cases, rows);
  EXPECT_FALSE(rows[0].added_us);
  EXPECT_EQ(*rows[1].added_us, 1);
  EXPECT_EQ(*rows[2].added_us, 3);
  EXPECT_FALSE(rows[3].added_us);
}

}  // namespace
}  // namespace megartp::bench
