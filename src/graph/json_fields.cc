#include "graph/json_fields.h"

#include <algorithm>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "graph/text.h"

namespace megartp {
namespace {

using Json = nlohmann::ordered_json;

// Watches the parser for what the JSON library lets pass: repeated keys, huge objects, deep nesting. Nothing after the
// first problem is stored.
class ParseGuard {
 public:
  explicit ParseGuard(const JsonLimits& limits) : limits_(limits) {}

  bool operator()(int depth, Json::parse_event_t event, const Json& parsed) {
    if (depth > limits_.max_depth) {
      note(fmt::format("nested deeper than {} levels", limits_.max_depth));
      return false;
    }
    if (event == Json::parse_event_t::object_start) keys_.emplace_back();
    if (event == Json::parse_event_t::object_end && !keys_.empty()) keys_.pop_back();
    if (event == Json::parse_event_t::key && !keys_.empty()) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!keys_.back().insert(key).second) note("repeated key " + quote_name(key));
      if (keys_.back().size() > limits_.max_keys)
        note(fmt::format("an object with more than {} keys", limits_.max_keys));
    }
    return problem_.empty();
  }
  const std::string& problem() const { return problem_; }

 private:
  void note(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }
  JsonLimits limits_;
  std::vector<std::set<std::string>> keys_;  // of the objects that are open
  std::string problem_;
};

}  // namespace

tl::unexpected<Error> malformed_json(std::string_view where, std::string message) {
  return tl::unexpected(
      Error{ErrorCode::kParse, std::move(message), {{"at", std::string(where.empty() ? "file" : where)}}});
}

Result<Json> parse_json(std::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return malformed_json("file", fmt::format("{} bytes, more than the limit of {}", text.size(), limits.max_bytes));
  try {
    ParseGuard guard(limits);
    Json root = Json::parse(text.begin(), text.end(),
                            [&guard](int depth, Json::parse_event_t e, Json& v) { return guard(depth, e, v); });
    if (!guard.problem().empty()) return malformed_json("file", guard.problem());
    return root;
  } catch (const nlohmann::json::exception& e) {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string_view what = e.what();
    if (const size_t end = what.find("] "); end != std::string_view::npos) what.remove_prefix(end + 2);
    std::string shown = quote_name(what);
    return malformed_json("file", "not JSON: " + shown.substr(1, shown.size() - 2));
  }
}

std::optional<int64_t> json_integer(const Json& value) {
  if (value.is_number_unsigned()) {
    const auto u = value.get<uint64_t>();
    if (u > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) return std::nullopt;
    return static_cast<int64_t>(u);
  }
  if (value.is_number_integer()) return value.get<int64_t>();
  return std::nullopt;
}

Result<JsonFields> JsonFields::of(const Json& value, std::string where, std::span<const std::string_view> required,
                                  std::span<const std::string_view> optional) {
  if (!value.is_object()) return malformed_json(where, "expected an object");
  for (const auto& [key, unused] : value.items()) {
    const std::string& name = key;
    const auto is_key = [&name](std::string_view k) { return k == name; };
    if (std::none_of(required.begin(), required.end(), is_key) &&
        std::none_of(optional.begin(), optional.end(), is_key))
      return malformed_json(where, "unknown key " + quote_name(key));
  }
  for (const std::string_view key : required)
    if (!value.contains(key)) return malformed_json(where, fmt::format("key '{}' is missing", key));
  return JsonFields(value, std::move(where));
}

std::string JsonFields::path(std::string_view key) const {
  return where_.empty() ? std::string(key) : fmt::format("{}.{}", where_, key);
}

const Json* JsonFields::find(std::string_view key) const {
  const auto it = value_->find(key);
  return it == value_->end() ? nullptr : &*it;
}

Result<std::string> JsonFields::string(std::string_view key) const {
  const Json& v = *find(key);
  if (!v.is_string()) return malformed_json(path(key), "expected a string");
  return v.get_ref<const std::string&>();
}

Result<const Json*> JsonFields::array(std::string_view key) const {
  const Json& v = *find(key);
  if (!v.is_array()) return malformed_json(path(key), "expected an array");
  return &v;
}

Result<bool> JsonFields::boolean(std::string_view key) const {
  const Json* v = find(key);
  if (v == nullptr) return false;
  if (!v->is_boolean()) return malformed_json(path(key), "expected true or false");
  return v->get<bool>();
}

Result<std::vector<std::string>> JsonFields::names(std::string_view key) const {
  std::vector<std::string> out;
  if (find(key) == nullptr) return out;
  const Json& list = *MEGARTP_TRY(array(key));
  if (list.size() > kMaxListItems)
    return malformed_json(path(key), fmt::format("{} items, at most {}", list.size(), kMaxListItems));
  for (const Json& v : list) {
    if (!v.is_string()) return malformed_json(path(key), "expected an array of names");
    out.push_back(v.get_ref<const std::string&>());
  }
  return out;
}

}  // namespace megartp
