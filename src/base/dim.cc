#include "megartp/dim.h"

#include <charconv>
#include <limits>

namespace megartp {
namespace {

bool is_identifier(std::string_view s) {
  if (s.empty() || s.size() > 32) return false;
  for (size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '*';
    if (!letter && !(i > 0 && c >= '0' && c <= '9')) return false;
  }
  return true;
}

bool parse_int(std::string_view s, int64_t& out) {
  const auto [end, ec] = std::from_chars(s.data(), s.data() + s.size(), out);
  return ec == std::errc{} && end == s.data() + s.size();
}

Error bad_dim(std::string_view text) {
  return Error{ErrorCode::kParse, "malformed dimension '" + std::string(text) + "'", {}};
}

}  // namespace

std::string to_string(const Dim& dim) {
  if (dim.is_const()) return std::to_string(dim.value);
  if (dim.align == 1) return dim.symbol;
  return "round_up(" + dim.symbol + ", " + std::to_string(dim.align) + ")";
}

std::string to_string(const Shape& shape) {
  std::string s = "[";
  for (size_t i = 0; i < shape.size(); ++i) s += (i == 0 ? "" : ", ") + to_string(shape[i]);
  return s + "]";
}

std::string to_string(const std::vector<int64_t>& dims) {
  std::string s = "[";
  for (size_t i = 0; i < dims.size(); ++i) s += (i == 0 ? "" : ", ") + std::to_string(dims[i]);
  return s + "]";
}

Result<Dim> parse_dim(std::string_view text) {
  int64_t value = 0;
  if (parse_int(text, value)) {
    if (value < 0) return tl::unexpected(bad_dim(text));
    return Dim(value);
  }
  if (is_identifier(text)) return Dim::sym(text);
  constexpr std::string_view kPrefix = "round_up(";
  if (text.starts_with(kPrefix) && text.ends_with(")")) {
    const std::string_view inner = text.substr(kPrefix.size(), text.size() - kPrefix.size() - 1);
    const size_t comma = inner.find(", ");
    if (comma != std::string_view::npos) {
      const std::string_view symbol = inner.substr(0, comma);
      if (is_identifier(symbol) && parse_int(inner.substr(comma + 2), value) && value > 1 && value <= (1 << 20))
        return Dim::sym(symbol, value);
    }
  }
  return tl::unexpected(bad_dim(text));
}

Result<int64_t> ShapeEnv::eval(const Dim& dim) const {
  if (dim.is_const()) return dim.value;
  const auto it = symbols.find(dim.symbol);
  if (it == symbols.end()) return make_error(ErrorCode::kInvalidArgument, "symbol '" + dim.symbol + "' has no value");
  const int64_t v = it->second;
  if (dim.align < 1)
    return make_error(ErrorCode::kInvalidArgument,
                      "symbol '" + dim.symbol + "' is rounded up to a multiple of " + std::to_string(dim.align));
  if (v < 0 || v > std::numeric_limits<int64_t>::max() - dim.align)
    return make_error(ErrorCode::kInvalidArgument,
                      "symbol '" + dim.symbol + "' has the value " + std::to_string(v) + ", out of range");
  return (v + dim.align - 1) / dim.align * dim.align;
}

Result<std::vector<int64_t>> ShapeEnv::eval(const Shape& shape) const {
  std::vector<int64_t> dims;
  dims.reserve(shape.size());
  for (const Dim& d : shape) dims.push_back(MEGARTP_TRY(eval(d)));
  return dims;
}

}  // namespace megartp
