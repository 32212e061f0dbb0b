// The plan file: see docs/instruction-abi.md for the layout.
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "base/hash.h"
#include "base/math.h"
#include "plan/kernel_plan.h"
#include "plan/plan_header.h"
#include "plan/plan_seal.h"
#include "plan/plan_structure.h"

namespace megartp {
namespace {

static_assert(std::endian::native == std::endian::little, "sections are copied as they are in memory");

constexpr std::string_view kMagic = "MRTPPLAN";
constexpr uint32_t kFormatVersion = 1;
constexpr size_t kVersionAt = 8;
constexpr size_t kAbiVersionAt = 12;
constexpr size_t kFileBytesAt = 16;
constexpr size_t kHeaderBytesAt = 24;
constexpr size_t kChecksumAt = 32;
constexpr size_t kPreambleBytes = 48;
constexpr size_t kSectionAlignment = 128;

// Everything but the checksum's own 16 bytes.
std::array<uint8_t, 16> checksum(std::string_view bytes) {
  std::array<uint8_t, 16> front = hash128(bytes.substr(0, kChecksumAt)).bytes();
  const std::array<uint8_t, 16> back = hash128(bytes.substr(kPreambleBytes)).bytes();
  std::string both(front.begin(), front.end());
  both.append(back.begin(), back.end());
  return hash128(both).bytes();
}

template <class T>
void put(std::string& bytes, size_t at, T value) {
  std::memcpy(bytes.data() + at, &value, sizeof(value));
}
template <class T>
T get(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

template <class T>
void append_array(std::string& bytes, const T* data, size_t count) {
  if (count != 0) bytes.append(reinterpret_cast<const char*>(data), count * sizeof(T));
}
void append_word(std::string& bytes, uint32_t word) { append_array(bytes, &word, 1); }

// Reads words one after another; every read is checked against what is left.
class SectionReader {
 public:
  explicit SectionReader(std::string_view bytes) : rest_(bytes) {}
  template <class T>
  bool read(std::vector<T>& out, uint64_t count) {
    if (count > rest_.size() / sizeof(T)) return false;
    out.resize(count);
    if (count != 0) std::memcpy(out.data(), rest_.data(), count * sizeof(T));
    rest_.remove_prefix(count * sizeof(T));
    return true;
  }
  bool read(uint32_t& word) {
    if (rest_.size() < sizeof(word)) return false;
    word = get<uint32_t>(rest_, 0);
    rest_.remove_prefix(sizeof(word));
    return true;
  }
  // Whether `count` items of at least `bytes_each` can be left.
  bool can_hold(uint64_t count, size_t bytes_each) const { return count <= rest_.size() / bytes_each; }
  bool at_end() const { return rest_.empty(); }

 private:
  std::string_view rest_;
};

bool read_sections(SectionReader reader, const PlanHeader& header, KernelPlan& plan) {
  if (!reader.read(plan.instructions, uint64_t{plan.num_workers} * plan.queue_depth)) return false;
  if (!reader.can_hold(header.num_events, sizeof(PlanEvent)) || !reader.read(plan.events, header.num_events))
    return false;
  if (!reader.read(plan.join_counts, header.num_joins)) return false;
  for (PlanOperandRow& row : plan.operand_rows)
    if (!reader.read(row.opcode) || !reader.read(row.tensors, abi::kOperandSlots)) return false;
  if (!reader.can_hold(header.num_specs, 2 * sizeof(uint32_t))) return false;
  plan.specs.resize(header.num_specs);
  for (PlanSpec& spec : plan.specs) {
    uint32_t num_words = 0;
    if (!reader.read(spec.opcode) || !reader.read(num_words) || !reader.read(spec.words, num_words)) return false;
  }
  return reader.at_end();
}

}  // namespace

std::string serialize_plan(const KernelPlan& plan) {
  const std::string header = plan_header_to_json(plan);
  std::string bytes(kMagic);
  bytes.resize(kPreambleBytes, '\0');
  put(bytes, kVersionAt, kFormatVersion);
  put(bytes, kAbiVersionAt, abi::kAbiVersion);
  put(bytes, kHeaderBytesAt, static_cast<uint64_t>(header.size()));
  bytes += header;
  bytes.resize(round_up(bytes.size(), kSectionAlignment), '\0');
  append_array(bytes, plan.instructions.data(), plan.instructions.size());
  append_array(bytes, plan.events.data(), plan.events.size());
  append_array(bytes, plan.join_counts.data(), plan.join_counts.size());
  for (const PlanOperandRow& row : plan.operand_rows) {
    append_word(bytes, row.opcode);
    append_array(bytes, row.tensors.data(), row.tensors.size());
  }
  for (const PlanSpec& spec : plan.specs) {
    append_word(bytes, spec.opcode);
    append_word(bytes, static_cast<uint32_t>(spec.words.size()));
    append_array(bytes, spec.words.data(), spec.words.size());
  }
  seal_plan_bytes(bytes);
  return bytes;
}

namespace {

// The plan as it stands in the file, its numbers unchecked.
Result<KernelPlan> read_plan(std::string_view bytes) {
  static_assert(sizeof(PlanEvent) == 3 * sizeof(uint32_t));
  if (bytes.size() < kPreambleBytes || !bytes.starts_with(kMagic))
    return make_error(ErrorCode::kParse, "not a plan file: it does not begin with " + std::string(kMagic));
  if (const auto v = get<uint32_t>(bytes, kVersionAt); v != kFormatVersion)
    return make_error(ErrorCode::kParse,
                      fmt::format("plan file has format version {}, this program reads {}", v, kFormatVersion));
  if (const auto v = get<uint32_t>(bytes, kAbiVersionAt); v != abi::kAbiVersion)
    return make_error(ErrorCode::kParse,
                      fmt::format("plan file has instruction ABI version {}, this program runs {}; make the plan again",
                                  v, abi::kAbiVersion));
  if (const auto size = get<uint64_t>(bytes, kFileBytesAt); size != bytes.size())
    return make_error(ErrorCode::kParse,
                      fmt::format("plan file is {} bytes long, its header says {}", bytes.size(), size));
  if (checksum(bytes) != get<std::array<uint8_t, 16>>(bytes, kChecksumAt))
    return make_error(ErrorCode::kParse, "plan file is damaged: its checksum does not match");
  const auto header_bytes = get<uint64_t>(bytes, kHeaderBytesAt);
  if (header_bytes > bytes.size() - kPreambleBytes)
    return make_error(ErrorCode::kParse,
                      fmt::format("plan file: header of {} bytes in {} bytes", header_bytes, bytes.size()));
  KernelPlan plan;
  const PlanHeader header = MEGARTP_TRY(parse_plan_header(bytes.substr(kPreambleBytes, header_bytes), plan));
  const uint64_t sections_at = round_up<uint64_t>(kPreambleBytes + header_bytes, kSectionAlignment);
  const auto padding = bytes.substr(kPreambleBytes + header_bytes, sections_at - kPreambleBytes - header_bytes);
  if (sections_at > bytes.size() || padding.find_first_not_of('\0') != std::string_view::npos)
    return make_error(ErrorCode::kParse, "plan file: malformed padding after the header");
  if (!read_sections(SectionReader(bytes.substr(sections_at)), header, plan))
    return make_error(ErrorCode::kParse, "plan file: the sections do not have the sizes that the header says");
  return plan;
}

}  // namespace

Result<KernelPlan> parse_plan(std::string_view bytes) {
  KernelPlan plan = MEGARTP_TRY(read_plan(bytes));
  MEGARTP_TRY(check_plan(plan));
  return plan;
}

Result<KernelPlan> parse_plan_structure(std::string_view bytes) {
  KernelPlan plan = MEGARTP_TRY(read_plan(bytes));
  MEGARTP_TRY(check_plan_structure(plan));
  return plan;
}

void seal_plan_bytes(std::string& bytes) {
  if (bytes.size() < kPreambleBytes) return;
  put(bytes, kFileBytesAt, static_cast<uint64_t>(bytes.size()));
  put(bytes, kChecksumAt, checksum(bytes));
}

Status save_plan(const KernelPlan& plan, const std::string& path) {
  return write_file_atomic(path, serialize_plan(plan));
}

namespace {

Result<KernelPlan> load(const std::string& path, Result<KernelPlan> (*parse)(std::string_view)) {
  constexpr uint64_t kMaxPlanFileBytes = uint64_t{1} << 34;
  const std::string bytes = MEGARTP_TRY(read_file(path, kMaxPlanFileBytes));
  Result<KernelPlan> plan = parse(bytes);
  if (!plan) return tl::unexpected(std::move(plan).error().with("path", path));
  return plan;
}

}  // namespace

Result<KernelPlan> load_plan(const std::string& path) { return load(path, parse_plan); }
Result<KernelPlan> load_plan_structure(const std::string& path) { return load(path, parse_plan_structure); }

}  // namespace megartp
