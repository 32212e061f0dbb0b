// Inputs of attention-pre: made from a seed, or read from a safetensors file, and checked before anything runs.
//
// File names and shapes: x, residual BF16 [M, hidden]; positions I32 [M]; context_lens I32 [requests, new] (or I32 [M]
// together with query_start_loc I32 [requests + 1] when requests have different numbers of new tokens); block_table I32
// [requests, pages], -1 = unused; index_k_cache U8 [pages, 64 * (D + 4)]; optional mla_kv_cache U8 [pages, 64 *
// record]. Other tensors are ignored.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "megartp/dim.h"
#include "megartp/error.h"
#include "models/glm52/buffer.h"
#include "models/glm52/glm52.h"

namespace megartp::glm52 {

// Everything that a run of one layer binds besides weights and outputs, by graph tensor name: x, residual, positions,
// slot_mapping, context_lens ([M]), block_table, cos_sin, index_k_cache, mla_kv_cache. The caches are updated by a run:
// clone them for a second one.
struct Inputs {
  ShapeEnv shapes;
  std::map<std::string, Buffer, std::less<>> tensors;
};

// Seeded inputs for shapes of batch_shapes or decode_shapes. kv_len is the visible length of a request's last row (its
// own key included); rows of one request are consecutive. The caches hold quantised random keys for all earlier tokens,
// with the scales that `options` ask for; the new tokens' slots hold NaN, so that a key read before it is written
// shows. Pages are dealt in a shuffled order. Errors: kInvalidArgument from check_config, check_options or
// check_inputs.
Result<Inputs> synth_inputs(const Config& config, const Options& options, const ShapeEnv& shapes, uint64_t seed);

// Reads and checks a file. kNotFound for a missing file or tensor, kParse for anything else that is wrong in it; errors
// name the path, the tensor, and the index of a bad element.
Result<Inputs> load_inputs(const Config& config, const std::string& path);

// What both check: dtypes and shapes, M > 0, lengths from 1 to the table's reach, positions inside their length, pages
// inside the cache, no two new tokens in one slot, slot_mapping consistent with the table, no NaN code and no bad scale
// among the visible earlier keys.
Status check_inputs(const Config& config, const Inputs& inputs);

// F32 [num_positions, rope]: rope/2 cosines, then rope/2 sines of p * theta_i, an angle in fp32; YaRN where the config
// says so.
Buffer make_cos_sin(const Config& config, int64_t num_positions);

}  // namespace megartp::glm52
