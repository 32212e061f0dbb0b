#include "plan/fault_dump.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "base/file.h"
#include "graph/json_fields.h"

namespace megartp {
namespace {

constexpr std::array<char, 8> kDumpMagic = {'M', 'R', 'T', 'P', 'F', 'A', 'L', 'T'};
constexpr size_t kMaxDumpBytes = sizeof(abi::FaultDumpHeader) + size_t{kMaxFaultRecords} * sizeof(abi::FaultRecord);
constexpr size_t kSealedHeaderBytes = offsetof(abi::FaultDumpHeader, checksum);

template <class... Args>
tl::unexpected<Error> bad_dump(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kParse, "fault dump: " + fmt::format(format, std::forward<Args>(args)...));
}

// The fields of a record under their names, once for all that walk them.
struct Field32 {
  std::string_view name;
  uint32_t abi::FaultRecord::* member;
};
struct Field64 {
  std::string_view name;
  uint64_t abi::FaultRecord::* member;
};
constexpr Field32 kFields32[] = {{"kind", &abi::FaultRecord::kind},
                                 {"role", &abi::FaultRecord::role},
                                 {"worker", &abi::FaultRecord::worker},
                                 {"slot", &abi::FaultRecord::slot},
                                 {"task_id", &abi::FaultRecord::task_id},
                                 {"opcode", &abi::FaultRecord::opcode},
                                 {"operand_row", &abi::FaultRecord::operand_row},
                                 {"phase", &abi::FaultRecord::phase},
                                 {"wait_idx", &abi::FaultRecord::wait_idx},
                                 {"event", &abi::FaultRecord::event},
                                 {"last_task", &abi::FaultRecord::last_task},
                                 {"last_worker", &abi::FaultRecord::last_worker},
                                 {"last_slot", &abi::FaultRecord::last_slot},
                                 {"missing_task", &abi::FaultRecord::missing_task},
                                 {"missing_worker", &abi::FaultRecord::missing_worker},
                                 {"missing_slot", &abi::FaultRecord::missing_slot},
                                 {"missing_state", &abi::FaultRecord::missing_state}};
constexpr Field64 kFields64[] = {{"expected", &abi::FaultRecord::expected},
                                 {"actual", &abi::FaultRecord::actual},
                                 {"epoch", &abi::FaultRecord::epoch}};
struct DumpField {
  std::string_view name;
  uint32_t FaultDump::* member;
};
constexpr DumpField kDumpFields[] = {{"num_workers", &FaultDump::num_workers}, {"queue_depth", &FaultDump::queue_depth},
                                     {"num_tasks", &FaultDump::num_tasks},     {"num_events", &FaultDump::num_events},
                                     {"schedule", &FaultDump::schedule},       {"timeout_ms", &FaultDump::timeout_ms}};

bool below_or_none(uint32_t value, uint32_t limit) { return value == abi::kFaultNone || value < limit; }

// Every number of a record is inside what it refers to, or says that it refers to nothing.
Status check_record(const FaultDump& dump, size_t i) {
  const abi::FaultRecord& r = dump.records[i];
  if (r.kind == 0 || r.kind >= abi::kFaultKinds) return bad_dump("record {} has the unknown kind {}", i, r.kind);
  if (r.role == 0 || r.role >= abi::kFaultRoles) return bad_dump("record {} has the unknown role {}", i, r.role);
  if (r.phase == 0 || r.phase >= abi::kFaultPhases) return bad_dump("record {} has the unknown phase {}", i, r.phase);
  if (r.missing_state >= abi::kFaultMissingStates)
    return bad_dump("record {} has the unknown missing_state {}", i, r.missing_state);
  for (const uint32_t worker : {r.worker, r.last_worker, r.missing_worker})
    if (!below_or_none(worker, dump.num_workers))
      return bad_dump("record {} names worker {} of {}", i, worker, dump.num_workers);
  for (const uint32_t task : {r.task_id, r.last_task, r.missing_task})
    if (!below_or_none(task, dump.num_tasks)) return bad_dump("record {} names task {} of {}", i, task, dump.num_tasks);
  if (!below_or_none(r.event, dump.num_events))
    return bad_dump("record {} names event {} of {}", i, r.event, dump.num_events);
  const bool waits = r.phase == abi::kFaultPhaseWaiting;
  if (waits && (r.event == abi::kFaultNone || r.task_id == abi::kFaultNone))
    return bad_dump("record {} waits, but names no task or event", i);
  if (!waits && (r.event != abi::kFaultNone || r.expected != 0 || r.actual != 0))
    return bad_dump("record {} names an event, but does not wait", i);
  return {};
}

Status check_dump(const FaultDump& dump) {
  if (dump.num_workers == 0 || dump.num_tasks == 0) return bad_dump("it is of a plan without workers or tasks");
  if (dump.schedule > abi::kScheduleDynamic) return bad_dump("unknown schedule {}", dump.schedule);
  if (dump.records.empty()) return bad_dump("it holds no record");
  for (size_t i = 0; i < dump.records.size(); ++i) MEGARTP_TRY(check_record(dump, i));
  return {};
}

Hash128 dump_checksum(std::string_view bytes) {
  std::string sealed(bytes.substr(0, kSealedHeaderBytes));
  sealed += bytes.substr(sizeof(abi::FaultDumpHeader));
  return hash128(sealed);
}

Result<FaultDump> parse_binary(std::string_view bytes) {
  abi::FaultDumpHeader h{};
  if (bytes.size() < sizeof h) return bad_dump("{} bytes are too few for a header", bytes.size());
  std::memcpy(&h, bytes.data(), sizeof h);
  if (h.version != abi::kFaultVersion)
    return bad_dump("version {}; this program reads version {}", h.version, abi::kFaultVersion);
  if (h.header_bytes != sizeof h || h.record_bytes != sizeof(abi::FaultRecord))
    return bad_dump("header of {} bytes and records of {}; expected {} and {}", h.header_bytes, h.record_bytes,
                    sizeof h, sizeof(abi::FaultRecord));
  if (h.num_records > kMaxFaultRecords)
    return bad_dump("{} records, at most {} are read", h.num_records, kMaxFaultRecords);
  const size_t expected = sizeof h + size_t{h.num_records} * sizeof(abi::FaultRecord);
  if (bytes.size() != expected) return bad_dump("{} bytes; {} records make {}", bytes.size(), h.num_records, expected);
  for (const uint32_t word : h.reserved)
    if (word != 0) return bad_dump("a reserved word of the header is not zero");
  if (const Hash128 sum = dump_checksum(bytes); sum.high != h.checksum[0] || sum.low != h.checksum[1])
    return bad_dump("the checksum does not match: the file is damaged");
  FaultDump dump;
  dump.num_workers = h.num_workers;
  dump.queue_depth = h.queue_depth;
  dump.num_tasks = h.num_tasks;
  dump.num_events = h.num_events;
  dump.schedule = h.schedule;
  dump.timeout_ms = h.timeout_ms;
  dump.plan_hash = {h.plan_hash[0], h.plan_hash[1]};
  dump.records.resize(h.num_records);
  if (h.num_records != 0) std::memcpy(dump.records.data(), bytes.data() + sizeof h, bytes.size() - sizeof h);
  for (size_t i = 0; i < dump.records.size(); ++i) {
    uint32_t reserved = dump.records[i].reserved0;
    for (const uint32_t word : dump.records[i].reserved1) reserved |= word;
    if (reserved != 0) return bad_dump("a reserved word of record {} is not zero", i);
  }
  return dump;
}

template <class T>
Result<T> json_number(const nlohmann::ordered_json* value, std::string_view where) {
  if (value != nullptr && value->is_number_unsigned())
    if (const auto number = value->get<uint64_t>(); number <= std::numeric_limits<T>::max())
      return static_cast<T>(number);
  // "none" reads better than 4294967295.
  if (std::is_same_v<T, uint32_t> && value != nullptr && value->is_null()) return static_cast<T>(abi::kFaultNone);
  return malformed_json(where, "expected a whole number that fits, or null for none");
}

Result<abi::FaultRecord> record_from_json(const nlohmann::ordered_json& json, const std::string& where) {
  std::vector<std::string_view> names;
  for (const Field32& f : kFields32) names.push_back(f.name);
  for (const Field64& f : kFields64) names.push_back(f.name);
  const JsonFields fields = MEGARTP_TRY(JsonFields::of(json, where, names));
  abi::FaultRecord r = abi::make_fault_record();
  for (const Field32& f : kFields32)
    r.*f.member = MEGARTP_TRY(json_number<uint32_t>(fields.find(f.name), fields.path(f.name)));
  for (const Field64& f : kFields64)
    r.*f.member = MEGARTP_TRY(json_number<uint64_t>(fields.find(f.name), fields.path(f.name)));
  return r;
}

Result<uint64_t> parse_hex64(std::string_view digits) {
  uint64_t value = 0;
  for (const char c : digits) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) return malformed_json("plan_hash", "expected 32 lower-case hex digits");
    value = value << 4 | static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

Result<FaultDump> parse_json_dump(std::string_view text) {
  JsonLimits limits;
  const nlohmann::ordered_json json = MEGARTP_TRY(parse_json(text, limits));
  std::vector<std::string_view> names = {"fault_dump", "plan_hash", "records"};
  for (const DumpField& f : kDumpFields) names.push_back(f.name);
  const JsonFields fields = MEGARTP_TRY(JsonFields::of(json, "", names));
  if (const auto version = MEGARTP_TRY(json_number<uint32_t>(fields.find("fault_dump"), "fault_dump"));
      version != abi::kFaultVersion)
    return bad_dump("version {}; this program reads version {}", version, abi::kFaultVersion);
  FaultDump dump;
  for (const DumpField& f : kDumpFields)
    dump.*f.member = MEGARTP_TRY(json_number<uint32_t>(fields.find(f.name), f.name));
  const std::string hash = MEGARTP_TRY(fields.string("plan_hash"));
  if (hash.size() != 32) return malformed_json("plan_hash", "expected 32 lower-case hex digits");
  dump.plan_hash.high = MEGARTP_TRY(parse_hex64(std::string_view(hash).substr(0, 16)));
  dump.plan_hash.low = MEGARTP_TRY(parse_hex64(std::string_view(hash).substr(16)));
  const nlohmann::ordered_json& records = *MEGARTP_TRY(fields.array("records"));
  if (records.size() > kMaxFaultRecords)
    return bad_dump("{} records, at most {} are read", records.size(), kMaxFaultRecords);
  dump.records.reserve(records.size());
  for (size_t i = 0; i < records.size(); ++i)
    dump.records.push_back(MEGARTP_TRY(record_from_json(records[i], fmt::format("records[{}]", i))));
  return dump;
}

}  // namespace

FaultDump make_fault_dump(const KernelPlan& plan) {
  FaultDump dump;
  dump.num_workers = plan.num_workers;
  dump.queue_depth = plan.queue_depth;
  dump.num_tasks = plan.num_tasks;
  dump.num_events = static_cast<uint32_t>(plan.events.size());
  dump.plan_hash = hash128(serialize_plan(plan));
  return dump;
}

std::string serialize_fault_dump(const FaultDump& dump) {
  abi::FaultDumpHeader h{};
  std::memcpy(h.magic, kDumpMagic.data(), kDumpMagic.size());
  h.version = abi::kFaultVersion;
  h.header_bytes = sizeof h;
  h.record_bytes = sizeof(abi::FaultRecord);
  h.num_records = static_cast<uint32_t>(dump.records.size());
  h.num_workers = dump.num_workers;
  h.queue_depth = dump.queue_depth;
  h.num_tasks = dump.num_tasks;
  h.num_events = dump.num_events;
  h.schedule = dump.schedule;
  h.timeout_ms = dump.timeout_ms;
  h.plan_hash[0] = dump.plan_hash.high;
  h.plan_hash[1] = dump.plan_hash.low;
  std::string bytes(sizeof h + dump.records.size() * sizeof(abi::FaultRecord), '\0');
  std::memcpy(bytes.data(), &h, sizeof h);
  if (!dump.records.empty())
    std::memcpy(bytes.data() + sizeof h, dump.records.data(), dump.records.size() * sizeof(abi::FaultRecord));
  const Hash128 sum = dump_checksum(bytes);
  h.checksum[0] = sum.high;
  h.checksum[1] = sum.low;
  std::memcpy(bytes.data(), &h, sizeof h);
  return bytes;
}

std::string fault_dump_to_json(const FaultDump& dump) {
  nlohmann::ordered_json json;
  json["fault_dump"] = abi::kFaultVersion;
  for (const DumpField& f : kDumpFields) json[f.name] = dump.*f.member;
  json["plan_hash"] = dump.plan_hash.hex();
  json["records"] = nlohmann::ordered_json::array();
  for (const abi::FaultRecord& r : dump.records) {
    nlohmann::ordered_json item;
    for (const Field32& f : kFields32)
      item[f.name] = r.*f.member == abi::kFaultNone ? nlohmann::ordered_json() : nlohmann::ordered_json(r.*f.member);
    for (const Field64& f : kFields64) item[f.name] = r.*f.member;
    json["records"].push_back(std::move(item));
  }
  return json.dump(1) + "\n";
}

Result<FaultDump> parse_fault_dump(std::string_view bytes) {
  const bool is_binary = bytes.starts_with(std::string_view(kDumpMagic.data(), kDumpMagic.size()));
  if (!is_binary && !bytes.starts_with('{'))
    return bad_dump("it starts neither with \"MRTPFALT\" nor with a JSON object");
  FaultDump dump = MEGARTP_TRY(is_binary ? parse_binary(bytes) : parse_json_dump(bytes));
  MEGARTP_TRY(check_dump(dump));
  return dump;
}

Status save_fault_dump(const FaultDump& dump, const std::string& path) {
  return write_file_atomic(path, path.ends_with(".json") ? fault_dump_to_json(dump) : serialize_fault_dump(dump));
}

Result<FaultDump> load_fault_dump(const std::string& path) {
  const std::string bytes = MEGARTP_TRY(read_file(path, kMaxDumpBytes));
  auto dump = parse_fault_dump(bytes);
  if (!dump) return tl::unexpected(std::move(dump).error().with("path", path));
  return dump;
}

}  // namespace megartp
