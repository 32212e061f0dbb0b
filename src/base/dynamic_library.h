// Shared libraries that are loaded when they are first needed (the CUDA driver, NVRTC), so that one binary serves
// machines with and without them.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "megartp/error.h"

namespace megartp {

// Once loaded a library stays for the life of the process: what it has started (threads, exit handlers) cannot be
// undone.
class DynamicLibrary {
 public:
  // Opens the first of `names` that loads. A name with a slash is a path; another one is looked for as the system does.
  // kUnsupported when none does; the message gives `what` and the loader's reason for the last one.
  static Result<DynamicLibrary> open(std::string_view what, std::span<const std::string> names);

  // kUnsupported when the library has no such function: it is older than what we were written for.
  Result<void*> symbol(const char* name) const;
  // Of the file that was loaded.
  const std::string& path() const { return path_; }

 private:
  DynamicLibrary(void* handle, std::string what, std::string path)
      : handle_(handle), what_(std::move(what)), path_(std::move(path)) {}

  void* handle_ = nullptr;
  std::string what_, path_;
};

}  // namespace megartp
