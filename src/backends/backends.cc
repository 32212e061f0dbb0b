#include "backends/backend.h"

namespace megartp {

std::vector<BackendInfo> backends() {
  return {{"cpu-threads", "worker threads walk the instruction tensor", true},
          {"cpu-reference", "whole ops in double precision: the oracle", true}};
}

}  // namespace megartp
