// Names of a layer's tensors as checkpoints of Hugging Face have them; also those of the graph's weights.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace megartp::glm52 {

// "model.layers.3.<tensor>" and "model.layers.3.self_attn.<tensor>"
std::string layer_name(int64_t layer, std::string_view tensor);
std::string attention_name(int64_t layer, std::string_view tensor);

}  // namespace megartp::glm52
