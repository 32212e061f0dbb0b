// What the writer and the reader of a graph's JSON form share.
//
// Used by graph_json_write.cc and graph_json_read.cc; everybody else calls to_json and graph_from_json of
// megartp/op_graph.h. The version changes whenever an older reader would misunderstand a newer file.
#pragma once

#include <cstdint>

namespace megartp {

inline constexpr int64_t kGraphFormatVersion = 1;

}  // namespace megartp
