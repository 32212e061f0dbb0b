#include "backends/cuda_mega/mega_params.h"

#include <algorithm>
#include <cstring>

#include "backends/cuda_common/tensor_map.h"

namespace megartp::cuda_mega {

void fill_static_params(const KernelPlan& plan, const MegaImage& image, abi::MegaParams& params) {
  for (size_t i = 0; i < image.specs.size(); ++i) std::ranges::copy(image.specs[i], params.specs[i]);
  for (auto& row : params.row_maps) std::ranges::fill(row, uint8_t{abi::kMegaNoMap});
  for (size_t i = 0; i < image.row_maps.size(); ++i) std::ranges::copy(image.row_maps[i], params.row_maps[i]);
  params.depth = plan.queue_depth;
  params.num_workers = plan.num_workers;
  params.page_uses = image.page_uses;
  params.lose_signals_of = abi::kNoTask;
  params.lose_results_of = abi::kNoTask;
}

Status fill_addresses(const cuda::DriverApi& api, const MegaImage& image, const cuda::DeviceTensors& tensors,
                      abi::MegaParams& params) {
  for (const MegaOperand& o : image.operands) params.operands[o.row][o.slot] = tensors.address(o.tensor, o.layout);
  for (size_t i = 0; i < image.maps.size(); ++i) {
    const MegaTensorMap& m = image.maps[i];
    const auto map = cuda::encode_tensor_map(api, m.spec, tensors.address(m.tensor));
    if (!map) return tl::unexpected(Error(map.error()).with("tensor", image.tensors[m.tensor].tensor.name));
    static_assert(sizeof(*map) == sizeof(abi::MegaMap));
    std::memcpy(&params.maps[i], &*map, sizeof(*map));
  }
  return {};
}

}  // namespace megartp::cuda_mega
