#include "backends/bindings.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

namespace megartp {

AlignedBytes::AlignedBytes(size_t num_bytes) : size_(num_bytes) {
  if (num_bytes == 0) return;
  data_ = static_cast<std::byte*>(::operator new(num_bytes, std::align_val_t{64}));
  std::memset(data_, 0, num_bytes);
}

AlignedBytes::~AlignedBytes() {
  if (data_ != nullptr) ::operator delete(data_, std::align_val_t{64});
}

AlignedBytes::AlignedBytes(AlignedBytes&& o) noexcept
    : data_(std::exchange(o.data_, nullptr)), size_(std::exchange(o.size_, 0)) {}

AlignedBytes& AlignedBytes::operator=(AlignedBytes&& o) noexcept {
  std::swap(data_, o.data_);
  std::swap(size_, o.size_);
  return *this;
}

Bindings::Bindings(std::vector<BoundTensor> tensors) : tensors_(std::move(tensors)) {
  for (size_t i = 0; i < tensors_.size(); ++i) by_name_.emplace(tensors_[i].name, i);
}

Status Bindings::bind(std::string_view name, void* data, size_t num_bytes) {
  const auto it = by_name_.find(name);
  if (it == by_name_.end())
    return make_error(ErrorCode::kNotFound, "bind: the plan has no tensor '" + std::string(name) + "'");
  BoundTensor& t = tensors_[it->second];
  if (!t.external)
    return make_error(
        ErrorCode::kInvalidArgument,
        "bind: tensor '" + t.name + "' lives in the workspace; only arguments, weights, states and outputs are bound");
  if (num_bytes != t.num_bytes)
    return make_error(ErrorCode::kInvalidArgument, "bind: tensor '" + t.name + "' needs " +
                                                       std::to_string(t.num_bytes) + " bytes, got " +
                                                       std::to_string(num_bytes));
  if (data == nullptr || reinterpret_cast<uintptr_t>(data) % size_in_bytes(t.dtype) != 0)
    return make_error(ErrorCode::kInvalidArgument,
                      "bind: tensor '" + t.name + "' got a " + (data == nullptr ? "null" : "misaligned") + " address");
  t.address = data;
  return {};
}

Status Bindings::check_complete() const {
  for (const BoundTensor& t : tensors_)
    if (t.address == nullptr)
      return make_error(ErrorCode::kInvalidArgument,
                        "run: " + std::string(to_string(t.storage)) + " '" + t.name + "' is not bound");
  return {};
}

void* Bindings::address(std::string_view name) const {
  const auto it = by_name_.find(name);
  return it == by_name_.end() ? nullptr : tensors_[it->second].address;
}

void Bindings::poison(std::byte byte) {
  for (const BoundTensor& t : tensors_) {
    const bool written = t.storage == Storage::kActivation || t.storage == Storage::kOutput;
    if (written && t.address != nullptr) std::memset(t.address, static_cast<int>(byte), t.num_bytes);
  }
}

}  // namespace megartp
