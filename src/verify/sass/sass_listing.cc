#include "verify/sass/sass_listing.h"

#include <fmt/format.h>

#include "verify/sass/sass_decode.h"

namespace megartp::sass {

std::string listing(const Cubin& cubin) {
  std::string out;
  for (const CubinKernel& kernel : cubin.kernels) {
    out += fmt::format("kernel\t{}\n", kernel.section);
    for (size_t i = 0; i < kernel.code.size(); ++i) {
      const Instruction in(kernel.code[i][0], kernel.code[i][1]);
      const auto offset = static_cast<int64_t>(i * kInstructionBytes);
      const auto access = in.global_access();
      const auto target = in.target(offset);
      const std::string guard =
          !in.is_guarded() ? "-"
                           : fmt::format("@{}{}", in.guard_negated() ? "!" : "",
                                         in.guard() == Instruction::kAlways ? "PT" : fmt::format("P{}", in.guard()));
      const std::string constant = in.kind() == OpKind::kConstantLoad
                                       ? fmt::format("c[{:#x}][{:#x}]", in.constant_bank(), in.constant_offset())
                                       : "-";
      out += fmt::format("{:x}\t{:03x}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\n", offset, in.opcode(), guard,
                         in.name().empty() ? "?" : in.name(), access ? to_string(access->kind) : "-",
                         access && access->is_nc ? "nc" : "-", target ? fmt::format("{:x}", *target) : "-", constant,
                         in.text());
    }
  }
  return out;
}

}  // namespace megartp::sass
