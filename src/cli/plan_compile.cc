#include "cli/plan_compile.h"

#include <algorithm>
#include <array>
#include <iostream>

#include <fmt/format.h>

#include "backends/cuda_mega/mega_image.h"
#include "codegen/compile_kernels.h"
#include "codegen/mega_source.h"
#include "ops/mega_op.h"

namespace megartp::cli {
namespace {

std::vector<uint32_t> pages_of_rows(const KernelPlan& plan, const cuda_mega::MegaImage& image) {
  std::vector<uint32_t> pages(plan.operand_rows.size());
  for (const abi::MegaRecord& r : image.records)
    if (r.instruction.opcode != abi::kOpcodeNoOp)
      pages[r.instruction.operand_row] = std::max(pages[r.instruction.operand_row], r.num_pages);
  return pages;
}

void print_text(const KernelPlan& plan, const std::vector<uint32_t>& pages, const codegen::CompiledKernels& compiled) {
  Table table({"op", "device op", "pages at most"});
  for (size_t r = 0; r < pages.size(); ++r)
    table.add_row({plan.operand_rows[r].name, std::string(find_mega_op(plan.operand_rows[r].opcode)->type),
                   std::to_string(pages[r])});
  const codegen::CompiledKernel& k = compiled.kernels[0];
  std::cout << table.to_string();
  std::cout << fmt::format(
      "{} threads, {} registers each, {} bytes of local memory, {} bytes of shared memory; {}, {:.1f} s\n",
      abi::kMegaThreads, k.num_registers, k.local_bytes, abi::kMegaSmemBytes,
      compiled.stats.num_cached > 0 ? "from the cache" : "compiled", compiled.stats.seconds);
}

}  // namespace

int compile_mega(const KernelPlan& plan, const CommonOptions& common) {
  const cuda_mega::MegaImage image = value_or_exit(cuda_mega::make_mega_image(plan), common, "plan");
  const std::array requests{value_or_exit(codegen::mega_kernel_request(image.opcodes), common, "plan")};
  codegen::CompileOptions options;
  options.allow_local_memory = true;
  const codegen::CompiledKernels compiled = value_or_exit(codegen::compile_kernels(requests, options), common, "plan");
  const std::vector<uint32_t> pages = pages_of_rows(plan, image);
  const codegen::CompiledKernel& kernel = compiled.kernels[0];
  if (common.json) {
    Json j{{"entry", kernel.entry},
           {"threads", abi::kMegaThreads},
           {"registers", kernel.num_registers},
           {"local_bytes", kernel.local_bytes},
           {"dynamic_smem_bytes", abi::kMegaSmemBytes},
           {"seconds", compiled.stats.seconds}};
    for (size_t r = 0; r < pages.size(); ++r) j["pages"][plan.operand_rows[r].name] = pages[r];
    print_json("plan-compile", std::move(j));
  } else {
    print_text(plan, pages, compiled);
  }
  return kernel.local_bytes == 0 ? 0 : 1;
}

}  // namespace megartp::cli
