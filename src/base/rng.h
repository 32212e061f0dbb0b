// Deterministic random numbers for test data, synthetic weights and randomised interleaving.
//
// Rng is counter-based: draw number `index` is a function of (seed, stream, index) alone, so any element of a tensor
// can be made by any thread in any order. Values are the same bits on every machine and with every standard library:
// integers, and floating point of +, -, *, / and sqrt only, which IEEE 754 rounds correctly (log and cosine are
// evaluated here, not by libm).
//
//   const Rng rng(seed, Rng::stream_of("model.layers.6.self_attn.q_b_proj.weight"));
//   w[i] = rng.normal(i);
//
// Each draw takes one word, so draws of two kinds at the same index are correlated: give each purpose a stream of its
// own.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <string_view>

namespace megartp {
namespace detail {

// The finalizer of splitmix64.
constexpr uint64_t mix64(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
  return z ^ (z >> 31);
}

// Natural logarithm of a positive normal number, to a few units in the last place.
constexpr double log_of(double x) {
  const auto u = std::bit_cast<uint64_t>(x);
  auto exponent = static_cast<int>((u >> 52) & 0x7ffU) - 1023;
  auto m = std::bit_cast<double>((u & 0xfffffffffffffU) | 0x3ff0000000000000U);  // [1, 2)
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1.0) / (m + 1.0);  // ln m = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172
  double sum = 0.0;
  for (int k = 23; k >= 1; k -= 2) sum = sum * (s * s) + 1.0 / k;
  return 2.0 * s * sum + exponent * 0.6931471805599453;
}

// Cosine of `turns` full turns, turns in [0, 1).
constexpr double cos_of_turns(double turns) {
  const auto quadrant = static_cast<int>(turns * 4.0);
  const double x = (turns * 4.0 - quadrant) * 1.5707963267948966;  // [0, pi/2)
  // Taylor series: of the cosine in quadrants 0 and 2, of the sine in 1 and 3.
  const bool sine = (quadrant & 1) != 0;
  const int first = sine ? 1 : 0;
  double sum = 1.0;
  for (int k = 22 + first; k > first; k -= 2) sum = 1.0 - sum * (x * x) / (k * (k - 1));
  const double value = sine ? x * sum : sum;
  return quadrant == 1 || quadrant == 2 ? -value : value;
}

}  // namespace detail

class Rng {
 public:
  explicit constexpr Rng(uint64_t seed, uint64_t stream = 0)
      : key_(detail::mix64(detail::mix64(seed + kGamma) ^ (stream * kGamma + 0x632be59bd9b4e019U))) {}

  // A stream number from a name (FNV-1a).
  static constexpr uint64_t stream_of(std::string_view name) {
    uint64_t h = 0xcbf29ce484222325U;
    for (const char c : name) h = (h ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
    return h;
  }

  // 64 random bits.
  constexpr uint64_t bits(uint64_t index) const { return detail::mix64(key_ + (index + 1) * kGamma); }
  // [0, bound), bound > 0; the bias is below bound / 2^64.
  constexpr uint64_t below(uint64_t index, uint64_t bound) const {
    __extension__ using Wide = unsigned __int128;
    return static_cast<uint64_t>((Wide{bits(index)} * bound) >> 64);
  }
  // [0, 1), 53 bits.
  constexpr double uniform(uint64_t index) const { return static_cast<double>(bits(index) >> 11) * 0x1p-53; }
  // [low, high).
  constexpr double uniform(uint64_t index, double low, double high) const {
    return low + (high - low) * uniform(index);
  }
  // Mean 0, variance 1, at most 6.7 in size (Box-Muller with 32 bits each for radius and angle).
  double normal(uint64_t index) const {
    const uint64_t b = bits(index);
    const double u = (static_cast<double>(b >> 32) + 1.0) * 0x1p-32;  // (0, 1]
    const double turns = static_cast<double>(b & 0xffffffffU) * 0x1p-32;
    return std::sqrt(-2.0 * detail::log_of(u)) * detail::cos_of_turns(turns);
  }
  // Mean 0, variance 1, at most 2 sqrt(3) in size: the sum of four uniform numbers. Several times cheaper than
  // normal().
  constexpr double bell(uint64_t index) const {
    const uint64_t b = bits(index);
    const auto sum = static_cast<int64_t>((b & 0xffffU) + ((b >> 16) & 0xffffU) + ((b >> 32) & 0xffffU) + (b >> 48));
    return static_cast<double>(sum - 131070) * (1.7320508075688772 / 65536.0);
  }

 private:
  static constexpr uint64_t kGamma = 0x9e3779b97f4a7c15U;
  uint64_t key_;
};

// The draws of an Rng one after the other; also a UniformRandomBitGenerator. Not thread-safe.
class RngSequence {
 public:
  using result_type = uint64_t;
  explicit constexpr RngSequence(uint64_t seed, uint64_t stream = 0) : rng_(seed, stream) {}
  static constexpr uint64_t min() { return 0; }
  static constexpr uint64_t max() { return ~uint64_t{0}; }
  constexpr uint64_t operator()() { return rng_.bits(next_++); }
  constexpr uint64_t below(uint64_t bound) { return rng_.below(next_++, bound); }
  constexpr double uniform() { return rng_.uniform(next_++); }
  constexpr double uniform(double low, double high) { return rng_.uniform(next_++, low, high); }
  double normal() { return rng_.normal(next_++); }
  constexpr double bell() { return rng_.bell(next_++); }

 private:
  Rng rng_;
  uint64_t next_ = 0;
};

}  // namespace megartp
