// Kernels of a plan -> loaded-ready code: distinct instances are compiled in parallel by NVRTC, or come from the cache.
//
// Needs neither a GPU nor a driver. Code with spills or with another parameter size than the host packs is an error,
// not a slow or wrong run.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "codegen/kernel_source.h"
#include "megartp/error.h"

namespace megartp::codegen {

struct CompileOptions {
  std::string arch = "sm_90a";  // "sm_100a" compiles too; only sm_90 code is read and checked
  // Defines and others, behind our own: {"-DMEGARTP_FUZZ=1"}.
  std::vector<std::string> more_options;
  bool with_line_info = false;      // source lines for profilers
  bool use_cache = true;            // false: compile anew and store nothing
  bool without_compiler = false;    // as on a machine without NVRTC: only what some compiler has put into the cache
  std::string cache_folder;         // empty: "cubins" in env_cache_dir()
  bool allow_local_memory = false;  // false: a kernel that spills or has a stack is an error
  uint32_t num_threads = 0;         // 0: one for each hardware thread
  std::span<const SourceHeader> headers;  // before the embedded ones; must outlive the call
};

struct CompiledKernel {
  std::string name;  // of the first request that asked for it
  std::string entry;
  std::string symbol;  // what cuModuleGetFunction wants
  std::shared_ptr<const std::string> cubin;
  std::string log;  // of the compiler: warnings, and what ptxas says of registers
  // Read from the cubin; 0 where it is not sm_90.
  uint32_t num_registers = 0;  // a thread
  uint32_t local_bytes = 0;    // stack of a thread: spills and arrays
  uint32_t static_smem_bytes = 0;
  // Where the struct lies in the parameter block: not at 0 when its alignment is that of tensor maps. What the scan of
  // the code (verify/sass) calls an offset is this plus the one in codegen::ParamLayout.
  uint32_t param_offset = 0;
};

struct CompileStats {
  uint32_t num_compiled = 0;
  uint32_t num_cached = 0;
  uint32_t num_corrupt = 0;  // cache files that were rebuilt; counted in num_compiled too
  double seconds = 0;
  std::string cache_problem;  // why new code could not be stored; empty when it was. Not an error: the code is there.
};

struct CompiledKernels {
  std::vector<CompiledKernel> kernels;     // distinct, by first request
  std::vector<uint32_t> index_of_request;  // into kernels
  CompileStats stats;
};

// Errors: kUnsupported for kernels that are not cached where there is no NVRTC; kInvalidArgument naming the kernel,
// with the compiler's log in details; kOutOfResources for spills, kInternal for parameters of another size.
Result<CompiledKernels> compile_kernels(std::span<const KernelRequest> requests, const CompileOptions& options = {});

// The options that NVRTC gets.
std::vector<std::string> compiler_options(const CompileOptions& options);

}  // namespace megartp::codegen
