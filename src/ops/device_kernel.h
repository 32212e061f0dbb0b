// DeviceFamily: how an op family runs on a GPU as ordinary kernels.
//
// A family's folder has a subfolder device/ with its device code (.cuh, one body for every frame) and the host side of
// it (NAME_device.cc), which says for an op with resolved dims: which kernels, in which grid, with which parameters,
// and what each kernel touches before and after its grid dependency wait. Everything else is derived: edges from the
// accesses, source from the entries, the proof from the contracts. Nothing here knows CUDA headers; a description can
// be made on any machine.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/error.h"
#include "ops/op_family.h"

namespace megartp {

// A view of a tensor for the TMA unit: the arguments of cuTensorMapEncodeTiled. Innermost dimension first.
struct TensorMapSpec {
  DType element = DType::kU8;  // kU8 (also for FP8), kBF16 or kF32
  uint32_t rank = 2;
  std::array<uint64_t, 5> dims{};     // elements
  std::array<uint64_t, 4> strides{};  // bytes, of dimensions 1 .. rank-1; multiples of 16
  std::array<uint32_t, 5> box{};      // elements
  uint32_t swizzle_bytes = 128;       // 0, 32, 64 or 128
  friend bool operator==(const TensorMapSpec&, const TensorMapSpec&) = default;
};

// How a weight lies in device memory.
enum class WeightLayout : uint8_t {
  kCheckpoint,  // as in the checkpoint: [N, K] row-major
  // FP8 [N, K] cut into pieces of 64 x 128, each 8 KiB and in the order of 128-byte-swizzled shared memory, so that one
  // bulk copy brings a piece or several neighbours along K: piece (n / 64, k / 128) stands at ((n / 64) * ceil(K / 128)
  // + k / 128) * 8192, byte (n % 64, k % 128) in it at (n % 64) * 128 + ((k % 128) ^ ((n % 8) * 16)). Ragged ends are
  // zero.
  kTiles64x128,
};

// A member of the kernel's parameter struct, in order, with C alignment: maps 128 bytes at 64, pointers 8, words 4.
struct DeviceParam {
  enum class Kind : uint8_t { kTensorMap, kPointer, kU32, kF32 };
  std::string name;
  Kind kind = Kind::kU32;
  TensorId tensor = kInvalidId;  // maps and pointers
  WeightLayout layout = WeightLayout::kCheckpoint;
  TensorMapSpec map;
  uint32_t value = 0;  // words; a float's bits

  static DeviceParam pointer(std::string name, TensorId tensor, WeightLayout layout = WeightLayout::kCheckpoint) {
    DeviceParam p;
    p.name = std::move(name);
    p.kind = Kind::kPointer;
    p.tensor = tensor;
    p.layout = layout;
    return p;
  }
  static DeviceParam tensor_map(std::string name, TensorId tensor, const TensorMapSpec& map) {
    DeviceParam p;
    p.name = std::move(name);
    p.kind = Kind::kTensorMap;
    p.tensor = tensor;
    p.map = map;
    return p;
  }
  static DeviceParam u32(std::string name, int64_t value) {
    DeviceParam p;
    p.name = std::move(name);
    p.value = static_cast<uint32_t>(value);
    return p;
  }
  static DeviceParam f32(std::string name, float value) {
    DeviceParam p;
    p.name = std::move(name);
    p.kind = Kind::kF32;
    p.value = __builtin_bit_cast(uint32_t, value);
    return p;
  }
};

// What the kernel does with the tensor of a parameter. A tensor that is read early and late has two of these.
struct DeviceAccess {
  enum class Means : uint8_t { kGeneric, kReadOnly, kTma };
  uint32_t param = 0;
  bool is_write = false;
  // Weights and arguments that nothing on the device writes may be read before the wait; with DeviceWait::kEntry and
  // kPrologue they are read after it, whatever stands here.
  bool before_wait = false;
  Means means = Means::kGeneric;
};

// How much a kernel does before it waits for its producers (the level of its programmatic edges).
enum class DeviceWait : uint8_t {
  kEntry,     // waits at once
  kPrologue,  // sets up barriers and descriptors, then waits
  kPrefetch,  // also fills its weight ring; only threads that read what producers wrote wait
};

struct DeviceKernel {
  std::string name;    // "B0.gemm"; unique within the op
  std::string header;  // "ops/qkv_a/device/qkv_a.cuh"
  // A C++ expression that names an instance of a __global__ function template with one parameter, its struct of
  // parameters.
  // "$WAIT" stands for the DeviceWait.
  std::string entry;
  std::array<uint32_t, 3> grid{1, 1, 1};
  uint32_t block = 0;
  uint32_t cluster = 1;     // CTAs along x
  uint32_t smem_bytes = 0;  // dynamic
  std::vector<DeviceParam> params;
  std::vector<DeviceAccess> accesses;
  // True: every CTA triggers its dependents when it starts. False: some time after its wait.
  bool triggers_at_start = true;
  // False: nobody waits (a kernel that reads nothing that another one writes).
  bool waits = true;
  bool has_prologue = true;  // kPrefetch has something to fetch
  uint64_t weight_bytes = 0, other_bytes = 0, flops = 0;
};

struct DeviceTarget {
  uint32_t num_sms = 132;
  uint32_t smem_per_cta = 232448;
};

class DeviceContext {
 public:
  virtual ~DeviceContext() = default;
  virtual const OpInfo& op() const = 0;
  virtual const ConcreteTensor& tensor(TensorId id) const = 0;
  virtual const ShapeEnv& shapes() const = 0;
  virtual const DeviceTarget& target() const = 0;
  // A private tensor "<op>.<name>", 256-byte aligned. Zeroed ones are set to zero once, before the first run: counters
  // that every run leaves at a multiple of what they count to.
  virtual TensorId add_workspace(std::string_view name, DType dtype, std::vector<int64_t> dims,
                                 bool zeroed = false) = 0;
  // A private I32 tensor of these words, the same in every run: what follows from the shapes, such as which rows belong
  // to which request.
  virtual TensorId add_constant(std::string_view name, std::vector<uint32_t> words) = 0;

  TensorId input(uint32_t i) const { return op().inputs[i]; }
  TensorId output(uint32_t i) const { return op().outputs[i]; }
  const std::vector<int64_t>& input_dims(uint32_t i) const { return tensor(input(i)).dims; }
  const std::vector<int64_t>& output_dims(uint32_t i) const { return tensor(output(i)).dims; }
};

class DeviceFamily {
 public:
  virtual ~DeviceFamily() = default;
  virtual std::string_view kind() const = 0;  // of the OpFamily
  // The kernels of one op in program order. kUnsupported with op, tensor and shape when the device code cannot do these
  // dims.
  virtual Result<std::vector<DeviceKernel>> kernels(DeviceContext& context) const = 0;
};

// nullptr when the family has no device code.
const DeviceFamily* find_device_family(std::string_view kind);

}  // namespace megartp
