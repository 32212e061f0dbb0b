#include "support/plan_text.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/math.h"
#include "plan/plan_limits.h"

namespace megartp::test {
namespace {

using Json = nlohmann::json;

template <class... Args>
tl::unexpected<Error> bad(fmt::format_string<Args...> format, Args&&... args) {
  return make_error(ErrorCode::kParse, "text plan: " + fmt::format(format, std::forward<Args>(args)...));
}

struct Counted {  // "e0>=2", "e2+2"
  std::string event;
  uint32_t count = 1;
};
struct Line {
  std::string stage;
  uint32_t tile = 0;
  std::vector<Counted> waits, signals;
};

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}
uint32_t number(std::string_view s) {
  uint32_t n = 0;
  std::from_chars(s.data(), s.data() + s.size(), n);
  return n;
}
std::vector<Counted> counted(std::string_view list, std::string_view sign, uint32_t tile) {
  std::vector<Counted> out;
  while (!trim(list).empty()) {
    const size_t comma = std::min(list.find(','), list.size());
    const std::string_view item = trim(list.substr(0, comma));
    list.remove_prefix(std::min(comma + 1, list.size()));
    const size_t at = item.find(sign);
    Counted c{std::string(item.substr(0, at)),
              at == std::string_view::npos ? 1 : number(item.substr(at + sign.size()))};
    if (const size_t hash = c.event.find('#'); hash != std::string::npos)
      c.event.replace(hash, 1, std::to_string(tile));
    out.push_back(std::move(c));
  }
  return out;
}

// One string, which may be a range of tiles.
void parse_line(std::string_view text, std::vector<Line>& out) {
  const size_t arrow = std::min(text.find("->"), text.size());
  const size_t wait = std::min(text.find("<-"), arrow);
  const std::string_view who = trim(text.substr(0, wait));
  const std::string_view waits = wait < arrow ? text.substr(wait + 2, arrow - wait - 2) : std::string_view();
  const std::string_view signals = arrow < text.size() ? text.substr(arrow + 2) : std::string_view();
  const size_t space = who.find(' ');
  const std::string_view range = trim(who.substr(space + 1));
  const size_t dots = range.find("..");
  const uint32_t first = number(range.substr(0, dots));
  const uint32_t last = dots == std::string_view::npos ? first : number(range.substr(dots + 2));
  for (uint32_t t = first; t <= last; ++t)
    out.push_back({std::string(who.substr(0, space)), t, counted(waits, ">=", t), counted(signals, "+", t)});
}

class Builder {
 public:
  explicit Builder(const Json& json) : json_(json) {}

  Result<TextPlan> run() {
    KernelPlan& p = out_.plan;
    p.graph_name = "text";
    p.target = "cpu";
    p.packer = "text";
    p.finalizer = "tasks";
    MEGARTP_TRY(add_tensors());
    MEGARTP_TRY(add_stages());
    for (const Json& queue : json_.at("queues")) {
      auto& lines = queues_.emplace_back();
      for (const Json& line : queue) parse_line(line.get<std::string>(), lines);
      p.queue_depth = std::max(p.queue_depth, static_cast<uint32_t>(lines.size()));
    }
    p.num_workers = static_cast<uint32_t>(queues_.size());
    number_tasks();
    MEGARTP_TRY(add_instructions());
    if (json_.contains("totals"))
      for (const auto& [name, total] : json_["totals"].items()) p.events[event(name)].total = total.get<uint32_t>();
    if (json_.contains("limits")) read_limits(json_["limits"]);
    return std::move(out_);
  }

 private:
  Status add_tensors() {
    KernelPlan& p = out_.plan;
    for (const auto& [name, t] : json_.at("tensors").items()) {
      static const std::map<std::string, Storage> kStorages{{"argument", Storage::kRuntimeArg},
                                                            {"weight", Storage::kWeight},
                                                            {"activation", Storage::kActivation},
                                                            {"state", Storage::kState},
                                                            {"output", Storage::kOutput}};
      const auto storage = kStorages.find(t.at("storage").get<std::string>());
      if (storage == kStorages.end()) return bad("tensor '{}' has an unknown storage", name);
      PlanTensor tensor{name, DType::kBF16, t.at("dims").get<std::vector<int64_t>>(), storage->second, kExternal, 2};
      for (const int64_t d : tensor.dims) tensor.num_bytes *= static_cast<uint64_t>(d);
      if (tensor.storage == Storage::kActivation) {
        tensor.arena_offset = t.contains("at") ? t["at"].get<uint64_t>() : p.workspace_bytes;
        p.workspace_bytes =
            std::max(p.workspace_bytes, round_up<uint64_t>(tensor.arena_offset + tensor.num_bytes, uint64_t{256}));
      }
      tensor_ids_[name] = static_cast<uint32_t>(p.tensors.size());
      p.tensors.push_back(std::move(tensor));
    }
    return {};
  }

  Status add_stages() {
    KernelPlan& p = out_.plan;
    for (const Json& s : json_.at("stages")) {
      const auto op = s.at("op").get<std::string>();
      const OpFamily* family = find_op_family(op);
      if (family == nullptr || (op != "add" && op != "rmsnorm" && op != "gemm")) return bad("op '{}'", op);
      PlanOperandRow row{
          s.at("name").get<std::string>(), s.at("name").get<std::string>(), family->opcodes()[0].opcode, {}};
      for (const Json& t : s.at("operands")) {
        const auto id = tensor_ids_.find(t.get<std::string>());
        if (id == tensor_ids_.end()) return bad("stage '{}' has no tensor '{}'", row.name, t.get<std::string>());
        row.tensors.push_back(id->second);
      }
      row.tensors.resize(abi::kOperandSlots, kInvalidId);
      const auto cols = static_cast<uint32_t>(p.tensors[row.tensors[0]].dims[1]);
      const float eps = 1e-5F;
      uint32_t eps_word = 0;
      __builtin_memcpy(&eps_word, &eps, 4);
      PlanSpec spec{row.opcode, {cols}};
      if (op == "rmsnorm") spec.words.push_back(eps_word);
      if (op == "gemm") spec.words = {static_cast<uint32_t>(p.tensors[row.tensors[1]].dims[0]), cols};
      stage_ids_[row.name] = static_cast<uint32_t>(p.operand_rows.size());
      p.operand_rows.push_back(std::move(row));
      p.specs.push_back(std::move(spec));
    }
    return {};
  }

  void number_tasks() {
    for (const auto& lines : queues_)
      for (const Line& l : lines) task_ids_[{stage_ids_[l.stage], l.tile}] = 0;
    for (auto& [key, id] : task_ids_) id = out_.plan.num_tasks++;
  }

  uint32_t event(const std::string& name) {
    const auto [it, is_new] = event_ids_.emplace(name, static_cast<uint32_t>(out_.plan.events.size()));
    if (is_new) out_.plan.events.push_back({0, kInvalidId, 0});
    return it->second;
  }

  Status add_instructions() {
    KernelPlan& p = out_.plan;
    p.instructions.assign(size_t{p.num_workers} * p.queue_depth, make_noop());
    for (uint32_t w = 0; w < p.num_workers; ++w) {
      for (uint32_t s = 0; s < queues_[w].size(); ++s) {
        const Line& l = queues_[w][s];
        if (!stage_ids_.contains(l.stage)) return bad("no stage '{}'", l.stage);
        abi::Instruction& i = p.instructions[size_t{w} * p.queue_depth + s];
        i = abi::Instruction{};
        i.operand_row = i.spec_id = stage_ids_[l.stage];
        i.opcode = p.operand_rows[i.operand_row].opcode;
        i.task_id = task_ids_[{i.operand_row, l.tile}];
        i.join_counter = abi::kNoJoin;
        const uint32_t payload = set_payload(i, l.tile);
        if (l.waits.size() > abi::kMaxWaits || l.signals.size() > abi::kMaxSignals)
          return bad("'{} {}' has too many waits or signals", l.stage, l.tile);
        i.counts =
            abi::make_counts(static_cast<uint32_t>(l.waits.size()), static_cast<uint32_t>(l.signals.size()), payload);
        for (size_t k = 0; k < l.waits.size(); ++k) i.waits[k] = {event(l.waits[k].event), l.waits[k].count};
        for (size_t k = 0; k < l.signals.size(); ++k) {
          const uint32_t e = event(l.signals[k].event);
          i.signals[k] = abi::make_signal(e, l.signals[k].count, 0);
          p.events[e].total += l.signals[k].count;
        }
      }
    }
    return {};
  }

  // Returns the number of words.
  uint32_t set_payload(abi::Instruction& i, uint32_t tile) const {
    const KernelPlan& p = out_.plan;
    if (opcode_name(i.opcode) != "gemm") {
      i.payload[0] = tile;
      return 1;
    }
    const auto& row = p.operand_rows[i.operand_row];
    const auto rows = static_cast<uint32_t>(p.tensors[row.tensors[0]].dims[0]);
    const auto cols = static_cast<uint32_t>(p.tensors[row.tensors[1]].dims[0]);
    const uint32_t words[] = {0, rows, tile * 128, std::min(128U, cols - tile * 128)};
    std::ranges::copy(words, i.payload);
    return 4;
  }

  void read_limits(const Json& l) {
    PlanLimits& limits = out_.limits;
    limits.name = l.value("name", "");
    limits.max_workers = l.value("max_workers", 0U);
    limits.max_queue_depth = l.value("max_queue_depth", 0U);
    limits.smem_bytes = l.value("smem_bytes", 0U);
    limits.num_pages = l.value("num_pages", 0U);
    limits.page_bytes = l.value("page_bytes", 0U);
    limits.scratch_bytes = l.value("scratch_bytes", 0U);
  }

  const Json& json_;
  TextPlan out_;
  std::vector<std::vector<Line>> queues_;
  std::map<std::string, uint32_t> tensor_ids_, stage_ids_, event_ids_;
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> task_ids_;
};

}  // namespace

Result<TextPlan> parse_text_plan(std::string_view text) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_object()) return bad("not a JSON object");
  return Builder(json).run();
}

}  // namespace megartp::test
