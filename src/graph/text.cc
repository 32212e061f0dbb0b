#include "graph/text.h"

#include <fmt/format.h>

namespace megartp {
namespace {

// Bytes of the well-formed UTF-8 character at `pos`, 0 if there is none.
size_t utf8_length(std::string_view s, size_t pos) {
  const auto byte = [&](size_t i) { return i < s.size() ? static_cast<unsigned char>(s[i]) : 0U; };
  const auto is_tail = [&](size_t i, unsigned lo = 0x80, unsigned hi = 0xbf) { return byte(i) >= lo && byte(i) <= hi; };
  const unsigned lead = byte(pos);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return is_tail(pos + 1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    const bool second = is_tail(pos + 1, lead == 0xe0 ? 0xa0 : 0x80, lead == 0xed ? 0x9f : 0xbf);
    return second && is_tail(pos + 2) ? 3 : 0;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    const bool second = is_tail(pos + 1, lead == 0xf0 ? 0x90 : 0x80, lead == 0xf4 ? 0x8f : 0xbf);
    return second && is_tail(pos + 2) && is_tail(pos + 3) ? 4 : 0;
  }
  return 0;
}

}  // namespace

bool is_valid_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const size_t n = utf8_length(text, i);
    if (n == 0) return false;
    i += n;
  }
  return true;
}

std::string_view name_problem(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > kMaxNameBytes) return "is longer than 256 bytes";
  if (name.find('\0') != std::string_view::npos) return "holds a NUL character";
  if (!is_valid_utf8(name)) return "is not valid UTF-8";
  return "";
}

std::string quote_name(std::string_view name) {
  constexpr size_t kMaxShown = 120;
  std::string out = "'";
  for (size_t i = 0; i < name.size();) {
    if (i >= kMaxShown) return out + "...'";
    const size_t n = utf8_length(name, i);
    const auto c = static_cast<unsigned char>(name[i]);
    if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (n == 0 || c < 0x20 || c == 0x7f) {
      out += fmt::format("\\x{:02x}", c);
    } else {
      out += name.substr(i, n);
    }
    i += n == 0 ? 1 : n;
  }
  return out + "'";
}

}  // namespace megartp
