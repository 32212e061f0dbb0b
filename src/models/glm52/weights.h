// Weights of attention-pre: bound from a safetensors checkpoint with HF names, or made from a seed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "io/safetensors.h"
#include "megartp/error.h"
#include "models/glm52/buffer.h"
#include "models/glm52/glm52.h"

namespace megartp::glm52 {

// Weights of one layer. `data` points into the mapped file, or into `copies` where the file has a tensor unaligned;
// both live as long as this object.
struct Weights {
  std::shared_ptr<SafetensorsFile> file;
  struct Item {
    std::string graph_tensor;
    const std::byte* data = nullptr;
    size_t num_bytes = 0;
  };
  std::vector<Item> items;
  std::vector<Buffer> copies;

  const Item* find(std::string_view graph_tensor) const;
};

// Binds the tensors of layer_weights(). Checks names, dtypes and shapes, and with scan_values also the values: no NaN
// code in FP8, finite norms and gate, finite positive scales. kInvalidArgument for a layer that does not exist,
// kNotFound for a missing file or tensor, kParse for a wrong one; errors name the path, the tensor, and the index of a
// bad element.
Result<Weights> load_weights(const Config& config, int64_t layer, const std::string& path, bool scan_values = true);

// Writes a seeded checkpoint for some layers, with values like those of real FP8 checkpoints: in every 128 x 128 block
// the largest code is +-448 and the others are normally distributed below it, block scales vary log-normally around a
// weight of 1/sqrt(K); no NaN codes, next to no zeros; BF16 norms near one, small biases, gate weights of
// 1/sqrt(hidden). The same seed gives the same bytes for a layer whatever other layers are asked for. `progress` as in
// write_safetensors.
Status synth_weights(const Config& config, const std::vector<int64_t>& layers, uint64_t seed, const std::string& path,
                     const std::function<void(uint64_t done, uint64_t total)>& progress = {});

}  // namespace megartp::glm52
