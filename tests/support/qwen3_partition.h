// Qwen3-8B as a partition graph, cut as MPK's demo for Hopper cuts it: a real graph of known counts for tests and
// benchmarks of the event compiler.
//
//   embed 1 | per layer: norm, qkv 128, attention (requests, 8), o_proj 64, norm, gate/up 128, SiLU 64, down 64 |
//   norm, lm_head 600, argmax partial 128, argmax reduce 1
//
// Norms have one task a token. Every projection splits its weight's columns and reads its activation whole; o_proj and
// down also read the residual stream.
#pragma once

#include <cstdint>

#include "partition/partition_graph.h"

namespace megartp::test {

struct Qwen3Sizes {
  int64_t tokens = 8;  // a multiple of requests
  int64_t requests = 1;
  int64_t layers = 36;
};

// MPK's figures for the whole model: 293 ops, 365 edges, 17,730 tasks for 8 tokens of one request.
PartitionGraph qwen3_8b(const Qwen3Sizes& sizes = {});

}  // namespace megartp::test
