// libFuzzer entry of the graph reader: whatever the text is, reading ends with a one-line error or a graph whose three
// text forms can be written and whose JSON reads back as the same graph.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "megartp/op_graph.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto graph = megartp::graph_from_json({reinterpret_cast<const char*>(data), size});
  if (!graph) {
    const std::string text = graph.error().to_string();
    if (text.empty() || text.find('\n') != std::string::npos) std::abort();
    return 0;
  }
  const std::string json = megartp::to_json(*graph);
  const auto again = megartp::graph_from_json(json);
  if (!again || !(*again == *graph) || megartp::to_json(*again) != json) std::abort();
  if (megartp::to_dot(*graph).empty() || megartp::to_mermaid(*graph).empty()) std::abort();
  return 0;
}
