// MegaParams of one executable: addresses and tensor maps on top of an image.
#pragma once

#include "abi/mega.h"
#include "backends/cuda_common/device_tensors.h"
#include "backends/cuda_mega/mega_image.h"

namespace megartp::cuda_mega {

// Specs, row maps, sizes: what stays the same whatever the addresses.
void fill_static_params(const KernelPlan& plan, const MegaImage& image, abi::MegaParams& params);
// Operand addresses and tensor maps. kInvalidArgument naming the tensor that the TMA unit cannot address.
Status fill_addresses(const cuda::DriverApi& api, const MegaImage& image, const cuda::DeviceTensors& tensors,
                      abi::MegaParams& params);

}  // namespace megartp::cuda_mega
