// Strict reading of JSON objects: what the readers of operator graphs and of partition graphs share.
//
// Every error has code kParse and a context entry "at" with the place ("ops[3].inputs"). Invariant: a message is one
// line of valid UTF-8, whatever the text holds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "megartp/error.h"

namespace megartp {

tl::unexpected<Error> malformed_json(std::string_view where, std::string message);

struct JsonLimits {
  size_t max_bytes = size_t{64} << 20;
  int max_depth = 8;
  size_t max_keys = 64;  // of one object; the JSON library looks keys up one by one
};

// Parses a whole text. Beyond what the JSON library refuses (with line and column), repeated keys and whatever exceeds
// the limits are errors.
Result<nlohmann::ordered_json> parse_json(std::string_view text, const JsonLimits& limits = {});

// The value when it is an integer that fits.
std::optional<int64_t> json_integer(const nlohmann::ordered_json& value);

// One object: every key must be known, and every required one present. Refers to the value that it was made of.
class JsonFields {
 public:
  using Json = nlohmann::ordered_json;
  static constexpr size_t kMaxListItems = 1U << 16;  // of names(): far above any use, far below trouble

  static Result<JsonFields> of(const Json& value, std::string where, std::span<const std::string_view> required,
                               std::span<const std::string_view> optional = {});

  const std::string& where() const { return where_; }
  std::string path(std::string_view key) const;
  const Json* find(std::string_view key) const;

  // For keys that are required:
  Result<std::string> string(std::string_view key) const;
  Result<const Json*> array(std::string_view key) const;
  // An absent key is false.
  Result<bool> boolean(std::string_view key) const;
  // A list of names; an absent optional key is an empty list.
  Result<std::vector<std::string>> names(std::string_view key) const;

 private:
  JsonFields(const Json& value, std::string where) : value_(&value), where_(std::move(where)) {}
  const Json* value_;
  std::string where_;
};

}  // namespace megartp
