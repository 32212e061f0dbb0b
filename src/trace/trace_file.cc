// The trace file: see docs/trace.md for the layout.
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/hash.h"
#include "graph/json_fields.h"
#include "trace/trace.h"

namespace megartp::trace {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kTraceMagic = "MRTPTRAC";
constexpr uint32_t kTraceVersion = 1;
constexpr size_t kVersionAt = 8;
constexpr size_t kReservedAt = 12;
constexpr size_t kFileBytesAt = 16;
constexpr size_t kHeaderBytesAt = 24;
constexpr size_t kChecksumAt = 32;
constexpr size_t kPreambleBytes = 48;
constexpr uint64_t kMaxTraceFileBytes = uint64_t{1} << 32;
constexpr uint64_t kMaxTraceItems = uint64_t{1} << 28;  // of any list

template <class... Args>
tl::unexpected<Error> bad_file(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kParse, "trace file: " + fmt::format(format, std::forward<Args>(args)...));
}

// Little-endian on every machine.
void put_word(std::string& bytes, size_t at, uint64_t value, size_t num_bytes) {
  for (size_t i = 0; i < num_bytes; ++i) bytes[at + i] = static_cast<char>(value >> (8 * i) & 0xffU);
}
uint64_t get_word(std::string_view bytes, size_t at, size_t num_bytes) {
  uint64_t value = 0;
  for (size_t i = 0; i < num_bytes; ++i)
    value |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  return value;
}

// Everything but the checksum's own 16 bytes.
std::array<uint8_t, 16> file_checksum(std::string_view bytes) {
  const std::array<uint8_t, 16> front = hash128(bytes.substr(0, kChecksumAt)).bytes();
  const std::array<uint8_t, 16> back = hash128(bytes.substr(kPreambleBytes)).bytes();
  std::string both(front.begin(), front.end());
  both.append(back.begin(), back.end());
  return hash128(both).bytes();
}

// --- numbers of variable length: seven bits a byte, low ones first, the top bit says that more follow ---

class NumberWriter {
 public:
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>((value & 0x7fU) | 0x80U);
    bytes_ += static_cast<char>(value);
  }
  void put_text(std::string_view text) {
    put(text.size());
    bytes_ += text;
  }
  // Small for small differences of either sign, modulo 2^64.
  void put_difference(uint64_t value, uint64_t base) {
    const uint64_t d = value - base;
    put((d << 1) ^ (0 - (d >> 63)));
  }
  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

// The first read that fails makes all later ones fail: callers look once, at the end of an item.
class NumberReader {
 public:
  explicit NumberReader(std::string_view bytes) : rest_(bytes) {}
  uint64_t number() {
    uint64_t value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      if (rest_.empty()) break;
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= static_cast<uint64_t>(byte & 0x7fU) << shift;
      if (byte < 0x80) {
        // One form of every number: no zeros on top, no bits beyond 64.
        if ((byte == 0 && shift > 0) || (shift == 63 && byte > 1)) break;
        return value;
      }
    }
    ok_ = false;
    return 0;
  }
  uint32_t word() {
    const uint64_t value = number();
    if (value > std::numeric_limits<uint32_t>::max()) ok_ = false;
    return static_cast<uint32_t>(value);
  }
  uint64_t difference(uint64_t base) {
    const uint64_t coded = number();
    return base + ((coded >> 1) ^ (0 - (coded & 1U)));
  }
  std::string text() {
    const uint64_t size = number();
    if (size > rest_.size()) ok_ = false;
    if (!ok_) return {};
    std::string text(rest_.substr(0, size));
    rest_.remove_prefix(size);
    return text;
  }
  // A count of items of which each takes so many bytes at least.
  uint64_t count(size_t bytes_each) {
    const uint64_t count = number();
    if (count > kMaxTraceItems || count > rest_.size() / bytes_each) ok_ = false;
    return ok_ ? count : 0;
  }
  bool ok() const { return ok_; }
  bool at_end() const { return ok_ && rest_.empty(); }

 private:
  std::string_view rest_;
  bool ok_ = true;
};

// --- header ---

struct TextField {
  std::string_view name;
  std::string TraceMeta::* member;
};
constexpr TextField kTextFields[] = {{"name", &TraceMeta::name},         {"backend", &TraceMeta::backend},
                                     {"graph", &TraceMeta::graph},       {"machine", &TraceMeta::machine},
                                     {"target", &TraceMeta::target},     {"packer", &TraceMeta::packer},
                                     {"schedule", &TraceMeta::schedule}, {"clock_domain", &TraceMeta::clock_domain}};
struct NumberField {
  std::string_view name;
  uint64_t TraceMeta::* member;
};
constexpr NumberField kNumberFields[] = {
    {"begin_ns", &TraceMeta::begin_ns}, {"span_ns", &TraceMeta::span_ns}, {"num_lost", &TraceMeta::num_lost}};
struct RealField {
  std::string_view name;
  double TraceMeta::* member;
  bool is_optional = false;  // traces of before it was there lack it
};
constexpr RealField kRealFields[] = {{"clock_resolution_ns", &TraceMeta::clock_resolution_ns},
                                     {"read_gb_per_s", &TraceMeta::read_gb_per_s},
                                     {"gflops", &TraceMeta::gflops},
                                     {"timed_ns", &TraceMeta::timed_ns, true}};

std::string header_of(const Trace& t) {
  Json j;
  for (const TextField& f : kTextFields) j[f.name] = t.meta.*f.member;
  for (const NumberField& f : kNumberFields) j[f.name] = t.meta.*f.member;
  for (const RealField& f : kRealFields) j[f.name] = t.meta.*f.member;
  j["shapes"] = Json::array();
  for (const auto& [name, value] : t.meta.shapes) j["shapes"].push_back({name, value});
  j["lanes"] = Json::array();
  for (const Lane& lane : t.lanes) j["lanes"].push_back({lane.name, lane.unit});
  j["ops"] = Json::array();
  for (const TraceOp& op : t.ops) j["ops"].push_back({op.name, op.kind});
  j["kernel_edges"] = Json::array();
  for (const KernelEdge& e : t.kernel_edges) j["kernel_edges"].push_back({e.from, e.to, e.level});
  return j.dump(-1, ' ', false, Json::error_handler_t::replace);
}

bool is_word(const Json& value) {
  return value.is_number_unsigned() && value.get<uint64_t>() <= std::numeric_limits<uint32_t>::max();
}

// Calls add(item) for each item of a list, an array of `size` values; add says whether it has the right types.
template <class Add>
Status read_list(const JsonFields& fields, std::string_view key, size_t size, Add add) {
  const Json& list = *MEGARTP_TRY(fields.array(key));
  for (size_t i = 0; i < list.size(); ++i)
    if (!list[i].is_array() || list[i].size() != size || !add(list[i]))
      return malformed_json(fmt::format("{}[{}]", key, i), "not the values that a trace has here");
  return {};
}

Status read_header(std::string_view text, Trace& t) {
  JsonLimits limits;
  const Json json = MEGARTP_TRY(parse_json(text, limits));
  std::vector<std::string_view> names{"shapes", "lanes", "ops", "kernel_edges"};
  for (const TextField& f : kTextFields) names.push_back(f.name);
  for (const NumberField& f : kNumberFields) names.push_back(f.name);
  std::vector<std::string_view> optional;
  for (const RealField& f : kRealFields) (f.is_optional ? optional : names).push_back(f.name);
  const JsonFields fields = MEGARTP_TRY(JsonFields::of(json, "", names, optional));
  for (const TextField& f : kTextFields) t.meta.*f.member = MEGARTP_TRY(fields.string(f.name));
  for (const NumberField& f : kNumberFields) {
    const Json& value = *fields.find(f.name);
    if (!value.is_number_unsigned()) return malformed_json(f.name, "expected a whole number");
    t.meta.*f.member = value.get<uint64_t>();
  }
  for (const RealField& f : kRealFields) {
    const Json* value = fields.find(f.name);
    if (value == nullptr) continue;
    if (!value->is_number()) return malformed_json(f.name, "expected a number");
    t.meta.*f.member = value->get<double>();
  }
  MEGARTP_TRY(read_list(fields, "shapes", 2, [&t](const Json& v) {
    const auto value = json_integer(v[1]);
    if (!v[0].is_string() || !value) return false;
    t.meta.shapes.emplace_back(v[0].get<std::string>(), *value);
    return true;
  }));
  MEGARTP_TRY(read_list(fields, "lanes", 2, [&t](const Json& v) {
    if (!v[0].is_string() || !is_word(v[1])) return false;
    t.lanes.push_back({v[0].get<std::string>(), v[1].get<uint32_t>()});
    return true;
  }));
  MEGARTP_TRY(read_list(fields, "ops", 2, [&t](const Json& v) {
    if (!v[0].is_string() || !v[1].is_string()) return false;
    t.ops.push_back({v[0].get<std::string>(), v[1].get<std::string>()});
    return true;
  }));
  return read_list(fields, "kernel_edges", 3, [&t](const Json& v) {
    if (!is_word(v[0]) || !is_word(v[1]) || !v[2].is_string()) return false;
    t.kernel_edges.push_back({v[0].get<uint32_t>(), v[1].get<uint32_t>(), v[2].get<std::string>()});
    return true;
  });
}

// --- sections ---

void write_tasks(const Trace& t, NumberWriter& out) {
  out.put(t.tasks.size());
  uint32_t lane = 0, position = 0;
  uint64_t time = 0;
  for (const TraceTask& task : t.tasks) {
    out.put(task.lane - lane);
    if (task.lane != lane) position = 0, time = 0;
    out.put(task.position - position);
    lane = task.lane;
    position = task.position;
    out.put(task.id);
    out.put(task.op);
    out.put(task.tile);
    // Groups of one come out as 0.
    out.put(uint64_t{task.join_group + 1U} * 2 + (task.sent ? 1 : 0));
    out.put_difference(task.visible_ns, time);
    out.put(task.ready_ns - task.visible_ns);
    out.put(task.done_ns - task.ready_ns);
    time = task.done_ns;
    out.put(task.weight_bytes);
    out.put(task.other_bytes);
    out.put(task.flops);
  }
}

bool read_tasks(Trace& t, NumberReader& in) {
  const uint64_t count = in.count(12);
  t.tasks.resize(count);
  uint32_t lane = 0, position = 0;
  uint64_t time = 0;
  for (TraceTask& task : t.tasks) {
    const uint32_t step = in.word();
    if (step != 0) position = 0, time = 0;
    lane = task.lane = lane + step;  // a sum beyond 32 bits fails check_trace: lanes stand in order
    position = task.position = position + in.word();
    task.id = in.word();
    task.op = in.word();
    task.tile = in.word();
    const uint64_t join = in.number();
    if (join >> 1 > std::numeric_limits<uint32_t>::max()) return false;
    task.join_group = static_cast<uint32_t>(join >> 1) - 1;
    task.sent = (join & 1U) != 0;
    task.visible_ns = in.difference(time);
    task.ready_ns = task.visible_ns + in.number();
    task.done_ns = task.ready_ns + in.number();
    time = task.done_ns;
    task.weight_bytes = in.number();
    task.other_bytes = in.number();
    task.flops = in.number();
    if (!in.ok()) return false;
  }
  return in.ok();
}

void write_rest(const Trace& t, NumberWriter& out) {
  out.put(t.roles.size());
  uint32_t task = 0;
  for (const RoleInterval& r : t.roles) {
    out.put(r.task - task);
    task = r.task;
    out.put(r.role);
    out.put(r.begin_ns);
    out.put(r.end_ns - r.begin_ns);
  }
  out.put(t.events.size());
  for (const TraceEvent& e : t.events) {
    out.put_text(e.name);
    const auto list = [&out](const auto& items, auto number) {
      out.put(items.size());
      uint32_t before = 0;
      for (const auto& item : items) {
        out.put(item.task - before);
        before = item.task;
        out.put(number(item));
      }
    };
    list(e.signals, [](const EventSignal& s) { return s.increment; });
    list(e.waits, [](const EventWait& w) { return w.threshold; });
  }
}

template <class Item>
bool read_pairs(std::vector<Item>& items, NumberReader& in) {
  items.resize(in.count(2));
  uint32_t task = 0;
  for (Item& item : items) {
    task += in.word();
    item = Item{task, in.word()};
  }
  return in.ok();
}

bool read_rest(Trace& t, NumberReader& in) {
  t.roles.resize(in.count(4));
  uint32_t task = 0;
  for (RoleInterval& r : t.roles) {
    r.task = task += in.word();
    r.role = in.word();
    r.begin_ns = in.number();
    r.end_ns = r.begin_ns + in.number();
  }
  if (!in.ok()) return false;
  const uint64_t num_events = in.count(3);
  for (uint64_t e = 0; e < num_events; ++e) {
    TraceEvent& event = t.events.emplace_back();
    event.name = in.text();
    if (!read_pairs(event.signals, in) || !read_pairs(event.waits, in)) return false;
  }
  return in.at_end();
}

}  // namespace

std::string serialize_trace(const Trace& trace) {
  const std::string header = header_of(trace);
  NumberWriter numbers;
  numbers.put(trace.texts.size());
  for (const std::string& text : trace.texts) numbers.put_text(text);
  write_tasks(trace, numbers);
  write_rest(trace, numbers);
  std::string bytes(kTraceMagic);
  bytes.resize(kPreambleBytes, '\0');
  put_word(bytes, kVersionAt, kTraceVersion, 4);
  put_word(bytes, kHeaderBytesAt, header.size(), 8);
  bytes += header;
  bytes += numbers.bytes();
  seal_trace_bytes(bytes);
  return bytes;
}

Result<Trace> parse_trace(std::string_view bytes) {
  if (bytes.size() < kPreambleBytes || !bytes.starts_with(kTraceMagic))
    return bad_file("it does not begin with {}", kTraceMagic);
  if (const uint64_t v = get_word(bytes, kVersionAt, 4); v != kTraceVersion)
    return bad_file("it has format version {}, this program reads {}", v, kTraceVersion);
  if (get_word(bytes, kReservedAt, 4) != 0) return bad_file("a reserved word is not zero");
  if (const uint64_t size = get_word(bytes, kFileBytesAt, 8); size != bytes.size())
    return bad_file("it is {} bytes long, its header says {}", bytes.size(), size);
  const std::array<uint8_t, 16> sum = file_checksum(bytes);
  if (std::memcmp(sum.data(), bytes.data() + kChecksumAt, sum.size()) != 0)
    return bad_file("it is damaged: its checksum does not match");
  const uint64_t header_bytes = get_word(bytes, kHeaderBytesAt, 8);
  if (header_bytes > bytes.size() - kPreambleBytes)
    return bad_file("header of {} bytes in {} bytes", header_bytes, bytes.size());
  Trace trace;
  MEGARTP_TRY(read_header(bytes.substr(kPreambleBytes, header_bytes), trace));
  NumberReader in(bytes.substr(kPreambleBytes + header_bytes));
  trace.texts.resize(in.count(1));
  for (std::string& text : trace.texts) text = in.text();
  if (!in.ok() || !read_tasks(trace, in)) return bad_file("the list of tasks is cut off or malformed");
  if (!read_rest(trace, in)) return bad_file("the list of intervals or events is cut off or malformed");
  MEGARTP_TRY(check_trace(trace));
  return trace;
}

void seal_trace_bytes(std::string& bytes) {
  if (bytes.size() < kPreambleBytes) return;
  put_word(bytes, kFileBytesAt, bytes.size(), 8);
  const std::array<uint8_t, 16> sum = file_checksum(bytes);
  std::memcpy(bytes.data() + kChecksumAt, sum.data(), sum.size());
}

Status save_trace(const Trace& trace, const std::string& path) {
  return write_file_atomic(path, serialize_trace(trace));
}

Result<Trace> load_trace(const std::string& path) {
  const std::string bytes = MEGARTP_TRY(read_file(path, kMaxTraceFileBytes));
  auto trace = parse_trace(bytes);
  if (!trace) return tl::unexpected(std::move(trace).error().with("path", path));
  return trace;
}

}  // namespace megartp::trace
