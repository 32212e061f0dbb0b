// For tests: device families of one or two kernels an op, which touch what the op's schema says.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "launch/launch_plan.h"

namespace megartp::test {

// What the kernels of FakeFamily include: they compile, and do nothing.
inline constexpr std::string_view kFakeHeader = R"text(#pragma once
namespace fake {
template <int kPointers>
struct Params {
  void* pointers[kPointers];
};
template <int kPointers, int kWait>
__global__ void nothing(const __grid_constant__ Params<kPointers> p) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  if constexpr (kWait >= 0) asm volatile("griddepcontrol.wait;" ::: "memory");
}
}  // namespace fake
)text";

inline bool is_constant(const DeviceContext& c, TensorId id) {
  const Storage s = c.tensor(id).storage;
  return s == Storage::kWeight || s == Storage::kRuntimeArg;
}

// Adds a pointer parameter and what is done with it.
inline void touch(DeviceKernel& k, TensorId tensor, bool is_write, bool before_wait = false,
                  DeviceAccess::Means means = DeviceAccess::Means::kGeneric) {
  const auto param = static_cast<uint32_t>(k.params.size());
  k.params.push_back(DeviceParam::pointer(fmt::format("p{}", param), tensor));
  k.accesses.push_back({param, is_write, before_wait, means});
}

class FakeFamily final : public DeviceFamily {
 public:
  // `split`: a gemm that leaves partials, counts tickets, and a finalizer.
  FakeFamily(std::string kind, bool split) : kind_(std::move(kind)), split_(split) {}
  std::string_view kind() const override { return kind_; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override {
    const OpInfo& op = c.op();
    std::vector<DeviceKernel> list(split_ ? 2 : 1);
    for (DeviceKernel& k : list) {
      k.grid = {132, 1, 1};
      k.block = 128;
    }
    DeviceKernel& first = list.front();
    DeviceKernel& last = list.back();
    first.name = split_ ? op.name + ".gemm" : op.name;
    for (const TensorId id : op.inputs) {
      if (std::ranges::find(op.updates, id) != op.updates.end()) continue;
      touch(first, id, false, is_constant(c, id),
            is_constant(c, id) ? DeviceAccess::Means::kTma : DeviceAccess::Means::kGeneric);
      if (c.tensor(id).storage == Storage::kWeight) first.weight_bytes += weight_bytes(c.tensor(id));
    }
    if (split_) {
      last.name = op.name + ".finalize";
      const TensorId partials = c.add_workspace("partials", DType::kF32, {4, 16, 128});
      const TensorId tickets = c.add_workspace("tickets", DType::kI32, {16}, true);
      touch(first, partials, true);
      touch(first, tickets, true);
      touch(last, partials, false);
    }
    for (const TensorId id : op.outputs) touch(last, id, true);
    for (const TensorId id : op.updates) touch(last, id, true);
    for (DeviceKernel& k : list) {
      k.header = "fake.cuh";
      k.entry = fmt::format("fake::nothing<{}, $WAIT>", k.params.size());
    }
    return list;
  }

 private:
  static uint64_t weight_bytes(const ConcreteTensor& t) {
    uint64_t bytes = size_in_bytes(t.dtype);
    for (const int64_t d : t.dims) bytes *= static_cast<uint64_t>(d);
    return bytes;
  }
  std::string kind_;
  bool split_;
};

// Families of every op of attention-pre; B0 (qkv_a) in two kernels.
class FakeFamilies {
 public:
  FakeFamilies() {
    for (const char* kind : {"add_rmsnorm_quant", "qkv_a", "head_gate", "indexer_k", "indexer_q", "main_q", "q_absorb",
                             "indexer_score", "add", "rmsnorm", "gemm"})
      set(kind, std::make_shared<FakeFamily>(kind, std::string_view(kind) == "qkv_a"));
  }
  void set(const std::string& kind, std::shared_ptr<const DeviceFamily> family) { families_[kind] = std::move(family); }
  void remove(const std::string& kind) { families_.erase(kind); }
  // Keeps the families alive.
  FindDeviceFamily finder() const {
    return [families = families_](std::string_view kind) -> const DeviceFamily* {
      const auto it = families.find(std::string(kind));
      return it == families.end() ? nullptr : it->second.get();
    };
  }

 private:
  std::map<std::string, std::shared_ptr<const DeviceFamily>> families_;
};

// A family made of a lambda.
class LambdaFamily final : public DeviceFamily {
 public:
  using Body = std::function<Result<std::vector<DeviceKernel>>(DeviceContext&)>;
  LambdaFamily(std::string kind, Body body) : kind_(std::move(kind)), body_(std::move(body)) {}
  std::string_view kind() const override { return kind_; }
  Result<std::vector<DeviceKernel>> kernels(DeviceContext& c) const override { return body_(c); }

 private:
  std::string kind_;
  Body body_;
};

}  // namespace megartp::test
