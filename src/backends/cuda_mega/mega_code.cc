#include "backends/cuda_mega/mega_code.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "abi/mega.h"
#include "codegen/mega_source.h"
#include "ops/op_family.h"

namespace megartp::cuda_mega {
namespace {

// All of an SM's shared memory: no other kernel's CTA shall change its division.
constexpr int kSmemCarveoutPercent = 100;

}  // namespace

MegaCode::~MegaCode() {
  if (context_ == nullptr) return;
  const cuda::Context::Scope current(*context_);
  module_ = {};
}

Result<std::shared_ptr<const MegaCode>> MegaCode::load(std::shared_ptr<const cuda::Context> context,
                                                       std::span<const uint32_t> opcodes,
                                                       codegen::CompileOptions options) {
  // Slow is better than not at all; a test holds the kernel of attention-pre to none.
  options.allow_local_memory = true;
  const cuda::DeviceInfo& info = context->info();
  if (info.compute_major != 9 || info.compute_minor != 0)
    return make_error(ErrorCode::kUnsupported,
                      fmt::format("mega: {} has compute capability {}.{}; the persistent kernel is written for 9.0 "
                                  "(Hopper)",
                                  info.name, info.compute_major, info.compute_minor));
  options.arch = "sm_90a";
  const std::array requests { MEGARTP_TRY(codegen::mega_kernel_request(opcodes)) };
  return load(std::move(context), opcodes, MEGARTP_TRY(codegen::compile_kernels(requests, options)));
}

Result<std::shared_ptr<const MegaCode>> MegaCode::load(std::shared_ptr<const cuda::Context> context,
                                                       std::span<const uint32_t> opcodes,
                                                       codegen::CompiledKernels compiled) {
  auto code = std::make_shared<MegaCode>();
  code->context_ = std::move(context);
  code->opcodes_.assign(opcodes.begin(), opcodes.end());
  code->compiled_ = std::move(compiled);
  MEGARTP_TRY(code->load_module());
  return code;
}

Status MegaCode::load_module() {
  const cuda::Context::Scope current(*context_);
  const cuda::DriverApi& api = context_->api();
  module_ = MEGARTP_TRY(cuda::load_module(api, *kernel().cubin));
  function_ = MEGARTP_TRY(cuda::get_function(api, module_, kernel().symbol));
  MEGARTP_CUDA_TRY(api, func_set_attribute(function_, cuda::kFuncSmemCarveout, kSmemCarveoutPercent));
  MEGARTP_CUDA_TRY(api,
                   func_set_attribute(function_, cuda::kFuncMaxDynamicSmem, static_cast<int>(abi::kMegaSmemBytes)));
  int per_sm = 0;
  MEGARTP_CUDA_TRY(api,
                   max_active_blocks(&per_sm, function_, static_cast<int>(abi::kMegaThreads), abi::kMegaSmemBytes));
  max_workers_ = static_cast<uint32_t>(per_sm * context_->info().num_sms);
  return {};
}

Status MegaCode::check_has(std::span<const uint32_t> opcodes) const {
  for (const uint32_t opcode : opcodes)
    if (!std::ranges::binary_search(opcodes_, opcode))
      return make_error(ErrorCode::kUnsupported,
                        fmt::format("mega: the loaded kernel lacks the plan's op '{}'", opcode_name(opcode)));
  return {};
}

}  // namespace megartp::cuda_mega
