#include "verify/sass/kernel_contract.h"

#include <algorithm>

#include <fmt/format.h>

#include "graph/text.h"

namespace megartp::sass {
namespace {

bool contains(const std::vector<std::string>& list, std::string_view name) {
  return std::find(list.begin(), list.end(), name) != list.end();
}

std::string path_text(const Path& path) {
  if (path.empty()) return "straight from the entry";
  constexpr size_t kMaxShown = 6;
  std::string text = "by the jumps";
  for (size_t i = 0; i < path.size() && i < kMaxShown; ++i)
    text += fmt::format("{} {:#06x} -> {:#06x}", i == 0 ? "" : ",", path[i].from, path[i].to);
  return text + (path.size() > kMaxShown ? fmt::format(" and {} more", path.size() - kMaxShown) : "");
}

class Comparison {
 public:
  Comparison(const KernelScan& scan, const KernelContract& contract) : scan_(scan), contract_(contract) {}

  std::vector<CubinFinding> run() {
    for (const std::string& note : scan_.notes) add("inconsistent_cubin", note);
    resolve_params();
    const bool wait_is_there = check_waits();
    check_triggers();
    // Without a wait everything would be before it; one finding says it all.
    if (contract_.pdl && wait_is_there) {
      for (const AccessSite& a : scan_.accesses) check_access(a);
      for (const OpaqueSite& o : scan_.opaque) check_opaque(o);
    }
    for (const UnfencedCopy& u : scan_.unfenced) check_unfenced(u);
    check_resources();
    return std::move(findings_);
  }

 private:
  struct Range {
    const ContractParam* param;
    uint32_t begin, end;
  };

  void add(std::string rule, const std::string& sentence) {
    findings_.push_back({std::move(rule), scan_.kernel, std::nullopt, "",
                         fmt::format("kernel {}: {}", quote_name(scan_.kernel), sentence)});
  }
  void add_at(std::string rule, uint32_t offset, const std::string& text, const std::string& sentence) {
    findings_.push_back({std::move(rule), scan_.kernel, offset, text,
                         fmt::format("kernel {}, {:#06x}: {} {}", quote_name(scan_.kernel), offset, text, sentence)});
  }

  void resolve_params() {
    for (const ContractParam& p : contract_.params) {
      const auto it = std::find_if(scan_.params.begin(), scan_.params.end(),
                                   [&](const KernelParam& k) { return k.ordinal == p.index; });
      if (it == scan_.params.end() || p.offset >= std::max(it->num_bytes, 1U)) {
        add("contract", fmt::format("the contract's param {} is byte {} of parameter {}, which {}", quote_name(p.name),
                                    p.offset, p.index, it == scan_.params.end() ? "does not exist" : "is shorter"));
        continue;
      }
      // A member named by its offset alone is a pointer; a whole parameter is as long as it is.
      const uint32_t bytes = p.num_bytes ? *p.num_bytes : p.offset == 0 ? it->num_bytes : 8;
      ranges_.push_back({&p, it->offset + p.offset, it->offset + p.offset + bytes});
    }
    // The narrower range is meant where a struct and its member are both named.
    std::sort(ranges_.begin(), ranges_.end(),
              [](const Range& a, const Range& b) { return a.end - a.begin < b.end - b.begin; });
  }

  const Range* find(uint32_t param_offset) const {
    for (const Range& r : ranges_)
      if (param_offset >= r.begin && param_offset < r.end) return &r;
    return nullptr;
  }
  std::string name_of(uint32_t param_offset) const {
    if (const Range* r = find(param_offset)) return quote_name(r->param->name);
    for (const KernelParam& p : scan_.params)
      if (param_offset >= p.offset && param_offset - p.offset < p.num_bytes)
        return param_offset == p.offset ? fmt::format("parameter {}", p.ordinal)
                                        : fmt::format("parameter {} (byte {})", p.ordinal, param_offset - p.offset);
    return fmt::format("byte {} of the parameters", param_offset);
  }

  // The parameters that may be the base, scalars left out.
  std::vector<uint32_t> candidates(const AddressBase& base) const {
    std::vector<uint32_t> offsets;
    for (const uint32_t o : base.param_offsets)
      if (const Range* r = find(o); r == nullptr || !r->param->is_scalar) offsets.push_back(o);
    return offsets;
  }
  bool all_in(const std::vector<uint32_t>& offsets, const std::vector<std::string>& names) const {
    return std::all_of(offsets.begin(), offsets.end(), [&](uint32_t o) {
      const Range* r = find(o);
      return r != nullptr && contains(names, r->param->name);
    });
  }

  bool check_waits() {
    const bool exists = scan_.coverage != WaitCoverage::kNone;
    if (contract_.waits == ContractWaits::kNone) {
      if (contract_.pdl)
        add("no_wait_consumer",
            exists ? "launched with the programmatic attribute, but its contract says that it need not wait"
                   : "launched with the programmatic attribute, but never waits for the grids before it");
      return false;
    }
    if (!exists) {
      add("attr_without_wait_in_binary",
          fmt::format("the contract has {} wait, but the code holds no ACQBULK (griddepcontrol.wait){}",
                      contract_.waits == ContractWaits::kAll ? "every thread" : "some thread of each CTA",
                      contract_.pdl ? "; it is launched with the programmatic attribute" : ""));
      return false;
    }
    const bool enough = contract_.waits == ContractWaits::kAll ? scan_.coverage == WaitCoverage::kAllThreads
                                                               : scan_.coverage == WaitCoverage::kAllThreads ||
                                                                     scan_.coverage == WaitCoverage::kSomeThreads;
    if (enough) return true;
    const std::string wanted = contract_.waits == ContractWaits::kAll ? "the contract has every thread wait"
                                                                      : "no thread of the CTA need have waited";
    if (scan_.unwaited_exits.empty())
      add("wait_not_on_every_path",
          "control flow is not known everywhere, so the wait cannot be shown to be on every path");
    for (const UnwaitedExit& e : scan_.unwaited_exits)
      add_at("wait_not_on_every_path", e.offset, "EXIT",
             fmt::format("is reached without a wait, {}; {}", path_text(e.path), wanted));
    return true;
  }

  void check_triggers() {
    if (contract_.trigger == ContractTrigger::kAny) {
    } else if (contract_.trigger == ContractTrigger::kNone) {
      for (const TriggerSite& t : scan_.triggers)
        add_at("unexpected_trigger", t.offset, "PREEXIT", "lets dependents start, but the contract has no trigger");
    } else if (scan_.triggers.empty()) {
      add("missing_trigger",
          "the contract has a trigger, but the code holds no PREEXIT (griddepcontrol.launch_dependents)");
    } else if (contract_.trigger == ContractTrigger::kAfterWait) {
      for (const TriggerSite& t : scan_.triggers)
        if (t.order != Order::kAfterWait && t.order != Order::kAfterBarrier)
          add_at("early_trigger", t.offset, "PREEXIT",
                 fmt::format("lets dependents start {} the wait; the contract has it after the wait",
                             t.some_path_waited ? "on some path before" : "before"));
    }
    if (!contract_.stores_before_trigger) return;
    for (const AccessSite& a : scan_.accesses)
      if (a.may_follow_trigger && (a.access.kind == AccessKind::kWrite || a.access.kind == AccessKind::kReadWrite))
        add_at("store_after_trigger", a.offset, a.text,
               "may run after a trigger; the contract has all stores before it");
  }

  void check_access(const AccessSite& a) {
    if (a.order == Order::kAfterWait || (a.base.is_param_block && !a.access.is_descriptor)) return;
    const std::vector<uint32_t> bases = candidates(a.base);
    const bool is_known = !bases.empty() && !a.base.may_be_other;
    const bool is_read = a.access.kind == AccessKind::kRead;
    const bool is_prefetch = a.access.kind == AccessKind::kPrefetch;
    if (is_known) {
      if ((is_read || is_prefetch) && all_in(bases, contract_.pre_wait_reads)) return;
      if (is_prefetch && all_in(bases, contract_.pre_wait_prefetches)) return;
      if (!is_read && !is_prefetch && all_in(bases, contract_.pre_wait_writes)) return;
    }
    // The read-only path is coherent with nothing, whatever barriers stand before it.
    if (a.order != Order::kBeforeWait && !a.access.is_nc) {
      if (contains(contract_.ordered_by_barrier, "*")) return;
      if (is_known && all_in(bases, contract_.ordered_by_barrier)) return;
    }
    if (!is_known && !a.access.is_nc && contains(contract_.allow_unknown_before_wait, a.opcode_name)) return;
    add_at(rule_of(a, is_known), a.offset, a.text, sentence_of(a, bases, is_known));
  }

  static std::string rule_of(const AccessSite& a, bool is_known) {
    if (a.access.is_nc) return "restrict_hoist";
    if (!is_known) return "unknown_before_wait";
    switch (a.access.kind) {
      case AccessKind::kRead: return "read_before_wait";
      case AccessKind::kPrefetch: return "prefetch_mutable";
      default: return "write_before_wait";
    }
  }

  std::string sentence_of(const AccessSite& a, const std::vector<uint32_t>& bases, bool is_known) const {
    std::string what;
    switch (a.access.kind) {
      case AccessKind::kRead: what = "reads "; break;
      case AccessKind::kWrite: what = "writes "; break;
      case AccessKind::kReadWrite: what = "updates "; break;
      case AccessKind::kPrefetch: what = "prefetches "; break;
    }
    for (size_t i = 0; i < bases.size(); ++i) what += fmt::format("{}{}", i == 0 ? "" : " or ", name_of(bases[i]));
    if (bases.empty())
      what += "through an address that no parameter was traced to";
    else if (!is_known)
      what += " or something that is no parameter";
    switch (a.order) {
      case Order::kAfterBarrier:
        what += " behind a barrier that a waiting thread passes, but not behind a wait of its own";
        break;
      case Order::kAfterMbarrier: what += " behind an mbarrier, but not behind a wait of its own"; break;
      default: what += " before the grid dependency wait";
    }
    what += fmt::format(" ({})", path_text(a.path));
    if (a.access.is_nc)
      what +=
          ", by the read-only path (const __restrict__, __ldg or ld.global.nc), which the compiler may lift over waits "
          "and barriers";
    return what + "; the contract does not allow it";
  }

  void check_opaque(const OpaqueSite& o) {
    if (o.order != Order::kBeforeWait && contains(contract_.ordered_by_barrier, "*")) return;
    const std::string_view text = o.text;
    const std::string_view name = text.substr(0, text.find_first_of(" ."));
    if (contains(contract_.allow_unknown_before_wait, name)) return;
    add_at("unknown_before_wait", o.offset, o.text,
           fmt::format("may run before the grid dependency wait: {}, which may touch global memory", o.what));
  }

  void check_unfenced(const UnfencedCopy& u) {
    const std::string_view space = u.is_global ? "global" : "shared";
    if (contains(contract_.allow_unfenced, space)) return;
    add_at(
        "missing_proxy_fence", u.copy_offset, u.copy_text,
        fmt::format(
            "lets the copy engine read {} memory after the ordinary store at {:#06x} ({}) with no proxy fence between",
            space, u.store_offset, u.store_text));
  }

  void check_resources() {
    if (contract_.no_spills && (scan_.frame_bytes != 0 || scan_.num_local_accesses != 0))
      add("spills", fmt::format("uses {} bytes of local memory a thread ({} instructions); the contract has no spills",
                                scan_.frame_bytes, scan_.num_local_accesses));
    if (contract_.max_registers && scan_.num_registers > *contract_.max_registers)
      add("too_many_registers", fmt::format("takes {} registers a thread; the contract has at most {}",
                                            scan_.num_registers, *contract_.max_registers));
  }

  const KernelScan& scan_;
  const KernelContract& contract_;
  std::vector<Range> ranges_;
  std::vector<CubinFinding> findings_;
};

}  // namespace

std::vector<CubinFinding> compare_kernel(const KernelScan& scan, const KernelContract& contract) {
  return Comparison(scan, contract).run();
}

std::vector<CubinFinding> compare_with_contract(const std::vector<KernelScan>& scans, const CubinContract& contract) {
  std::vector<CubinFinding> findings;
  for (const KernelContract& c : contract.kernels)
    if (std::none_of(scans.begin(), scans.end(), [&](const KernelScan& s) { return s.kernel == c.kernel; }))
      findings.push_back(
          {"kernel_missing", c.kernel, std::nullopt, "",
           fmt::format("kernel {}: the contract names it, but the cubin has no such kernel", quote_name(c.kernel))});
  for (const KernelScan& scan : scans) {
    const auto it = std::find_if(contract.kernels.begin(), contract.kernels.end(),
                                 [&](const KernelContract& c) { return c.kernel == scan.kernel; });
    if (it == contract.kernels.end()) {
      findings.push_back(
          {"no_contract", scan.kernel, std::nullopt, "",
           fmt::format("kernel {}: the cubin has it, but no contract speaks of it", quote_name(scan.kernel))});
      continue;
    }
    auto of_kernel = compare_kernel(scan, *it);
    findings.insert(findings.end(), std::make_move_iterator(of_kernel.begin()),
                    std::make_move_iterator(of_kernel.end()));
  }
  return findings;
}

}  // namespace megartp::sass
