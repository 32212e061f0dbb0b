#include <algorithm>
#include <array>
#include <new>
#include <set>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "graph/json_fields.h"
#include "graph/text.h"
#include "verify/sass/kernel_contract.h"

namespace megartp::sass {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kFormatVersion = 1;
constexpr uint64_t kMaxContractBytes = uint64_t{16} << 20;

template <class Enum, size_t N>
Result<Enum> read_choice(const JsonFields& f, std::string_view key,
                         const std::array<std::pair<std::string_view, Enum>, N>& choices, Enum fallback) {
  const Json* value = f.find(key);
  if (value == nullptr) return fallback;
  std::string list;
  for (const auto& [name, choice] : choices) {
    if (value->is_string() && value->get_ref<const std::string&>() == name) return choice;
    list += fmt::format("{}'{}'", list.empty() ? "" : ", ", name);
  }
  return malformed_json(f.path(key), fmt::format("expected one of {}", list));
}

constexpr std::array<std::pair<std::string_view, ContractWaits>, 3> kWaitChoices{
    {{"all", ContractWaits::kAll}, {"some", ContractWaits::kSome}, {"none", ContractWaits::kNone}}};
constexpr std::array<std::pair<std::string_view, ContractTrigger>, 4> kTriggers{
    {{"none", ContractTrigger::kNone},
     {"after_wait", ContractTrigger::kAfterWait},
     {"before_wait", ContractTrigger::kBeforeWait},
     {"any", ContractTrigger::kAny}}};

Result<uint32_t> read_number(const JsonFields& f, std::string_view key, uint32_t fallback) {
  const Json* value = f.find(key);
  if (value == nullptr) return fallback;
  const auto number = json_integer(*value);
  if (!number || *number < 0 || *number > UINT16_MAX)
    return malformed_json(f.path(key), "expected a number from 0 to 65535");
  return static_cast<uint32_t>(*number);
}

Result<bool> read_flag(const JsonFields& f, std::string_view key, bool fallback) {
  return f.find(key) == nullptr ? Result<bool>(fallback) : f.boolean(key);
}

Result<ContractParam> read_param(const Json& value, std::string where) {
  constexpr std::string_view kRequired[] = {"name", "index"};
  constexpr std::string_view kOptional[] = {"offset", "bytes", "scalar"};
  const JsonFields f = MEGARTP_TRY(JsonFields::of(value, std::move(where), kRequired, kOptional));
  ContractParam p;
  p.name = MEGARTP_TRY(f.string("name"));
  if (p.name.empty() || p.name == "*") return malformed_json(f.path("name"), "expected a name");
  p.index = MEGARTP_TRY(read_number(f, "index", 0));
  p.offset = MEGARTP_TRY(read_number(f, "offset", 0));
  if (f.find("bytes") != nullptr) p.num_bytes = MEGARTP_TRY(read_number(f, "bytes", 0));
  p.is_scalar = MEGARTP_TRY(f.boolean("scalar"));
  return p;
}

// A list of names that must all be known.
Result<std::vector<std::string>> read_names(const JsonFields& f, std::string_view key,
                                            const std::vector<ContractParam>& params, bool star_allowed) {
  auto names = MEGARTP_TRY(f.names(key));
  for (const std::string& name : names) {
    const bool known =
        std::any_of(params.begin(), params.end(), [&](const ContractParam& p) { return p.name == name; });
    if (!known && !(star_allowed && name == "*"))
      return malformed_json(f.path(key), fmt::format("{} is none of this kernel's params", quote_name(name)));
  }
  return names;
}

Result<KernelContract> read_kernel(const Json& value, std::string where) {
  constexpr std::string_view kRequired[] = {"kernel", "waits", "trigger"};
  constexpr std::string_view kOptional[] = {"pdl",
                                            "params",
                                            "pre_wait_reads",
                                            "pre_wait_prefetches",
                                            "pre_wait_writes",
                                            "ordered_by_barrier",
                                            "allow_unknown_before_wait",
                                            "allow_unfenced",
                                            "stores_before_trigger",
                                            "no_spills",
                                            "max_registers"};
  const JsonFields f = MEGARTP_TRY(JsonFields::of(value, std::move(where), kRequired, kOptional));
  KernelContract c;
  c.kernel = MEGARTP_TRY(f.string("kernel"));
  c.pdl = MEGARTP_TRY(read_flag(f, "pdl", true));
  c.waits = MEGARTP_TRY(read_choice(f, "waits", kWaitChoices, ContractWaits::kAll));
  c.trigger = MEGARTP_TRY(read_choice(f, "trigger", kTriggers, ContractTrigger::kNone));
  if (f.find("params") != nullptr) {
    const Json& list = *MEGARTP_TRY(f.array("params"));
    if (list.size() > JsonFields::kMaxListItems) return malformed_json(f.path("params"), "too many items");
    std::set<std::string> names;
    for (size_t i = 0; i < list.size(); ++i) {
      c.params.push_back(MEGARTP_TRY(read_param(list[i], fmt::format("{}[{}]", f.path("params"), i))));
      if (!names.insert(c.params.back().name).second)
        return malformed_json(f.path("params"), fmt::format("{} appears twice", quote_name(c.params.back().name)));
    }
  }
  c.pre_wait_reads = MEGARTP_TRY(read_names(f, "pre_wait_reads", c.params, false));
  c.pre_wait_prefetches = MEGARTP_TRY(read_names(f, "pre_wait_prefetches", c.params, false));
  c.pre_wait_writes = MEGARTP_TRY(read_names(f, "pre_wait_writes", c.params, false));
  c.ordered_by_barrier = MEGARTP_TRY(read_names(f, "ordered_by_barrier", c.params, true));
  c.allow_unknown_before_wait = MEGARTP_TRY(f.names("allow_unknown_before_wait"));
  c.allow_unfenced = MEGARTP_TRY(f.names("allow_unfenced"));
  for (const std::string& space : c.allow_unfenced)
    if (space != "shared" && space != "global")
      return malformed_json(f.path("allow_unfenced"), "expected 'shared' or 'global'");
  c.stores_before_trigger = MEGARTP_TRY(f.boolean("stores_before_trigger"));
  c.no_spills = MEGARTP_TRY(read_flag(f, "no_spills", true));
  if (f.find("max_registers") != nullptr) c.max_registers = MEGARTP_TRY(read_number(f, "max_registers", 0));
  return c;
}

Result<CubinContract> read_contract(std::string_view text) {
  const Json root = MEGARTP_TRY(parse_json(text));
  constexpr std::string_view kRequired[] = {"cubin_contract", "kernels"};
  const JsonFields f = MEGARTP_TRY(JsonFields::of(root, "", kRequired));
  if (json_integer(*f.find("cubin_contract")) != kFormatVersion)
    return malformed_json("cubin_contract",
                          fmt::format("unknown version of the contract format, expected {}", kFormatVersion));
  CubinContract contract;
  const Json& list = *MEGARTP_TRY(f.array("kernels"));
  std::set<std::string> names;
  for (size_t i = 0; i < list.size(); ++i) {
    contract.kernels.push_back(MEGARTP_TRY(read_kernel(list[i], fmt::format("kernels[{}]", i))));
    if (!names.insert(contract.kernels.back().kernel).second)
      return malformed_json(fmt::format("kernels[{}].kernel", i),
                            fmt::format("{} has two contracts", quote_name(contract.kernels.back().kernel)));
  }
  return contract;
}

}  // namespace

Result<CubinContract> cubin_contract_from_json(std::string_view text) {
  try {
    return read_contract(text);
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kOutOfMemory, fmt::format("no memory to read a contract of {} bytes", text.size()));
  }
}

Result<CubinContract> load_cubin_contract(const std::string& path) {
  auto contract = cubin_contract_from_json(MEGARTP_TRY(read_file(path, kMaxContractBytes)));
  if (!contract) return tl::unexpected(std::move(contract).error().with("path", path));
  return contract;
}

}  // namespace megartp::sass
