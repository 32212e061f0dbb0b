#include "bench/weight_copies.h"

#include "backends/cuda_common/weight_packing.h"

namespace megartp::bench {

WeightCopies::~WeightCopies() {
  if (!context_) return;  // moved from
  const cuda::Context::Scope scope(*context_);
  plain_.clear();
  packed_.clear();
}

Result<WeightCopies::Copies> WeightCopies::upload(std::span<const std::byte> data) {
  const cuda::DriverApi& api = context_->api();
  Copies copies;
  for (uint32_t i = 0; i < num_copies_; ++i) {
    copies.push_back(MEGARTP_TRY(cuda::DeviceBuffer::allocate(api, data.size())));
    MEGARTP_CUDA_TRY(api, memcpy_htod(copies.back().get(), data.data(), data.size()));
  }
  return copies;
}

Result<const WeightCopies::Copies*> WeightCopies::plain(const std::string& name) {
  const auto it = plain_.find(name);
  if (it != plain_.end()) return &it->second;
  const glm52::Weights::Item* item = weights_->find(name);
  if (item == nullptr) return make_error(ErrorCode::kNotFound, "the checkpoint has no weight '" + name + "'");
  return &(plain_[name] = MEGARTP_TRY(upload({item->data, item->num_bytes})));
}

Result<const WeightCopies::Copies*> WeightCopies::packed(const std::string& name, int64_t n, int64_t k) {
  const auto it = packed_.find(name);
  if (it != packed_.end()) return &it->second;
  const glm52::Weights::Item* item = weights_->find(name);
  if (item == nullptr) return make_error(ErrorCode::kNotFound, "the checkpoint has no weight '" + name + "'");
  std::vector<std::byte> bytes(cuda::packed_weight_bytes(n, k));
  MEGARTP_TRY(cuda::pack_weight({item->data, item->num_bytes}, n, k, bytes));
  return &(packed_[name] = MEGARTP_TRY(upload(bytes)));
}

Status WeightCopies::bind(cuda::DeviceExecutable& executable, uint32_t i) {
  const cuda::Context::Scope scope(*context_);
  for (const cuda::TensorUse& use : executable.tensors().uses()) {
    const ConcreteTensor& t = use.tensor;
    if (use.is_private || t.storage != Storage::kWeight) continue;
    const cuda::DeviceTensor* device = executable.tensors().find(t.name);
    if (device == nullptr || !device->is_used()) continue;
    if (device->is_used_plain) {
      const Copies& copies = *MEGARTP_TRY(plain(t.name));
      MEGARTP_TRY(executable.bind(t.name, copies[i].get(), copies[i].size()));
    }
    if (device->num_packed_bytes > 0) {
      const Copies& copies = *MEGARTP_TRY(packed(t.name, t.dims[0], t.dims[1]));
      MEGARTP_TRY(executable.bind_packed(t.name, copies[i].get(), copies[i].size()));
    }
  }
  return {};
}

Status WeightCopies::make_ready(cuda::DeviceExecutable& executable, uint32_t i, const glm52::Inputs& inputs) {
  MEGARTP_TRY(bind(executable, i));
  for (const auto& [name, buffer] : inputs.tensors) {
    const cuda::DeviceTensor* t = executable.tensors().find(name);
    if (t != nullptr && t->is_used())
      MEGARTP_TRY(executable.upload(name, std::span<const std::byte>(buffer.bytes.get(), buffer.num_bytes)));
  }
  MEGARTP_TRY(executable.allocate_unbound());
  return executable.prepare();
}

uint64_t WeightCopies::bytes_per_copy() const {
  uint64_t bytes = 0;
  for (const auto* map : {&plain_, &packed_})
    for (const auto& [name, copies] : *map) bytes += copies.front().size();
  return bytes;
}

}  // namespace megartp::bench
