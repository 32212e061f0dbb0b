#include "codegen/nvrtc.h"

#include <array>
#include <filesystem>
#include <system_error>

#include <fmt/format.h>

#include "base/dynamic_library.h"
#include "base/env.h"
#include "base/toolkit_files.h"

namespace megartp::codegen {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 2> kLibraryNames{"libnvrtc.so.13", "libnvrtc.so.12"};

// --- the interface of the library

using Program = struct ProgramTag*;
struct NvrtcApi {
  int (*version)(int*, int*) = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*create)(Program*, const char*, const char*, int, const char* const*, const char* const*) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*add_name)(Program, const char*) = nullptr;
  int (*compile)(Program, int, const char* const*) = nullptr;
  int (*log_size)(Program, size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  int (*cubin_size)(Program, size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*lowered_name)(Program, const char*, const char**) = nullptr;
};

template <class F>
Status load_symbol(const DynamicLibrary& library, const char* name, F*& function) {
  function = reinterpret_cast<F*>(MEGARTP_TRY(library.symbol(name)));
  return {};
}

Result<NvrtcApi> load_api(const std::string& path) {
  const std::array<std::string, 1> names{path};
  const DynamicLibrary library = MEGARTP_TRY(DynamicLibrary::open("NVRTC", names));
  NvrtcApi api;
  MEGARTP_TRY(load_symbol(library, "nvrtcVersion", api.version));
  MEGARTP_TRY(load_symbol(library, "nvrtcGetErrorString", api.error_string));
  MEGARTP_TRY(load_symbol(library, "nvrtcCreateProgram", api.create));
  MEGARTP_TRY(load_symbol(library, "nvrtcDestroyProgram", api.destroy));
  MEGARTP_TRY(load_symbol(library, "nvrtcAddNameExpression", api.add_name));
  MEGARTP_TRY(load_symbol(library, "nvrtcCompileProgram", api.compile));
  MEGARTP_TRY(load_symbol(library, "nvrtcGetProgramLogSize", api.log_size));
  MEGARTP_TRY(load_symbol(library, "nvrtcGetProgramLog", api.log));
  MEGARTP_TRY(load_symbol(library, "nvrtcGetCUBINSize", api.cubin_size));
  MEGARTP_TRY(load_symbol(library, "nvrtcGetCUBIN", api.cubin));
  MEGARTP_TRY(load_symbol(library, "nvrtcGetLoweredName", api.lowered_name));
  return api;
}

// There is one Nvrtc in a process, so there is one table.
Result<const NvrtcApi*> api_of(const std::string& path) {
  static const Result<NvrtcApi> loaded = load_api(path);
  if (!loaded) return tl::unexpected(loaded.error());
  return &*loaded;
}

struct ProgramOwner {
  const NvrtcApi& api;
  Program program = nullptr;
  ~ProgramOwner() {
    if (program != nullptr) api.destroy(&program);
  }
};

Status check(const NvrtcApi& api, int status, std::string_view call, const std::string& name) {
  if (status == 0) return {};
  return tl::unexpected(
      Error(ErrorCode::kInternal, fmt::format("{}: {}", call, api.error_string(status)), {{"source", name}}));
}

std::string program_log(const NvrtcApi& api, Program program) {
  size_t size = 0;
  if (api.log_size(program, &size) != 0 || size <= 1) return {};
  std::string log(size, '\0');
  if (api.log(program, log.data()) != 0) return {};
  log.resize(size - 1);
  return log;
}

// --- where the library is

Result<Nvrtc> look_for_library() {
  std::vector<fs::path> found;
  if (const auto named = MEGARTP_TRY(env_nvrtc())) {
    found = toolkit_files_at(*named, kLibraryNames);
    if (found.empty())
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("environment variable MEGARTP_NVRTC is '{}', where there is no {}", *named,
                                    kLibraryNames.front()));
  } else {
    found = find_toolkit_files(kLibraryNames);
  }
  if (found.empty())
    return make_error(ErrorCode::kUnsupported,
                      "NVRTC (libnvrtc.so.13 or .12), which compiles the kernels, is not there: looked in the library "
                      "path, CUDA_HOME, /usr/local/cuda/lib64 and Python's nvidia packages; MEGARTP_NVRTC can name it");
  std::error_code error;
  const fs::path real = fs::canonical(found.front(), error);
  const auto size = fs::file_size(found.front(), error);
  if (error) return make_error(ErrorCode::kIo, fmt::format("{}: {}", found.front().string(), error.message()));
  return Nvrtc(found.front().string(), fmt::format("{} {}", real.filename().string(), size));
}

}  // namespace

Result<const Nvrtc*> Nvrtc::find() {
  static const Result<Nvrtc> found = look_for_library();
  if (!found) return tl::unexpected(found.error());
  return &*found;
}

Result<std::pair<int, int>> Nvrtc::version() const {
  const NvrtcApi& api = *MEGARTP_TRY(api_of(path_));
  std::pair<int, int> v;
  MEGARTP_TRY(check(api, api.version(&v.first, &v.second), "nvrtcVersion", path_));
  return v;
}

Result<NvrtcResult> Nvrtc::compile(const std::string& name, const std::string& source,
                                   std::span<const SourceHeader> headers, std::span<const std::string> options,
                                   std::span<const std::string> entries) const {
  const NvrtcApi& api = *MEGARTP_TRY(api_of(path_));
  // The library wants zero-terminated strings.
  std::vector<std::string> strings;
  for (const SourceHeader& h : headers) {
    strings.emplace_back(h.name);
    strings.emplace_back(h.text);
  }
  std::vector<const char*> names;
  std::vector<const char*> texts;
  for (size_t i = 0; i < strings.size(); i += 2) {
    names.push_back(strings[i].c_str());
    texts.push_back(strings[i + 1].c_str());
  }
  ProgramOwner owner{api};
  MEGARTP_TRY(check(api,
                    api.create(&owner.program, source.c_str(), name.c_str(), static_cast<int>(names.size()),
                               texts.data(), names.data()),
                    "nvrtcCreateProgram", name));
  for (const std::string& entry : entries)
    MEGARTP_TRY(check(api, api.add_name(owner.program, entry.c_str()), "nvrtcAddNameExpression", name));
  std::vector<const char*> arguments;
  for (const std::string& option : options) arguments.push_back(option.c_str());
  const int status = api.compile(owner.program, static_cast<int>(arguments.size()), arguments.data());
  NvrtcResult result;
  result.log = program_log(api, owner.program);
  if (status != 0) {
    Error error(ErrorCode::kInvalidArgument,
                fmt::format("the kernel source does not compile: {}", api.error_string(status)), {{"source", name}});
    error.details = std::move(result.log);
    return tl::unexpected(std::move(error));
  }
  size_t size = 0;
  MEGARTP_TRY(check(api, api.cubin_size(owner.program, &size), "nvrtcGetCUBINSize", name));
  result.cubin.resize(size);
  MEGARTP_TRY(check(api, api.cubin(owner.program, result.cubin.data()), "nvrtcGetCUBIN", name));
  for (const std::string& entry : entries) {
    const char* symbol = nullptr;
    MEGARTP_TRY(check(api, api.lowered_name(owner.program, entry.c_str(), &symbol), "nvrtcGetLoweredName", name));
    result.symbols.emplace_back(symbol);
  }
  return result;
}

}  // namespace megartp::codegen
