#include "codegen/compile_kernels.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <map>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "base/env.h"
#include "codegen/cubin_cache.h"
#include "verify/sass/cubin.h"

namespace megartp::codegen {
namespace {

// Part of every key: raise it when what is stored, or how it is made, changes in a way that no other part shows.
constexpr std::string_view kKeyVersion = "megartp kernel 1";

// Everything that decides the code, each part with its length so that none can pass for two.
Hash128 key_of(const std::string& identity, const KernelRequest& request, const std::string& source,
               std::span<const SourceHeader> headers, std::span<const std::string> options) {
  std::string text;
  const auto add = [&](std::string_view part) {
    text += fmt::format("{}:", part.size());
    text += part;
  };
  add(kKeyVersion);
  add(identity);
  add(request.entry);
  add(source);
  for (const std::string& option : options) add(option);
  add("headers");
  for (const SourceHeader& h : headers) {
    add(h.name);
    add(h.text);
  }
  return hash128(text);
}

Error for_kernel(Error error, const KernelRequest& request) {
  return std::move(error).with("kernel", request.name).with("entry", request.entry);
}

// Fills in what the cubin says, and objects to what must not be.
Status inspect(const KernelRequest& request, const CompileOptions& options, CompiledKernel& kernel) {
  if (!options.arch.starts_with("sm_90")) return {};
  const sass::Cubin cubin = MEGARTP_TRY(sass::parse_cubin(*kernel.cubin));
  const auto found = std::find_if(cubin.kernels.begin(), cubin.kernels.end(),
                                  [&](const sass::CubinKernel& k) { return k.name == kernel.symbol; });
  if (found == cubin.kernels.end())
    return make_error(ErrorCode::kInternal, fmt::format("the cubin has no kernel {}", kernel.symbol));
  kernel.num_registers = found->num_registers;
  kernel.local_bytes = found->frame_bytes;
  kernel.static_smem_bytes = found->static_smem_bytes;
  uint32_t param_bytes = 0;
  for (const sass::KernelParam& p : found->params) {
    kernel.param_offset = p.offset;
    param_bytes += p.num_bytes;
  }
  if (param_bytes != request.param_bytes)
    return make_error(ErrorCode::kInternal, fmt::format("the kernel takes {} bytes of parameters, the host packs {}",
                                                        param_bytes, request.param_bytes));
  if (found->frame_bytes > 0 && !options.allow_local_memory) {
    Error error(
        ErrorCode::kOutOfResources,
        fmt::format("the kernel needs {} bytes of local memory a thread (spilled registers, or an array that is "
                    "indexed at run time) besides {} registers",
                    found->frame_bytes, found->num_registers));
    error.details = kernel.log;
    return tl::unexpected(std::move(error));
  }
  return {};
}

struct Job {
  const KernelRequest* request = nullptr;
  CompiledKernel kernel;
  Status status;
};

class Compilation {
 public:
  Compilation(Result<const Nvrtc*> nvrtc, const CompileOptions& options, std::string cache_folder)
      : nvrtc_(std::move(nvrtc)),
        options_(options),
        arguments_(compiler_options(options)),
        cache_(std::move(cache_folder)) {}

  void run(std::vector<Job>& jobs) {
    const uint64_t wanted = options_.num_threads != 0 ? options_.num_threads : std::thread::hardware_concurrency();
    const uint64_t num_threads = std::clamp<uint64_t>(wanted, 1, std::max<size_t>(jobs.size(), 1));
    std::atomic<size_t> next{0};
    const auto work = [&] {
      for (size_t i = next++; i < jobs.size() && !failed_; i = next++) {
        jobs[i].status = do_job(jobs[i]);
        if (!jobs[i].status) failed_ = true;
      }
    };
    std::vector<std::jthread> threads;
    try {
      while (threads.size() + 1 < num_threads) threads.emplace_back(work);
    } catch (const std::system_error&) {
      // No more threads to be had: those that there are do all.
    }
    work();
  }

  std::atomic<uint32_t> num_compiled{0}, num_cached{0}, num_corrupt{0}, num_unstored{0};

 private:
  Status do_job(Job& job) {
    const KernelRequest& request = *job.request;
    const std::string source = kernel_source(request);
    const std::vector<SourceHeader> headers = reached_headers(source, options_.headers);
    CachedCubin entry;
    const bool is_cached = find_cached(request, source, headers, entry);
    if (!is_cached) {
      ++num_compiled;
      const Nvrtc& nvrtc = *MEGARTP_TRY(nvrtc_);
      const std::vector<std::string> entries{request.entry};
      NvrtcResult result = MEGARTP_TRY(nvrtc.compile(request.name + ".cu", source, headers, arguments_, entries));
      entry = {std::move(result.symbols.front()), std::move(result.cubin), std::move(result.log)};
    }
    job.kernel.name = request.name;
    job.kernel.entry = request.entry;
    job.kernel.symbol = entry.symbol;
    job.kernel.log = entry.log;
    job.kernel.cubin = std::make_shared<const std::string>(entry.cubin);
    MEGARTP_TRY(inspect(request, options_, job.kernel));
    // A full or read-only disk costs time at the next start, nothing else.
    if (!is_cached && !store(request, source, headers, entry)) ++num_unstored;
    return {};
  }

  // Without a compiler any compiler's code will do, see store().
  bool find_cached(const KernelRequest& request, const std::string& source, std::span<const SourceHeader> headers,
                   CachedCubin& entry) {
    const std::string identity = nvrtc_ ? (*nvrtc_)->identity() : std::string();
    const auto found = cache_.find(key_of(identity, request, source, headers, arguments_), entry);
    if (found == CubinCache::Found::kCorrupt) ++num_corrupt;
    if (found == CubinCache::Found::kWhole) ++num_cached;
    return found == CubinCache::Found::kWhole;
  }

  // Twice: for this compiler, and for machines that have none and use a cache that was filled elsewhere.
  Status store(const KernelRequest& request, const std::string& source, std::span<const SourceHeader> headers,
               const CachedCubin& entry) const {
    for (const std::string& identity : {(*nvrtc_)->identity(), std::string()})
      MEGARTP_TRY(cache_.store(key_of(identity, request, source, headers, arguments_), entry));
    return {};
  }

  Result<const Nvrtc*> nvrtc_;
  const CompileOptions& options_;
  std::vector<std::string> arguments_;
  CubinCache cache_;
  std::atomic<bool> failed_{false};
};

}  // namespace

std::vector<std::string> compiler_options(const CompileOptions& options) {
  std::vector<std::string> list{"--gpu-architecture=" + options.arch, "--std=c++20", "--ptxas-options=-v"};
  if (options.with_line_info) list.emplace_back("--generate-line-info");
  list.insert(list.end(), options.more_options.begin(), options.more_options.end());
  return list;
}

Result<CompiledKernels> compile_kernels(std::span<const KernelRequest> requests, const CompileOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  std::string folder;
  if (options.use_cache) folder = options.cache_folder.empty() ? MEGARTP_TRY(env_cache_dir())
  +"/cubins" : options.cache_folder;

  CompiledKernels result;
  std::vector<Job> jobs;
  std::map<std::tuple<std::string_view, std::string_view, uint32_t, uint32_t>, uint32_t> seen;
  for (const KernelRequest& request : requests) {
    const auto [it, is_new] =
        seen.try_emplace({request.header, request.entry, request.param_bytes, request.param_alignment},
                         static_cast<uint32_t>(jobs.size()));
    if (is_new) jobs.push_back({&request, {}, {}});
    result.index_of_request.push_back(it->second);
  }

  auto nvrtc = options.without_compiler
                   ? Result<const Nvrtc*>(make_error(ErrorCode::kUnsupported,
                                                     "the kernel is not in the cache, and the compiler "
                                                     "is not to be used"))
                   : Nvrtc::find();
  Compilation compilation(std::move(nvrtc), options, folder);
  compilation.run(jobs);
  for (Job& job : jobs)
    if (!job.status) return tl::unexpected(for_kernel(std::move(job.status).error(), *job.request));
  for (Job& job : jobs) result.kernels.push_back(std::move(job.kernel));
  result.stats.num_compiled = compilation.num_compiled;
  result.stats.num_cached = compilation.num_cached;
  result.stats.num_corrupt = compilation.num_corrupt;
  if (compilation.num_unstored > 0)
    result.stats.cache_problem =
        fmt::format("{} compiled kernels could not be written to {}", compilation.num_unstored.load(), folder);
  result.stats.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace megartp::codegen
