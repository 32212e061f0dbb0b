// One trace as a picture: a row a track, colours by op, the critical path below.
#include <algorithm>
#include <iterator>
#include <tuple>

#include <fmt/format.h>

#include "trace/export.h"

namespace megartp::trace {
namespace {

constexpr double kChartWidth = 1000;  // pixels of the whole run
constexpr double kLabelWidth = 110;
constexpr double kTop = 30;
constexpr size_t kMaxNamedRows = 48;  // more are drawn thinner
// Hues that are told apart in light and dark; ops beyond them start over.
constexpr std::string_view kSvgColors[] = {"#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377",
                                           "#ee7733", "#009988", "#997700", "#6699cc", "#cc3311", "#777777"};
// By LinkKind; none of them is an op's.
constexpr std::string_view kLinkColors[] = {"#5d7a99", "#9bb4cc", "#d62728", "#e8a838", "#b0b0b0"};

std::string xml_text(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

class SvgWriter {
 public:
  explicit SvgWriter(const AnalysedTrace& t) : t_(t), trace_(t.trace) {
    scale_ = kChartWidth / static_cast<double>(std::max<uint64_t>(1, trace_.meta.span_ns));
  }

  std::string write() {
    const TraceUnits units = units_of(trace_);
    std::vector<std::vector<TrackSpan>> spans(units.names.size());
    for (const Track& track : lay_out(trace_))
      if (track.role == 0) spans[track.unit].insert(spans[track.unit].end(), track.spans.begin(), track.spans.end());
    const bool has_names = units.names.size() <= kMaxNamedRows;
    const double row = has_names ? 16 : 5;
    double y = kTop;
    if (!has_names) text(kLabelWidth - 6, y + 11, "end", fmt::format("{} lanes", units.names.size()));
    for (size_t unit = 0; unit < units.names.size(); ++unit, y += row) {
      if (has_names) text(kLabelWidth - 6, y + 11, "end", units.names[unit]);
      add_row(std::move(spans[unit]), y, has_names ? row - 2 : row - 0.5);
    }
    y += 6;
    text(kLabelWidth - 6, y + 11, "end", "critical path");
    add_path(y);
    y += 22;
    y = add_legend(y);
    return head(y + 10) + body_ + "</svg>\n";
  }

 private:
  double x_of(uint64_t ns) const { return kLabelWidth + static_cast<double>(ns) * scale_; }

  void text(double x, double y, std::string_view anchor, std::string_view content) {
    fmt::format_to(std::back_inserter(body_), "<text x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", x, y,
                   anchor, xml_text(content));
  }
  void rect(uint64_t begin, uint64_t end, double y, double height, std::string_view fill, std::string_view title) {
    const double width = std::max(0.2, static_cast<double>(end - begin) * scale_);
    fmt::format_to(
        std::back_inserter(body_),
        "<rect x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\" fill=\"{}\"><title>{}</title></rect>\n",
        x_of(begin), y, width, height, fill, xml_text(title));
  }

  // What is thinner than half a pixel is drawn with its neighbours, in the colour of what takes most of the time: large
  // traces stay small pictures.
  bool is_thin(uint64_t begin, uint64_t end) const { return static_cast<double>(end - begin) * scale_ < 0.5; }

  // A worker or SM. Spans that overlap share the row's height while they do.
  void add_row(std::vector<TrackSpan> spans, double y, double height) {
    std::ranges::sort(spans, {}, [](const TrackSpan& s) { return std::tuple(s.begin_ns, s.end_ns, s.item); });
    std::vector<TrackSpan> alone;
    for (size_t i = 0; i < spans.size();) {
      std::vector<std::vector<TrackSpan>> tracks;
      uint64_t end = spans[i].begin_ns;
      for (; i < spans.size() && (tracks.empty() || spans[i].begin_ns < end); ++i) {
        const auto free =
            std::ranges::find_if(tracks, [&](const auto& track) { return track.back().end_ns <= spans[i].begin_ns; });
        (free == tracks.end() ? tracks.emplace_back() : *free).push_back(spans[i]);
        end = std::max(end, spans[i].end_ns);
      }
      if (tracks.size() == 1) {
        alone.insert(alone.end(), tracks[0].begin(), tracks[0].end());
        continue;
      }
      const double part = height / static_cast<double>(tracks.size());
      for (size_t k = 0; k < tracks.size(); ++k) add_track(tracks[k], y + static_cast<double>(k) * part, part);
    }
    add_track(alone, y, height);
  }
  void add_track(const std::vector<TrackSpan>& spans, double y, double height) {
    for (size_t i = 0; i < spans.size();) {
      const uint64_t begin = spans[i].begin_ns;
      std::vector<uint64_t> time_of(trace_.ops.size());
      uint64_t end = begin;
      size_t next = i;
      for (; next < spans.size() && (next == i || is_thin(begin, spans[next].end_ns)); ++next) {
        end = spans[next].end_ns;
        time_of[trace_.tasks[spans[next].item].op] += end - spans[next].begin_ns;
      }
      const TraceTask& first = trace_.tasks[spans[i].item];
      const auto op =
          next == i + 1 ? first.op : static_cast<size_t>(std::ranges::max_element(time_of) - time_of.begin());
      rect(begin, end, y, height, kSvgColors[op % std::size(kSvgColors)],
           next == i + 1 ? fmt::format("{} {}", trace_.ops[op].name, trace_.texts[first.tile])
                         : fmt::format("{} tasks, most of {}", next - i, trace_.ops[op].name));
      i = next;
    }
  }

  void add_path(double y) {
    const std::vector<CriticalLink>& links = t_.analysis.critical;
    for (size_t i = 0; i < links.size();) {
      uint64_t time_of[kLinkKinds] = {};
      uint64_t end = links[i].begin_ns;
      size_t next = i;
      for (; next < links.size() && (next == i || is_thin(links[i].begin_ns, links[next].end_ns)); ++next) {
        end = links[next].end_ns;
        time_of[static_cast<size_t>(links[next].kind)] += end - links[next].begin_ns;
      }
      const auto kind = static_cast<size_t>(std::ranges::max_element(time_of) - std::begin(time_of));
      rect(links[i].begin_ns, end, y, 14, kLinkColors[kind],
           next == i + 1 ? link_name(trace_, links[i]) : fmt::format("{} links", next - i));
      i = next;
    }
  }

  double add_legend(double y) {
    double x = kLabelWidth;
    const auto entry = [&](std::string_view fill, std::string_view name) {
      const double width = 26 + 7.0 * static_cast<double>(name.size());
      if (x + width > kLabelWidth + kChartWidth) x = kLabelWidth, y += 18;
      fmt::format_to(std::back_inserter(body_),
                     "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"10\" height=\"10\" fill=\"{}\"/>\n", x, y, fill);
      text(x + 14, y + 9, "start", name);
      x += width;
    };
    for (size_t op = 0; op < trace_.ops.size(); ++op)
      if (t_.analysis.ops[op].num_tasks != 0) entry(kSvgColors[op % std::size(kSvgColors)], trace_.ops[op].name);
    x = kLabelWidth + kChartWidth;  // the links on a line of their own
    for (uint32_t k = 0; k < kLinkKinds; ++k)
      if (t_.analysis.link_ns[k] != 0) entry(kLinkColors[k], to_string(static_cast<LinkKind>(k)));
    return y + 14;
  }

  std::string head(double height) const {
    const double width = kLabelWidth + kChartWidth + 20;
    std::string out = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" "
        "height=\"{1:.0f}\" "
        "role=\"img\">\n<title>{2}</title>\n"
        "<style>svg {{ background: #fff }} text {{ font: 11px sans-serif; fill: #222 }} .axis {{ stroke: #bbb }}\n"
        "@media (prefers-color-scheme: dark) {{ svg {{ background: #16181d }} text {{ fill: #ddd }} .axis {{ stroke: "
        "#555 "
        "}} }}</style>\n",
        width, height,
        xml_text(fmt::format("{}: {}, {:.1f} us", trace_.meta.name, trace_.meta.graph,
                             static_cast<double>(trace_.meta.span_ns) / 1e3)));
    const bool in_ms = trace_.meta.span_ns > 10'000'000;
    for (int i = 0; i <= 10; ++i) {
      const double x = kLabelWidth + kChartWidth * i / 10;
      fmt::format_to(std::back_inserter(out),
                     "<line class=\"axis\" x1=\"{0:.1f}\" y1=\"{1:.0f}\" x2=\"{0:.1f}\" y2=\"{2:.0f}\"/>\n"
                     "<text x=\"{0:.1f}\" y=\"18\" text-anchor=\"{4}\">{3:.1f} {5}</text>\n",
                     x, kTop - 6, height - 6, static_cast<double>(trace_.meta.span_ns) * i / (in_ms ? 1e7 : 1e4),
                     i == 10 ? "end" : "middle", in_ms ? "ms" : "us");
    }
    return out;
  }

  const AnalysedTrace& t_;
  const Trace& trace_;
  double scale_ = 1;
  std::string body_;
};

}  // namespace

std::string to_svg(const AnalysedTrace& trace) { return SvgWriter(trace).write(); }

}  // namespace megartp::trace
