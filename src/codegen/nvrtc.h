// NVRTC, NVIDIA's compiler as a library, found and loaded at run time.
//
// Where it is looked for, in this order: MEGARTP_NVRTC (the library or its folder), the system's library path,
// CUDA_HOME and CUDA_PATH, /usr/local/cuda, and the nvidia packages of a Python environment (VIRTUAL_ENV, CONDA_PREFIX,
// and python3 on PATH). Version 13 is preferred to 12.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "megartp/error.h"

namespace megartp::codegen {

struct SourceHeader {
  std::string_view name;  // as #include spells it
  std::string_view text;
};

struct NvrtcResult {
  std::string cubin;
  std::string log;
  std::vector<std::string> symbols;  // lowered names, in the order of the entries
};

class Nvrtc {
 public:
  // The library of this process; found once, loaded when first used. kUnsupported with the places that were looked at.
  static Result<const Nvrtc*> find();

  // Tells one build of the compiler from another without loading it: the file's name and size.
  const std::string& identity() const { return identity_; }
  const std::string& path() const { return path_; }
  // {13, 0}. Loads the library.
  Result<std::pair<int, int>> version() const;

  // Compiles one translation unit. `name` stands in messages; nothing is read from disk. `entries` are C++ expressions
  // that name kernels, in quotes of the header's own namespace or qualified. kInvalidArgument with the compiler's log
  // in Error::details when the source does not compile. Thread-safe, and runs at the same time in several threads.
  Result<NvrtcResult> compile(const std::string& name, const std::string& source, std::span<const SourceHeader> headers,
                              std::span<const std::string> options, std::span<const std::string> entries) const;

  Nvrtc(std::string path, std::string identity) : path_(std::move(path)), identity_(std::move(identity)) {}

 private:
  std::string path_, identity_;
};

}  // namespace megartp::codegen
