#include "trace/viewer/viewer_page.h"

#include <algorithm>

namespace megartp::trace {

std::string viewer_page(std::string_view json) {
  const ViewerText text = viewer_text();
  size_t num_bytes = json.size() + 5 * static_cast<size_t>(std::count(json.begin(), json.end(), '<'));
  for (const auto pieces : {text.before_data, text.after_data}) {
    for (const std::string_view piece : pieces) num_bytes += piece.size();
  }
  std::string page;
  page.reserve(num_bytes);
  for (const std::string_view piece : text.before_data) page += piece;
  // In JSON '<' occurs in strings only, where an escape means the same; a script element would take "</script" for its
  // end.
  for (const char c : json) {
    if (c == '<') {
      page += "\\u003c";
    } else {
      page += c;
    }
  }
  for (const std::string_view piece : text.after_data) page += piece;
  return page;
}

}  // namespace megartp::trace
