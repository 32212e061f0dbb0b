// megartp doctor: what this machine has, to paste into a bug report. Always exits 0: it reports, it does not judge.
#include <unistd.h>
#include <fstream>
#include <iostream>
#include <thread>

#include <fmt/format.h>
#include <sys/utsname.h>

#include "backends/backend.h"
#include "backends/cuda_common/driver.h"
#include "base/env.h"
#include "cli/cli.h"
#include "codegen/nvrtc.h"
#include "ops/op_family.h"

namespace megartp::cli {
namespace {

std::string cpu_model() {
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with("model name")) return line.substr(line.find(':') + 2);
  return "unknown";
}

std::string cpu_features() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0) return "x86-64-v3 kernels";
  return "baseline kernels (no AVX2)";
#else
  return "baseline kernels";
#endif
}

using Rows = std::vector<std::pair<std::string, std::string>>;

void add_cuda_rows(Rows& rows) {
  if (const auto found = cuda::driver(); !found) {
    rows.emplace_back("NVIDIA driver", found.error().message);
  } else {
    const cuda::DriverApi& api = **found;
    int version = 0;
    int count = 0;
    const bool is_known = api.driver_get_version(&version) == cuda::kSuccess;
    rows.emplace_back("NVIDIA driver", is_known ? "CUDA " + cuda::version_text(version) : "of unknown version");
    if (api.device_get_count(&count) != cuda::kSuccess) count = 0;
    for (int i = 0; i < count; ++i) {
      const auto info = cuda::device_info(api, i);
      rows.emplace_back(fmt::format("GPU {}", i),
                        info ? fmt::format("{}, sm_{}{}, {} SMs, {:.1f} GiB, L2 {} MiB", info->name,
                                           info->compute_major, info->compute_minor, info->num_sms,
                                           static_cast<double>(info->memory_bytes) / (1U << 30U), info->l2_bytes >> 20U)
                             : info.error().to_string());
    }
  }
  if (const auto nvrtc = codegen::Nvrtc::find(); !nvrtc) {
    rows.emplace_back("NVRTC", nvrtc.error().message);
  } else {
    const auto version = (*nvrtc)->version();
    rows.emplace_back("NVRTC", version ? fmt::format("{}.{}, {}", version->first, version->second, (*nvrtc)->path())
                                       : version.error().to_string());
  }
}

Rows collect() {
  utsname os{};
  uname(&os);
  Rows rows{
      {"megartp", MEGARTP_VERSION},
      {"compiler", __VERSION__},
      {"system", fmt::format("{} {} {}", os.sysname, os.release, os.machine)},
      {"cpu", cpu_model()},
      {"hardware threads", std::to_string(std::thread::hardware_concurrency())},
      {"cpu tiles", cpu_features()},
      {"memory", fmt::format("{:.1f} GiB", static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                                               static_cast<double>(sysconf(_SC_PAGE_SIZE)) / (1U << 30U))},
      {"op families", std::to_string(op_families().size())},
  };
  add_cuda_rows(rows);
  for (const BackendInfo& b : backends())
    rows.emplace_back(fmt::format("backend {}", b.name), b.available ? "available" : "unavailable");
  const auto cache = env_cache_dir();
  rows.emplace_back("cache folder", cache ? *cache : cache.error().to_string());
  return rows;
}

int run_doctor(const CommonOptions& common) {
  const auto rows = collect();
  if (common.json) {
    Json j;
    for (const auto& [key, value] : rows) j[key] = value;
    return print_json("doctor", std::move(j));
  }
  for (const auto& [key, value] : rows) std::cout << fmt::format("{:<24}{}\n", key, value);
  return 0;
}

}  // namespace

Command add_doctor_command(CLI::App& root) {
  auto args = std::make_shared<CommonOptions>();
  CLI::App* app = root.add_subcommand("doctor", "Report what this machine offers");
  add_common_options(*app, *args);
  return {app, [args] { return run_doctor(*args); }};
}

}  // namespace megartp::cli
