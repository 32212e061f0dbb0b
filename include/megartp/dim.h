// Symbolic dimensions, and the values that a plan is made for.
//
// A Dim is a constant (6144), a symbol ("M"), or a symbol rounded up to a multiple ("round_up(KV, 256)"). A graph is
// recorded once with symbols; lowering resolves them with a ShapeEnv, so a new M or KV needs no new graph.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/error.h"

namespace megartp {

struct Dim {
  int64_t value = 0;   // the constant, when symbol is empty
  std::string symbol;  // e.g. "M"
  int64_t align = 1;   // the symbol's value is rounded up to a multiple of this

  Dim() = default;
  Dim(int64_t constant) : value(constant) {}  // NOLINT(google-explicit-constructor): {"M", 6144} reads as a shape
  Dim(int constant) : value(constant) {}      // NOLINT(google-explicit-constructor)
  Dim(const char* name) : symbol(name) {}     // NOLINT(google-explicit-constructor)
  static Dim sym(std::string_view name, int64_t align = 1) {
    Dim d;
    d.symbol = std::string(name);
    d.align = align;
    return d;
  }

  bool is_const() const { return symbol.empty(); }
  friend bool operator==(const Dim&, const Dim&) = default;
};

using Shape = std::vector<Dim>;

std::string to_string(const Dim& dim);      // "6144", "M", "round_up(KV, 256)"
std::string to_string(const Shape& shape);  // "[M, 6144]"
std::string to_string(const std::vector<int64_t>& dims);

// Parses what to_string(Dim) writes.
Result<Dim> parse_dim(std::string_view text);

// One request of a decode batch: how many new rows (tokens) it has, and the longest visible length of those rows.
struct RequestShape {
  int32_t num_rows = 0;
  int32_t kv_len = 0;  // tokens, the row's own key included
  friend bool operator==(const RequestShape&, const RequestShape&) = default;
};

// Values of the symbols, and the rows of each request in row order.
struct ShapeEnv {
  std::map<std::string, int64_t, std::less<>> symbols;
  std::vector<RequestShape> requests;

  void set(std::string_view name, int64_t value) { symbols[std::string(name)] = value; }
  Result<int64_t> eval(const Dim& dim) const;
  Result<std::vector<int64_t>> eval(const Shape& shape) const;
};

}  // namespace megartp
