#include "bench/bench_report.h"

#include <algorithm>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace megartp::bench {
namespace {

using Cells = std::vector<std::string>;

std::string fixed(double value, int digits) { return fmt::format("{:.{}f}", value, digits); }

// First column to the left, the others to the right.
std::string aligned(const std::vector<Cells>& lines) {
  std::vector<size_t> widths;
  for (const Cells& line : lines) {
    widths.resize(std::max(widths.size(), line.size()), 0);
    for (size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], line[c].size());
  }
  std::string out;
  for (const Cells& line : lines) {
    std::string text;
    for (size_t c = 0; c < line.size(); ++c)
      text += c == 0 ? fmt::format("{:<{}}", line[c], widths[c]) : fmt::format("  {:>{}}", line[c], widths[c]);
    out += text.substr(0, text.find_last_not_of(' ') + 1) + "\n";
  }
  return out;
}

std::string quoted(const std::string& field) {
  if (field.find_first_of(",\"\n") == std::string::npos) return field;
  std::string out = "\"";
  for (const char c : field) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

std::string head(const BenchReport& r) {
  return fmt::format(
             "{} on {} (driver {}), us by events around one graph launch behind a delay kernel\n"
             "weights rotate over {} copies of {:.1f} MB, L2 {:.1f} MB; two event records alone {:.2f} us, empty "
             "kernel "
             "{:.2f} us; both are in "
             "every figure\n",
             r.model, r.device, r.driver, r.num_copies, static_cast<double>(r.weight_bytes) / 1e6,
             static_cast<double>(r.l2_bytes) / 1e6, r.offset.median, r.empty.median) +
         (r.span_note.empty() ? "" : fmt::format("GPU span n/a: {}\n", r.span_note));
}

void add_cells(Cells& line, const std::optional<Summary>& s, std::initializer_list<double Summary::*> members) {
  for (double Summary::* member : members) line.push_back(s ? fixed((*s).*member, 2) : "-");
}

// Four fields and a comma behind each.
std::string csv_fields(const std::optional<Summary>& s) {
  return s ? fmt::format("{:.3f},{:.3f},{:.3f},{},", s->median, s->p5, s->p95, s->n) : ",,,,";
}

nlohmann::ordered_json summary_json(const Summary& s) {
  return {{"n", s.n}, {"median", s.median}, {"p5", s.p5}, {"p95", s.p95}, {"min", s.min}, {"max", s.max}};
}

}  // namespace

std::optional<double> BenchRow::share_of_read() const {
  if (read_us <= 0 || cold.median <= 0) return std::nullopt;
  return read_us / cold.median;
}

void add_differences(const std::vector<BenchCase>& cases, std::vector<BenchRow>& rows) {
  for (size_t i = 1; i < std::min(rows.size(), cases.size()); ++i) {
    const bool is_next = cases[i].kind == RowKind::kCumulative && cases[i - 1].kind == RowKind::kCumulative &&
                         cases[i].group == cases[i - 1].group;
    if (is_next) rows[i].added_us = rows[i].cold.median - rows[i - 1].cold.median;
  }
}

std::string to_table(const BenchReport& report) {
  const auto any = [&](auto has) { return std::ranges::any_of(report.rows, has); };
  const bool with_same = any([](const BenchRow& r) { return r.same.has_value(); });
  const bool with_span = any([](const BenchRow& r) { return r.span.has_value(); });
  const bool with_added = any([](const BenchRow& r) { return r.added_us.has_value(); });
  const bool with_share = any([](const BenchRow& r) { return r.share_of_read().has_value(); });
  std::string out = head(report);
  for (size_t i = 0; i < report.rows.size();) {
    const std::string& group = report.rows[i].group;
    Cells header{group, "kernels", "MB", "cold", "p5", "p95", "n"};
    if (with_same) header.insert(header.end(), {"same", "p5", "p95"});
    if (with_span) header.insert(header.end(), {"span", "p5", "p95", "traced"});
    header.emplace_back("GB/s");
    if (with_share) header.emplace_back("of read");
    if (with_added) header.emplace_back("added");
    std::vector<Cells> lines{std::move(header)};
    for (; i < report.rows.size() && report.rows[i].group == group; ++i) {
      const BenchRow& r = report.rows[i];
      Cells line{r.name,
                 std::to_string(r.num_kernels),
                 fixed(static_cast<double>(r.num_bytes) / 1e6, 2),
                 fixed(r.cold.median, 2),
                 fixed(r.cold.p5, 2),
                 fixed(r.cold.p95, 2),
                 std::to_string(r.cold.n)};
      if (with_same) add_cells(line, r.same, {&Summary::median, &Summary::p5, &Summary::p95});
      if (with_span) {
        add_cells(line, r.span, {&Summary::median, &Summary::p5, &Summary::p95});
        add_cells(line, r.traced, {&Summary::median});
      }
      line.push_back(fixed(r.gb_per_s(), 0));
      if (with_share) line.push_back(r.share_of_read() ? fmt::format("{:.0f}%", *r.share_of_read() * 100) : "-");
      if (with_added) line.push_back(r.added_us ? fmt::format("{:+.2f}", *r.added_us) : "-");
      lines.push_back(std::move(line));
    }
    out += "\n" + aligned(lines);
  }
  return out;
}

std::string to_csv(const BenchReport& report) {
  std::string out =
      "group,name,m,kv,requests,kernels,bytes,cold_median_us,cold_p5_us,cold_p95_us,cold_n,same_median_us,same_p5_us,"
      "same_p95_us,same_n,span_median_us,span_p5_us,span_p95_us,span_n,traced_median_us,gb_per_s,share_of_read,added_"
      "us\n";
  for (const BenchRow& r : report.rows) {
    out += fmt::format("{},{},{},{},{},{},{},{:.3f},{:.3f},{:.3f},{},", quoted(r.group), quoted(r.name), r.batch.m,
                       r.batch.kv, r.batch.requests, r.num_kernels, r.num_bytes, r.cold.median, r.cold.p5, r.cold.p95,
                       r.cold.n);
    out += csv_fields(r.same) + csv_fields(r.span) + (r.traced ? fixed(r.traced->median, 3) : "") + ",";
    out += fmt::format("{:.1f},{},{}\n", r.gb_per_s(), r.share_of_read() ? fixed(*r.share_of_read(), 4) : "",
                       r.added_us ? fixed(*r.added_us, 3) : "");
  }
  return out;
}

std::string to_json(const BenchReport& report) {
  nlohmann::ordered_json j{{"model", report.model},
                           {"device", report.device},
                           {"driver", report.driver},
                           {"copies", report.num_copies},
                           {"l2_bytes", report.l2_bytes},
                           {"weight_bytes", report.weight_bytes},
                           {"offset_us", summary_json(report.offset)},
                           {"empty_us", summary_json(report.empty)}};
  if (!report.span_note.empty()) j["span_note"] = report.span_note;
  j["rows"] = nlohmann::ordered_json::array();
  for (const BenchRow& r : report.rows) {
    nlohmann::ordered_json row{{"group", r.group},
                               {"name", r.name},
                               {"m", r.batch.m},
                               {"kv", r.batch.kv},
                               {"requests", r.batch.requests},
                               {"kernels", r.num_kernels},
                               {"bytes", r.num_bytes},
                               {"cold_us", summary_json(r.cold)}};
    if (r.same) row["same_us"] = summary_json(*r.same);
    if (r.span) row["span_us"] = summary_json(*r.span);
    if (r.traced) row["traced_us"] = summary_json(*r.traced);
    row["gb_per_s"] = r.gb_per_s();
    if (r.read_us > 0) row["read_us"] = r.read_us;
    if (r.share_of_read()) row["share_of_read"] = *r.share_of_read();
    if (r.added_us) row["added_us"] = *r.added_us;
    j["rows"].push_back(std::move(row));
  }
  return j.dump(1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace megartp::bench
