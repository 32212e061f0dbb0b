#include "backends/cuda_graph/loaded_code.h"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>

namespace megartp::cuda_graph {
namespace {

Result<std::string> arch_of(const cuda::DeviceInfo& info) {
  if (info.compute_major == 9 && info.compute_minor == 0) return std::string("sm_90a");
  if (info.compute_major == 10 && info.compute_minor == 0) return std::string("sm_100a");
  return make_error(ErrorCode::kUnsupported,
                    fmt::format("{} has compute capability {}.{}; the kernels are written for 9.0 (Hopper)", info.name,
                                info.compute_major, info.compute_minor));
}

}  // namespace

std::vector<codegen::KernelRequest> kernel_requests(const LaunchPlan& plan) {
  std::vector<codegen::KernelRequest> requests;
  for (const LaunchKernel& k : plan.kernels) {
    requests.push_back(codegen::kernel_request(k.kernel, k.wait));
    requests.back().name = k.name;
  }
  return requests;
}

LoadedCode::~LoadedCode() {
  if (context_ == nullptr) return;
  const cuda::Context::Scope current(*context_);
  modules_.clear();
}

Result<std::shared_ptr<const LoadedCode>> LoadedCode::load(std::shared_ptr<const cuda::Context> context,
                                                           const LaunchPlan& plan, codegen::CompileOptions options,
                                                           const LoadOptions& load_options) {
  options.arch = MEGARTP_TRY(arch_of(context->info()));
  const std::vector<codegen::KernelRequest> requests = kernel_requests(plan);
  return load(std::move(context), plan, MEGARTP_TRY(codegen::compile_kernels(requests, options)), load_options);
}

Result<std::shared_ptr<const LoadedCode>> LoadedCode::load(std::shared_ptr<const cuda::Context> context,
                                                           const LaunchPlan& plan, codegen::CompiledKernels compiled,
                                                           const LoadOptions& load_options) {
  if (compiled.index_of_request.size() != plan.kernels.size())
    return make_error(ErrorCode::kInternal, fmt::format("{} compiled kernels for a plan of {}",
                                                        compiled.index_of_request.size(), plan.kernels.size()));
  auto code = std::make_shared<LoadedCode>();
  code->context_ = std::move(context);
  code->compiled_ = std::move(compiled);
  MEGARTP_TRY(code->load_modules(plan, load_options));
  return code;
}

Status LoadedCode::load_modules(const LaunchPlan& plan, const LoadOptions& options) {
  const cuda::Context::Scope current(*context_);
  const cuda::DriverApi& api = context_->api();
  module_of_kernel_ = compiled_.index_of_request;
  std::vector<uint32_t> code_of_module(compiled_.kernels.size());
  if (options.has_module_per_kernel) {
    code_of_module = compiled_.index_of_request;
    std::iota(module_of_kernel_.begin(), module_of_kernel_.end(), 0U);
  } else {
    std::iota(code_of_module.begin(), code_of_module.end(), 0U);
  }
  for (const uint32_t i : code_of_module) {
    modules_.push_back(MEGARTP_TRY(cuda::load_module(api, *compiled_.kernels[i].cubin)));
    functions_.push_back(MEGARTP_TRY(cuda::get_function(api, modules_.back(), compiled_.kernels[i].symbol)));
  }
  std::vector<uint32_t> smem(functions_.size(), 0);
  for (size_t i = 0; i < plan.kernels.size(); ++i) {
    uint32_t& most = smem[module_of_kernel_[i]];
    most = std::max(most, plan.kernels[i].kernel.smem_bytes);
  }
  const auto set = [&](size_t i, int attribute, int value) -> Status {
    Status ok = cuda::check(api, api.func_set_attribute(functions_[i], attribute, value), "func_set_attribute(");
    if (!ok)
      return tl::unexpected(std::move(ok)
                                .error()
                                .with("kernel", compiled_.kernels[code_of_module[i]].name)
                                .with("dynamic shared memory", std::to_string(smem[i])));
    return {};
  };
  for (size_t i = 0; i < functions_.size(); ++i) {
    MEGARTP_TRY(set(i, cuda::kFuncSmemCarveout, options.smem_carveout_percent));
    if (smem[i] > 0) MEGARTP_TRY(set(i, cuda::kFuncMaxDynamicSmem, static_cast<int>(smem[i])));
  }
  return {};
}

}  // namespace megartp::cuda_graph
