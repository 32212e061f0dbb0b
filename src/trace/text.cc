// The chart for terminals, and the tables below it.
#include <algorithm>
#include <cctype>
#include <functional>
#include <iterator>
#include <utility>

#include <fmt/format.h>

#include "trace/export.h"

namespace megartp::trace {
namespace {

constexpr std::string_view kOpLetters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
constexpr int kOpColors[] = {33, 203, 71, 178, 80, 133, 208, 37, 136, 110, 160, 245};  // of 256
constexpr char kWaitMark = '.';
constexpr size_t kMaxOverlapLines = 6;
constexpr size_t kMaxOpLines = 40;

class TextWriter {
 public:
  TextWriter(const AnalysedTrace& t, const TextOptions& options)
      : t_(t), trace_(t.trace), options_(options), units_(units_of(t.trace)) {
    for (const std::string& name : units_.names) label_width_ = std::max(label_width_, name.size());
    const size_t used = label_width_ + 3;
    columns_ = options.width > used + 20 ? options.width - used : 20;
    column_ns_ = std::max(1.0, static_cast<double>(trace_.meta.span_ns) / static_cast<double>(columns_));
    for (uint32_t op = 0; op < trace_.ops.size(); ++op)
      if (t.analysis.ops[op].num_tasks != 0) shown_ops_.push_back(op);
    letter_of_.resize(trace_.ops.size(), '?');
    for (size_t i = 0; i < shown_ops_.size(); ++i) letter_of_[shown_ops_[i]] = kOpLetters[i % kOpLetters.size()];
  }

  std::string write() {
    header();
    chart();
    op_table();
    path_lines();
    idle_lines();
    overlap_lines();
    return std::move(out_);
  }

 private:
  template <class... Args>
  void line(fmt::format_string<Args...> format, Args&&... args) {
    fmt::format_to(std::back_inserter(out_), format, std::forward<Args>(args)...);
    out_ += '\n';
  }
  static double us(uint64_t ns) { return static_cast<double>(ns) / 1e3; }
  double percent(uint64_t ns, uint64_t of) const {
    return of == 0 ? 0 : 100 * static_cast<double>(ns) / static_cast<double>(of);
  }

  void header() {
    const TraceMeta& m = trace_.meta;
    std::string shapes;
    for (const auto& [name, value] : m.shapes) fmt::format_to(std::back_inserter(shapes), " {}={}", name, value);
    line("{}: {} on {}, {}{}", m.name, m.backend, m.machine, m.graph, shapes);
    line("{:.1f} us, {} tasks on {} lanes, {} events; clock {}, {:g} ns a step{}{}", us(m.span_ns), trace_.tasks.size(),
         units_.names.size(), trace_.events.size(), m.clock_domain, m.clock_resolution_ns,
         m.packer.empty() ? "" : "; packer " + m.packer, m.target.empty() ? "" : ", target " + m.target);
    if (m.num_lost != 0)
      line("{} tasks have no record: what follows has gaps, and the critical path may be another", m.num_lost);
    out_ += '\n';
  }

  // Adds the time of [begin, end) to the columns that it falls into.
  template <class Add>
  void spread(uint64_t begin, uint64_t end, Add add) const {
    const auto first = static_cast<size_t>(static_cast<double>(begin) / column_ns_);
    for (size_t c = first; c < columns_; ++c) {
      const double from = std::max(static_cast<double>(begin), static_cast<double>(c) * column_ns_);
      const double to = std::min(static_cast<double>(end), static_cast<double>(c + 1) * column_ns_);
      if (to <= from) {
        if (c > first) break;
        continue;
      }
      add(c, to - from);
    }
  }

  // Per column the op that had the most of it; waiting where no task computed.
  void unit_row(std::string_view name, const std::vector<uint32_t>& tasks) {
    std::vector<std::vector<std::pair<uint32_t, double>>> ops(columns_);
    std::vector<double> waits(columns_, 0);
    for (const uint32_t t : tasks) {
      const TraceTask& task = trace_.tasks[t];
      spread(task.ready_ns, task.done_ns, [&](size_t c, double ns) {
        const auto at = std::ranges::find(ops[c], task.op, &std::pair<uint32_t, double>::first);
        if (at == ops[c].end())
          ops[c].emplace_back(task.op, ns);
        else
          at->second += ns;
      });
      spread(task.visible_ns, task.ready_ns, [&](size_t c, double ns) { waits[c] = std::max(waits[c], ns); });
    }
    row_label(name);
    for (size_t c = 0; c < columns_; ++c) {
      const auto most = std::ranges::max_element(ops[c], {}, &std::pair<uint32_t, double>::second);
      if (most != ops[c].end() && most->second >= waits[c])
        cell(letter_of_[most->first], most->first);
      else
        out_ += waits[c] > column_ns_ / 4 ? kWaitMark : ' ';
    }
    out_ += "|\n";
  }
  void row_label(std::string_view name) { fmt::format_to(std::back_inserter(out_), "{:<{}} |", name, label_width_); }
  void cell(char letter, uint32_t op) {
    if (options_.color)
      fmt::format_to(std::back_inserter(out_), "\x1b[38;5;{}m{}\x1b[0m", kOpColors[op % std::size(kOpColors)], letter);
    else
      out_ += letter;
  }

  void chart() {
    std::vector<std::vector<uint32_t>> tasks(units_.names.size());
    for (uint32_t t = 0; t < trace_.tasks.size(); ++t) tasks[units_.of_lane[trace_.tasks[t].lane]].push_back(t);
    const size_t shown = std::min<size_t>(tasks.size(), options_.max_lanes);
    for (size_t unit = 0; unit < shown; ++unit) unit_row(units_.names[unit], tasks[unit]);
    if (shown < tasks.size()) line("... and {} more lanes (--lanes)", tasks.size() - shown);
    path_row();
  }

  // Per column the kind of link, or the op, that had the most of it.
  void path_row() {
    struct Mark {
      char mark = ' ';
      uint32_t op = 0;
      double ns = 0;
    };
    std::vector<std::vector<Mark>> marks(columns_);
    for (const CriticalLink& link : t_.analysis.critical)
      spread(link.begin_ns, link.end_ns, [&](size_t c, double ns) {
        const char mark = link_mark(link);
        const auto at = std::ranges::find(marks[c], mark, &Mark::mark);
        if (at == marks[c].end())
          marks[c].push_back({mark, trace_.tasks[link.task].op, ns});
        else
          at->ns += ns;
      });
    row_label("critical");
    for (const std::vector<Mark>& column : marks) {
      const auto most = std::ranges::max_element(column, {}, &Mark::ns);
      if (most == column.end())
        out_ += ' ';
      else if (std::isalpha(static_cast<unsigned char>(most->mark)) != 0)
        cell(most->mark, most->op);
      else
        out_ += most->mark;
    }
    out_ += "|\n\n";
  }
  char link_mark(const CriticalLink& link) const {
    switch (link.kind) {
      case LinkKind::kWait: return '~';
      case LinkKind::kQueue: return '-';
      case LinkKind::kLaunch: return '=';
      default: return letter_of_[trace_.tasks[link.task].op];
    }
  }

  void op_table() {
    line("   {:<20} {:>6} {:>11} {:>11} {:>11} {:>11} {:>11} {:>11} {:>12}", "op", "tasks", "busy us", "first us",
         "last us", "running us", "alone us", "on path us", "min slack us");
    std::vector<uint64_t> least(trace_.ops.size(), ~uint64_t{0});
    for (size_t t = 0; t < trace_.tasks.size(); ++t)
      least[trace_.tasks[t].op] = std::min(least[trace_.tasks[t].op], t_.analysis.slack_ns[t]);
    std::vector<uint32_t> rows = shown_ops_;
    if (rows.size() > kMaxOpLines) {
      std::ranges::stable_sort(rows, std::greater<>(), [this](uint32_t op) { return t_.analysis.ops[op].busy_ns; });
      rows.resize(kMaxOpLines);
      std::ranges::sort(rows);
    }
    for (const uint32_t op : rows) {
      const OpTime& time = t_.analysis.ops[op];
      cell(letter_of_[op], op);
      line("  {:<20} {:>6} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>11.1f} {:>12.1f}", trace_.ops[op].name,
           time.num_tasks, us(time.busy_ns), us(time.first_ns), us(time.last_ns), us(time.running_ns),
           us(time.alone_ns), us(time.critical_ns), us(least[op]));
    }
    out_ += '\n';
  }

  void path_lines() {
    const Analysis& a = t_.analysis;
    const uint64_t sum = a.critical_ns();
    line("critical path: {} links, {:.1f} us of {:.1f} measured ({:.2f} %)", a.critical.size(), us(sum),
         us(trace_.meta.span_ns), percent(sum, trace_.meta.span_ns));
    for (uint32_t k = 0; k < kLinkKinds; ++k)
      if (a.link_ns[k] != 0)
        line("  {:<8} {:>11.1f} us {:>6.1f} %", to_string(static_cast<LinkKind>(k)), us(a.link_ns[k]),
             percent(a.link_ns[k], sum));
    if (a.num_unresolved != 0) line("  {} waits could not be traced to their signals", a.num_unresolved);
    out_ += '\n';
  }

  void idle_lines() {
    const Analysis& a = t_.analysis;
    const uint64_t all = trace_.meta.span_ns * a.num_units;
    line("time of {} {}: busy {:.1f} %", a.num_units, trace_.kernel_edges.empty() ? "workers" : "SMs",
         percent(a.busy_ns, all));
    for (uint32_t r = 0; r < kIdleReasons; ++r)
      if (a.idle_ns[r] != 0)
        line("  {:<24} {:>11.1f} us {:>6.1f} %", to_string(static_cast<IdleReason>(r)), us(a.idle_ns[r]),
             percent(a.idle_ns[r], all));
    out_ += '\n';
  }

  void overlap_lines() {
    const std::vector<OpOverlap>& list = t_.analysis.overlaps;
    if (list.empty()) {
      line("no two ops ran at the same time");
      return;
    }
    line("ops that ran at the same time:");
    for (size_t i = 0; i < std::min(list.size(), kMaxOverlapLines); ++i)
      line("  {} and {}: {:.1f} us", trace_.ops[list[i].a].name, trace_.ops[list[i].b].name, us(list[i].ns));
    if (list.size() > kMaxOverlapLines) line("  ... and {} more pairs", list.size() - kMaxOverlapLines);
  }

  const AnalysedTrace& t_;
  const Trace& trace_;
  TextOptions options_;
  TraceUnits units_;
  size_t label_width_ = 8;
  size_t columns_ = 80;
  double column_ns_ = 1;
  std::vector<uint32_t> shown_ops_;
  std::string letter_of_;
  std::string out_;
};

}  // namespace

std::string to_text(const AnalysedTrace& trace, const TextOptions& options) {
  return TextWriter(trace, options).write();
}

}  // namespace megartp::trace
