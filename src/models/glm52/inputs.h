// Inputs of attention-pre: made from a seed, or read from a safetensors file, and checked before anything runs.
//
// File names and shapes: x, residual BF16 [M, hidden]; positions I32 [M]; context_lens I32 [requests, new] (or I32 [M] together
// with query_start_loc I32 [requests + 1] when requests have different numbers of new tokens); block_table I32 [requests, pages],
// -1 = unused; index_k_cache U8 [pages, 64 * (D + 4)]; optional mla_kv_cache U8 [pages, 64 * record].
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/safetensors.h"
#include "megartp/dim.h"
#include "megartp/error.h"
#include "models/glm52/glm52.h"

namespace megartp::glm52 {

// 64-byte aligned bytes with dtype and dims.
struct Buffer {
  DType dtype = DType::kU8;
  std::vector<int64_t> dims;
  std::shared_ptr<std::byte[]> bytes;  // aligned
  size_t num_bytes = 0;
  template <class T>
  T* as() const {
    return reinterpret_cast<T*>(bytes.get());
  }
  static Buffer make(DType dtype, std::vector<int64_t> dims);  // zeroed
  Buffer clone() const;
};

// Everything that a run binds besides weights and outputs, by graph tensor name: x, residual, positions, slot_mapping,
// context_lens ([M]), block_table, cos_sin, index_k_cache, mla_kv_cache.
struct Inputs {
  ShapeEnv shapes;
  std::map<std::string, Buffer, std::less<>> tensors;
};

// `kv` is the visible length of each request's last row (its own key included); rows of one request are consecutive. Caches hold
// quantised random keys for all earlier tokens; pages are dealt in a shuffled order.
Result<Inputs> synth_inputs(const Config& config, const Options& options, const ShapeEnv& shapes, uint64_t seed);
Result<Inputs> load_inputs(const Config& config, const Options& options, const std::string& path);
// What load_inputs checks: lengths from 1 to the table's reach, positions inside it, pages inside the cache, no page shared by two
// new tokens' slots, no NaN code among the visible keys.
Status check_inputs(const Config& config, const Inputs& inputs);
// [POS, rope] table, fp32 angles; YaRN where the config says so.
Buffer make_cos_sin(const Config& config, int64_t num_positions);

// Weights of one layer bound from a checkpoint, zero-copy where aligned.
struct Weights {
  std::shared_ptr<SafetensorsFile> file;
  struct Item {
    std::string graph_tensor;
    const std::byte* data;
    size_t num_bytes;
  };
  std::vector<Item> items;
  std::vector<Buffer> copies;  // of unaligned tensors
};
// Checks names, dtypes, shapes, and scans for NaN codes (FP8) and non-finite or non-positive scales.
Result<Weights> load_weights(const Config& config, int64_t layer, const std::string& path, bool scan_values = true);

// Writes a seeded checkpoint for some layers: e4m3 weights whose 128 x 128 block scales vary, few zeros, no NaN codes; BF16 norms
// near one and gate weights. The same seed gives the same bytes for a layer whatever other layers are asked for.
Status synth_weights(const Config& config, const std::vector<int64_t>& layers, uint64_t seed, const std::string& path,
                     const std::function<void(uint64_t, uint64_t)>& progress = {});

}  // namespace megartp::glm52
