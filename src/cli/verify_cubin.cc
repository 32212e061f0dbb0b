// megartp verify cubin: what a compiled kernel does before its grid dependency wait, against its contract.
#include <iostream>
#include <optional>

#include <fmt/format.h>

#include "cli/verify.h"
#include "verify/sass/cubin.h"
#include "verify/sass/kernel_contract.h"
#include "verify/sass/sass_listing.h"
#include "verify/sass/sass_scan.h"

namespace megartp::cli {
namespace {

constexpr const char* kVerifyCubin = "verify-cubin";

struct VerifyCubinArgs {
  CommonOptions common;
  std::string file;
  std::string contract;
  bool listing = false;
};

std::string hex(uint32_t offset) { return fmt::format("{:#06x}", offset); }

Json path_json(const sass::Path& path) {
  Json j = Json::array();
  for (const sass::Jump& jump : path) j.push_back({{"from", jump.from}, {"to", jump.to}});
  return j;
}

Json access_json(const sass::AccessSite& a) {
  Json j;
  j["offset"] = a.offset;
  j["instruction"] = a.text;
  j["kind"] = to_string(a.access.kind);
  j["nc"] = a.access.is_nc;
  j["order"] = to_string(a.order);
  j["may_follow_trigger"] = a.may_follow_trigger;
  j["param_offsets"] = a.base.param_offsets;
  j["base_known"] = a.base.is_known();
  if (a.order != sass::Order::kAfterWait) j["path"] = path_json(a.path);
  return j;
}

Json scan_json(const sass::KernelScan& s) {
  Json j;
  j["kernel"] = s.kernel;
  j["instructions"] = s.num_instructions;
  j["registers"] = s.num_registers;
  j["frame_bytes"] = s.frame_bytes;
  j["local_accesses"] = s.num_local_accesses;
  j["static_smem_bytes"] = s.static_smem_bytes;
  j["max_threads"] = s.max_threads;
  j["params"] = Json::array();
  for (const sass::KernelParam& p : s.params)
    j["params"].push_back({{"index", p.ordinal}, {"offset", p.offset}, {"bytes", p.num_bytes}});
  j["coverage"] = to_string(s.coverage);
  j["waits"] = Json::array();
  for (const sass::WaitSite& w : s.waits) j["waits"].push_back({{"offset", w.offset}, {"guarded", w.is_guarded}});
  j["unwaited_exits"] = Json::array();
  for (const sass::UnwaitedExit& e : s.unwaited_exits)
    j["unwaited_exits"].push_back({{"offset", e.offset}, {"path", path_json(e.path)}});
  j["triggers"] = Json::array();
  for (const sass::TriggerSite& t : s.triggers)
    j["triggers"].push_back(
        {{"offset", t.offset}, {"order", to_string(t.order)}, {"some_path_waited", t.some_path_waited}});
  j["accesses"] = Json::array();
  for (const sass::AccessSite& a : s.accesses) j["accesses"].push_back(access_json(a));
  j["opaque"] = Json::array();
  for (const sass::OpaqueSite& o : s.opaque)
    j["opaque"].push_back(
        {{"offset", o.offset}, {"instruction", o.text}, {"what", o.what}, {"order", to_string(o.order)}});
  j["unfenced"] = Json::array();
  for (const sass::UnfencedCopy& u : s.unfenced)
    j["unfenced"].push_back(
        {{"store", u.store_offset}, {"copy", u.copy_offset}, {"space", u.is_global ? "global" : "shared"}});
  j["traced"] = s.is_traced;
  j["notes"] = s.notes;
  return j;
}

Json findings_json(const std::vector<sass::CubinFinding>& findings) {
  Json j = Json::array();
  for (const sass::CubinFinding& f : findings) {
    Json item;
    item["rule"] = f.rule;
    item["kernel"] = f.kernel;
    if (f.offset) item["offset"] = *f.offset;
    if (!f.instruction.empty()) item["instruction"] = f.instruction;
    item["message"] = f.message;
    j.push_back(std::move(item));
  }
  return j;
}

std::string base_text(const sass::AccessSite& a, const sass::KernelScan& s) {
  std::string text;
  for (const uint32_t offset : a.base.param_offsets) {
    std::string name = fmt::format("+{}", offset);
    for (const sass::KernelParam& p : s.params)
      if (offset >= p.offset && offset - p.offset < p.num_bytes)
        name = offset == p.offset ? fmt::format("param {}", p.ordinal)
                                  : fmt::format("param {}+{}", p.ordinal, offset - p.offset);
    text += (text.empty() ? "" : "|") + name;
  }
  if (a.base.may_be_other) text += text.empty() ? "unknown" : "|unknown";
  return text;
}

void print_scan(const sass::KernelScan& s, bool verbose) {
  std::cout << fmt::format("kernel {}: {} instructions, {} registers, {} B local, {} B shared\n", s.kernel,
                           s.num_instructions, s.num_registers, s.frame_bytes, s.static_smem_bytes);
  std::cout << fmt::format("  waits: {}", to_string(s.coverage));
  for (const sass::WaitSite& w : s.waits) std::cout << " " << hex(w.offset) << (w.is_guarded ? " (guarded)" : "");
  std::cout << "\n";
  for (const sass::TriggerSite& t : s.triggers)
    std::cout << fmt::format("  trigger: {} {}{}\n", hex(t.offset), to_string(t.order),
                             t.order == sass::Order::kBeforeWait && t.some_path_waited ? " (on some paths)" : "");
  for (const sass::UnwaitedExit& e : s.unwaited_exits)
    std::cout << fmt::format("  exit without a wait: {}\n", hex(e.offset));
  Table table({"  access", "order", "kind", "base", "instruction"});
  size_t hidden = 0;
  for (const sass::AccessSite& a : s.accesses) {
    if (a.order == sass::Order::kAfterWait && !verbose) {
      ++hidden;
      continue;
    }
    table.add_row({"  " + hex(a.offset), std::string(to_string(a.order)),
                   fmt::format("{}{}", to_string(a.access.kind), a.access.is_nc ? " nc" : ""), base_text(a, s),
                   a.text});
  }
  if (hidden != s.accesses.size()) std::cout << table.to_string();
  if (hidden != 0) std::cout << fmt::format("  {} accesses to global memory after the wait (-v lists them)\n", hidden);
  for (const sass::OpaqueSite& o : s.opaque)
    std::cout << fmt::format("  {}: {} ({}), {}\n", hex(o.offset), o.what, o.text, to_string(o.order));
  for (const sass::UnfencedCopy& u : s.unfenced)
    std::cout << fmt::format("  no proxy fence: {} memory, store {} then {} ({})\n", u.is_global ? "global" : "shared",
                             hex(u.store_offset), hex(u.copy_offset), u.copy_text);
  for (const std::string& note : s.notes) std::cout << "  note: " << note << "\n";
}

int run_verify_cubin(const VerifyCubinArgs& args) {
  const sass::Cubin cubin = value_or_exit(sass::load_cubin(args.file), args.common, kVerifyCubin);
  if (args.listing) {
    std::cout << sass::listing(cubin);
    return 0;
  }
  std::optional<sass::CubinContract> contract;
  if (!args.contract.empty())
    contract = value_or_exit(sass::load_cubin_contract(args.contract), args.common, kVerifyCubin);
  const std::vector<sass::KernelScan> scans = sass::scan_cubin(cubin);
  const std::vector<sass::CubinFinding> findings =
      contract ? sass::compare_with_contract(scans, *contract) : std::vector<sass::CubinFinding>{};
  const int code = findings.empty() ? 0 : exit_code(ErrorCode::kMismatch);
  if (args.common.json) {
    Json j;
    j["file"] = args.file;
    j["sm"] = cubin.sm;
    j["compared"] = contract.has_value();
    j["findings"] = findings_json(findings);
    j["kernels"] = Json::array();
    for (const sass::KernelScan& s : scans) j["kernels"].push_back(scan_json(s));
    print_json(kVerifyCubin, std::move(j));
    return code;
  }
  if (!contract) {
    for (const sass::KernelScan& s : scans) print_scan(s, args.common.verbose);
    return 0;
  }
  for (const sass::CubinFinding& f : findings) std::cout << fmt::format("{}: {}\n", f.rule, f.message);
  if (!args.common.quiet)
    std::cout << fmt::format("{}: {} kernels, {} findings\n", args.file, scans.size(), findings.size());
  return code;
}

}  // namespace

Command add_verify_cubin(CLI::App& verify) {
  auto args = std::make_shared<VerifyCubinArgs>();
  CLI::App* app =
      verify.add_subcommand("cubin", "Scan the kernels of an sm_90 cubin, and compare them with their contract");
  add_common_options(*app, args->common);
  app->add_option("file", args->file, "Cubin")->required();
  app->add_option("--contract", args->contract, "What the kernels promise, in JSON; every kernel needs an entry");
  app->add_flag("--listing", args->listing, "Print every instruction as it was decoded, nothing else");
  app->footer("Example:\n  megartp verify cubin kernels.cubin --contract kernels.json");
  return {app, [args] { return run_verify_cubin(*args); }};
}

}  // namespace megartp::cli
