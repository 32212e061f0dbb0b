// Runs one op family alone, tile by tile, and checks everything that its contract promises.
//
// Used by the families' tests. For both finalizer modes and several shuffled tile orders:
//   - check_instruction accepts every tile that lower() makes;
//   - a tile changes only elements inside its declared write boxes (scatter boxes cover the whole tensor);
//   - write boxes of one stage do not overlap, and together cover every output that is not named in partial_outputs;
//   - a tile reads, of tracked inputs and of workspaces, only what its read boxes name (everything else is poisoned);
//   - the result has the same bits whatever the order, the poison and the finalizer mode;
//   - the result agrees with the family's double-precision reference within calc_diff limits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ops/op_family.h"

namespace megartp::test {

// calc_diff = 1 - 2<x,y> / (|x|^2 + |y|^2); 0 when both are zero. Equal infinities are skipped; any other non-finite
// value gives infinity.
double calc_diff(const std::vector<double>& x, const std::vector<double>& y);

// Elements of a tensor as doubles (F32, BF16, F8_E4M3, I32, U8, F64, I64).
std::vector<double> to_doubles(DType dtype, const void* data, size_t count);

struct HostBuffer {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
  size_t count() const;
  template <class T>
  T* as() {
    return reinterpret_cast<T*>(bytes.data());
  }
  template <class T>
  const T* as() const {
    return reinterpret_cast<const T*>(bytes.data());
  }
};

struct OpInput {
  std::string name;
  DType dtype = DType::kF32;
  Shape shape;
  std::function<void(HostBuffer&)> fill;  // writes every element
  bool tracked = false;                   // reads of it must lie in declared boxes (activations, not weights)
  bool is_state = false;                  // the op may update it
};

struct OpCase {
  std::string kind;
  Attrs attrs;
  std::vector<OpInput> inputs;
  ShapeEnv shapes;
  double max_calc_diff = 1e-6;                     // of every output and F8/F32/BF16 state against the reference
  std::map<std::string, double> max_calc_diff_of;  // by output name ("q"), overriding
  std::vector<std::string> partial_outputs;        // outputs that the op writes only in part
  double max_byte_mismatch = 1e-3;                 // U8 states: share of bytes that may differ from the reference
  uint32_t num_sms = 0;                            // LowerContext::num_sms
};

struct OpResult {
  std::vector<HostBuffer> inputs;  // after the run (states updated)
  std::vector<HostBuffer> outputs;
  size_t num_tiles = 0;  // of all stages
  size_t num_final_tiles = 0;
};

// Runs the tiles in a shuffled order. Test failures are reported through GoogleTest.
OpResult run_op_tiles(const OpCase& op_case, FinalizerMode mode, uint64_t order_seed, uint8_t poison = 0xff);
OpResult run_op_reference(const OpCase& op_case);
// All checks of the header comment; returns the fused result.
OpResult check_op(const OpCase& op_case);

// Fillers, deterministic in their seed.
std::function<void(HostBuffer&)> fill_normal(uint64_t seed, double stddev = 1.0,
                                             double mean = 0.0);                        // F32, BF16, F8 (rounded)
std::function<void(HostBuffer&)> fill_uniform(uint64_t seed, double low, double high);  // F32, BF16, F8
std::function<void(HostBuffer&)> fill_const(double value);                              // any dtype
std::function<void(HostBuffer&)> fill_int(uint64_t seed, int64_t low, int64_t high);    // I32, U8: low <= v < high
std::function<void(HostBuffer&)> fill_values(std::vector<int64_t> values);              // I32

}  // namespace megartp::test
