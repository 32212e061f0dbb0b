// The layers with known outputs under tests/golden, and one run of such a layer on a backend.
//
// Used by the conformance tests. A run's outputs come under the names of tests/reference, decoded to doubles where a
// caller compares numbers, as bytes where it compares bits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "backends/backend.h"
#include "io/safetensors.h"
#include "megartp/error.h"
#include "megartp/op_graph.h"
#include "models/glm52/glm52.h"
#include "models/glm52/inputs.h"
#include "models/glm52/weights.h"

namespace megartp::test {

// One entry of tests/golden/fp8_path/cases.json, loaded.
struct Fixture {
  std::string name;
  int64_t layer = 0;
  glm52::Config config;
  glm52::Options options;
  glm52::Inputs inputs;
  glm52::Weights weights;
  SafetensorsFile expect;
  OpGraph graph{""};
  bool has_indexer = false;
};
// Names in the order of the file.
Result<std::vector<std::string>> fixture_names();
Result<std::shared_ptr<const Fixture>> load_fixture(std::string_view name);
// Of tests/golden: where the source was, or else below the working directory, for binaries that were built elsewhere.
std::string golden_path(std::string_view file);

// A tensor by name: dims and bytes.
struct Outcome {
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  std::vector<std::byte> bytes;
  std::vector<double> doubles() const;
};
using Outcomes = std::map<std::string, Outcome, std::less<>>;

// Binds, poisons, runs, and collects: residual, q_out, logits, index_k_cache, mla_kv_cache (as bound), and, made from
// intermediates and caches, kv_latent, k_pe, gate, index_q and index_k (dequantised). A layer without an indexer has no
// gate, index_* and logits.
Result<Outcomes> run_fixture(const Fixture& fixture, Executable& executable);

// calc_diff of the expectation against the leading columns of the outcome; infinity when shapes differ. U8 tensors must
// be caches: their records at the new tokens' slots are decoded and compared; scales must agree to a BF16 rounding and
// all other bytes must be equal (else infinity).
double diff(const Fixture& fixture, std::string_view name, const Outcome& actual, const TensorView& expected);

// How far a tensor is from what is expected of it, and how far it may be.
struct Difference {
  std::string tensor;
  double measured = 0, limit = 0;
};
// Of every expected tensor; `residual` must be equal, others within `limit`. A tensor that is missing, or logits that
// are finite where nothing is visible or the other way round, are infinitely far.
std::vector<Difference> expected_differences(const Fixture& fixture, const Outcomes& outcomes, double limit);
// Of tiny_a from transformers' values, with the limits of tests/golden/README.md.
Result<std::vector<Difference>> golden_differences(const Fixture& fixture, const Outcomes& outcomes);

}  // namespace megartp::test
