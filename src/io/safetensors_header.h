// The JSON header of a safetensors file, parsed and checked. Called by the reader only; it works on bytes and opens no
// file.
//
// Invariant of a parsed header: names are unique, shapes multiply without overflow, and the tensors lie back to back in
// the data section, in ascending order, from its first byte to its last.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/dtype.h"
#include "megartp/error.h"

namespace megartp::detail {

struct HeaderTensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> dims;
  uint64_t begin = 0;  // bytes from the start of the data section
  uint64_t end = 0;
};

struct Header {
  std::vector<HeaderTensor> tensors;  // by ascending offset
  std::map<std::string, std::string> metadata;
};

// Parses and checks the header text against a data section of `data_bytes`. kParse (kUnsupported for a dtype that the
// format knows and we do not) with the tensor's name.
Result<Header> parse_safetensors_header(std::string_view json, uint64_t data_bytes);

// Bytes of a tensor; false when they do not fit an int64.
bool tensor_bytes(DType dtype, const std::vector<int64_t>& dims, uint64_t& bytes);

// A name as an error message shows it: quoted, control characters escaped, shortened.
std::string quoted_name(std::string_view name);

}  // namespace megartp::detail
