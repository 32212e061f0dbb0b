#include "codegen/check_code.h"

#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "codegen/param_layout.h"

namespace megartp::codegen {
namespace {

uint32_t bytes_of(DeviceParam::Kind kind) {
  switch (kind) {
    case DeviceParam::Kind::kTensorMap: return kTensorMapBytes;
    case DeviceParam::Kind::kPointer: return 8;
    case DeviceParam::Kind::kU32:
    case DeviceParam::Kind::kF32: break;
  }
  return 4;
}

bool is_early(const LaunchKernel& k, const DeviceAccess& a) { return a.before_wait && k.wait == DeviceWait::kPrefetch; }

CodeVerdict verdict_of(const sass::CubinFinding& finding) {
  const auto says = [&](std::string_view words) { return finding.message.find(words) != std::string::npos; };
  const bool is_unsure = finding.rule == "unknown_before_wait" || finding.rule == "missing_proxy_fence";
  // A read through the read-only path whose address is not traced to parameters alone may well be a weight's.
  const bool is_untraced =
      finding.rule == "restrict_hoist" && (says("something that is no parameter") || says("no parameter was traced"));
  return is_unsure || is_untraced ? CodeVerdict::kUnknown : CodeVerdict::kBroken;
}

// Offsets in the parameter block.
std::vector<uint32_t> scalar_words(const DeviceKernel& k, uint32_t param_offset) {
  const ParamLayout layout = param_layout(k.params);
  std::vector<uint32_t> words;
  for (size_t i = 0; i < k.params.size(); ++i)
    if (bytes_of(k.params[i].kind) == 4) words.push_back(param_offset + layout.offsets[i]);
  return words;
}

// Weights that are to be read before the wait, and are not.
void find_late_weights(uint32_t index, const LaunchKernel& k, const sass::KernelScan& scan, uint32_t param_offset,
                       std::vector<CodeFinding>& findings) {
  if (!k.kernel.waits || !k.kernel.has_prologue || scan.waits.empty()) return;
  const ParamLayout layout = param_layout(k.kernel.params);
  for (const DeviceAccess& a : k.kernel.accesses) {
    if (a.is_write || !is_early(k, a)) continue;
    const uint32_t place = param_offset + layout.offsets[a.param];
    // Anything untraced before the wait may be it.
    const bool is_there = std::ranges::any_of(scan.accesses, [&](const sass::AccessSite& s) {
      if (s.order == sass::Order::kAfterWait || s.access.kind == sass::AccessKind::kPrefetch) return false;
      return s.base.may_be_other || std::ranges::find(s.base.param_offsets, place) != s.base.param_offsets.end();
    });
    if (is_there) continue;
    findings.push_back(
        {index, CodeVerdict::kLostTime, "late_weights",
         fmt::format("kernel '{}': parameter '{}' is described as read before the grid dependency wait, and "
                     "the code reads it only behind it",
                     k.name, k.kernel.params[a.param].name)});
  }
}

}  // namespace

sass::KernelContract kernel_contract(const LaunchKernel& k, const std::string& symbol) {
  sass::KernelContract contract;
  contract.kernel = symbol;
  contract.pdl = k.has_programmatic_in;
  // The prover asks that every CTA waits; threads that read what others wrote wait themselves.
  contract.waits = k.kernel.waits ? sass::ContractWaits::kSome : sass::ContractWaits::kNone;
  contract.trigger =
      k.kernel.triggers_at_start ? sass::ContractTrigger::kBeforeWait : sass::ContractTrigger::kAfterWait;
  const ParamLayout layout = param_layout(k.kernel.params);
  for (size_t i = 0; i < k.kernel.params.size(); ++i) {
    const DeviceParam& p = k.kernel.params[i];
    sass::ContractParam named{p.name, 0, layout.offsets[i], bytes_of(p.kind), false};
    named.is_scalar = p.kind == DeviceParam::Kind::kU32 || p.kind == DeviceParam::Kind::kF32;
    contract.params.push_back(std::move(named));
    // The descriptor itself is constant.
    if (p.kind == DeviceParam::Kind::kTensorMap) contract.pre_wait_prefetches.push_back(p.name);
  }
  for (const DeviceAccess& a : k.kernel.accesses)
    if (is_early(k, a))
      (a.is_write ? contract.pre_wait_writes : contract.pre_wait_reads).push_back(k.kernel.params[a.param].name);
  return contract;
}

Result<std::vector<CodeFinding>> check_code(const LaunchPlan& plan, const CompiledKernels& compiled) {
  if (compiled.index_of_request.size() != plan.kernels.size())
    return make_error(ErrorCode::kInternal, fmt::format("code of {} kernels for a plan of {}",
                                                        compiled.index_of_request.size(), plan.kernels.size()));
  std::map<uint32_t, sass::KernelScan> scans;
  std::vector<CodeFinding> findings;
  for (uint32_t i = 0; i < plan.kernels.size(); ++i) {
    const uint32_t code = compiled.index_of_request[i];
    const CompiledKernel& kernel = compiled.kernels[code];
    if (!scans.contains(code)) {
      const sass::Cubin cubin = MEGARTP_TRY(sass::parse_cubin(*kernel.cubin));
      for (const sass::CubinKernel& k : cubin.kernels)
        if (k.name == kernel.symbol)
          scans.emplace(code, sass::scan_kernel(k, scalar_words(plan.kernels[i].kernel, kernel.param_offset)));
      if (!scans.contains(code))
        return make_error(ErrorCode::kInternal, fmt::format("the cubin of '{}' lacks {}", kernel.name, kernel.symbol));
    }
    const sass::KernelScan& scan = scans.at(code);
    for (sass::CubinFinding& f : sass::compare_kernel(scan, kernel_contract(plan.kernels[i], kernel.symbol)))
      findings.push_back(
          {i, verdict_of(f), std::move(f.rule), fmt::format("'{}': {}", plan.kernels[i].name, f.message)});
    find_late_weights(i, plan.kernels[i], scan, kernel.param_offset, findings);
  }
  return findings;
}

}  // namespace megartp::codegen
