#include "plan/plan_header.h"

#include <limits>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace megartp {
namespace {

using Json = nlohmann::json;

constexpr std::array kStorages{Storage::kRuntimeArg, Storage::kWeight, Storage::kActivation, Storage::kState,
                               Storage::kOutput};

// Typed access to an object of unknown content; the first problem is kept.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
    if (!object.is_object()) fail("is not an object");
  }
  std::string text(const char* key) {
    const Json* v = find(key);
    if (v == nullptr || !v->is_string()) return fail(fmt::format("'{}' is not a string", key)), std::string{};
    return v->get<std::string>();
  }
  template <class T>
  T number(const char* key) {
    const Json* v = find(key);
    if (v == nullptr || !v->is_number_unsigned() || v->get<uint64_t>() > std::numeric_limits<T>::max())
      return fail(fmt::format("'{}' is not a number in range", key)), T{};
    return static_cast<T>(v->get<uint64_t>());
  }
  const Json& list(const char* key) {
    static const Json kEmpty = Json::array();
    const Json* v = find(key);
    if (v == nullptr || !v->is_array()) return fail(fmt::format("'{}' is not a list", key)), kEmpty;
    return *v;
  }
  const Json& object(const char* key) {
    static const Json kEmpty = Json::object();
    const Json* v = find(key);
    if (v == nullptr || !v->is_object()) return fail(fmt::format("'{}' is not an object", key)), kEmpty;
    return *v;
  }
  const Json* find(const char* key) const {
    if (!object_.is_object()) return nullptr;
    const auto it = object_.find(key);
    return it == object_.end() ? nullptr : &*it;
  }
  void fail(std::string_view what) {
    if (status_) status_ = make_error(ErrorCode::kParse, fmt::format("plan file: {}: {}", where_, what));
  }
  const Status& status() const { return status_; }

 private:
  const Json& object_;
  std::string where_;
  Status status_;
};

Json tensor_to_json(const PlanTensor& t) {
  Json j{{"name", t.name},
         {"dtype", to_string(t.dtype)},
         {"dims", t.dims},
         {"storage", to_string(t.storage)},
         {"num_bytes", t.num_bytes}};
  if (t.arena_offset != kExternal) j["arena_offset"] = t.arena_offset;
  return j;
}

Result<PlanTensor> parse_tensor(const Json& json, size_t idx) {
  Fields f(json, fmt::format("tensor {}", idx));
  PlanTensor t;
  t.name = f.text("name");
  const std::string dtype = f.text("dtype");
  if (const auto d = parse_dtype(dtype))
    t.dtype = *d;
  else
    f.fail(fmt::format("unknown dtype '{}'", dtype));
  for (const Json& d : f.list("dims")) {
    if (!d.is_number_unsigned() || d.get<uint64_t>() > INT32_MAX) {
      f.fail("a dimension is not a number in range");
      break;
    }
    t.dims.push_back(d.get<int64_t>());
  }
  const std::string storage = f.text("storage");
  bool known = false;
  for (const Storage s : kStorages)
    if (to_string(s) == storage) t.storage = s, known = true;
  if (!known) f.fail(fmt::format("unknown storage '{}'", storage));
  t.num_bytes = f.number<uint64_t>("num_bytes");
  if (f.find("arena_offset") != nullptr) t.arena_offset = f.number<uint64_t>("arena_offset");
  if (!f.status()) return tl::unexpected(f.status().error());
  return t;
}

Status parse_shapes(Fields& f, ShapeEnv& shapes) {
  Fields s(f.object("shapes"), "shapes");
  for (const auto& [name, value] : s.object("symbols").items()) {
    if (!value.is_number_unsigned() ||
        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()))
      s.fail(fmt::format("symbol '{}' is not a number in range", name));
    else
      shapes.set(name, value.get<int64_t>());
  }
  for (const Json& request : s.list("requests")) {
    Fields r(request, "request");
    const auto rows = r.number<uint32_t>("rows");
    const auto kv = r.number<uint32_t>("kv");
    if (!r.status()) return r.status();
    if (rows > INT32_MAX || kv > INT32_MAX) s.fail("a request is out of range");
    shapes.requests.push_back({static_cast<int32_t>(rows), static_cast<int32_t>(kv)});
  }
  return s.status();
}

}  // namespace

std::string plan_header_to_json(const KernelPlan& plan) {
  Json requests = Json::array();
  for (const RequestShape& r : plan.shapes.requests) requests.push_back({{"rows", r.num_rows}, {"kv", r.kv_len}});
  Json symbols = Json::object();
  for (const auto& [name, value] : plan.shapes.symbols) symbols[name] = value;
  Json tensors = Json::array();
  for (const PlanTensor& t : plan.tensors) tensors.push_back(tensor_to_json(t));
  Json rows = Json::array();
  for (const PlanOperandRow& r : plan.operand_rows) rows.push_back({{"name", r.name}, {"op", r.op}});
  const Json header{{"graph_name", plan.graph_name},
                    {"target", plan.target},
                    {"packer", plan.packer},
                    {"finalizer", plan.finalizer},
                    {"graph_hash", plan.graph_hash},
                    {"shapes", {{"symbols", symbols}, {"requests", requests}}},
                    {"num_tasks", plan.num_tasks},
                    {"num_workers", plan.num_workers},
                    {"queue_depth", plan.queue_depth},
                    {"workspace_bytes", plan.workspace_bytes},
                    {"num_events", plan.events.size()},
                    {"num_joins", plan.join_counts.size()},
                    {"num_specs", plan.specs.size()},
                    {"operand_rows", rows},
                    {"tensors", tensors}};
  // Names that are not UTF-8 lose their odd bytes rather than throw.
  return header.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<PlanHeader> parse_plan_header(std::string_view json_text, KernelPlan& plan) {
  const Json json = Json::parse(json_text, nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return make_error(ErrorCode::kParse, "plan file: the header is not JSON");
  Fields f(json, "header");
  plan.graph_name = f.text("graph_name");
  plan.target = f.text("target");
  plan.packer = f.text("packer");
  plan.finalizer = f.text("finalizer");
  plan.graph_hash = f.text("graph_hash");
  plan.num_tasks = f.number<uint32_t>("num_tasks");
  plan.num_workers = f.number<uint32_t>("num_workers");
  plan.queue_depth = f.number<uint32_t>("queue_depth");
  plan.workspace_bytes = f.number<uint64_t>("workspace_bytes");
  PlanHeader header;
  header.num_events = f.number<uint32_t>("num_events");
  header.num_joins = f.number<uint32_t>("num_joins");
  header.num_specs = f.number<uint32_t>("num_specs");
  MEGARTP_TRY(parse_shapes(f, plan.shapes));
  const Json& tensors = f.list("tensors");
  plan.tensors.reserve(tensors.size());
  for (const Json& t : tensors) plan.tensors.push_back(MEGARTP_TRY(parse_tensor(t, plan.tensors.size())));
  const Json& rows = f.list("operand_rows");
  plan.operand_rows.reserve(rows.size());
  for (const Json& r : rows) {
    Fields row(r, fmt::format("operand row {}", plan.operand_rows.size()));
    PlanOperandRow out;
    out.name = row.text("name");
    out.op = row.text("op");
    MEGARTP_TRY(Status(row.status()));
    plan.operand_rows.push_back(std::move(out));
  }
  if (!f.status()) return tl::unexpected(f.status().error());
  return header;
}

}  // namespace megartp
