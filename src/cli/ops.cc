// megartp ops: the op families of this build.
#include <iostream>

#include <fmt/format.h>

#include "cli/cli.h"
#include "ops/op_family.h"

namespace megartp::cli {
namespace {

Json attr_json(const AttrValue& v) {
  return std::visit([](const auto& x) { return Json(x); }, v);
}

Json family_json(const OpFamily& family) {
  Json j;
  j["kind"] = family.kind();
  j["doc"] = family.doc();
  for (const OpcodeInfo& o : family.opcodes()) j["opcodes"].push_back({{"number", o.opcode}, {"name", o.name}});
  j["inputs"] = Json::array();
  for (const std::string_view name : family.input_names()) j["inputs"].push_back(name);
  j["attributes"] = Json::array();
  for (const AttrSpec& a : family.attr_specs())
    j["attributes"].push_back({{"name", a.name}, {"default", attr_json(a.default_value)}, {"doc", a.doc}});
  return j;
}

int run_ops(const CommonOptions& common) {
  if (common.json) {
    Json list = Json::array();
    for (const OpFamily* f : op_families()) list.push_back(family_json(*f));
    return print_json("ops", std::move(list));
  }
  Table table({"op", "opcodes", "what it computes"});
  for (const OpFamily* f : op_families()) {
    std::string opcodes;
    for (const OpcodeInfo& o : f->opcodes()) opcodes += fmt::format("{}{:#x}", opcodes.empty() ? "" : " ", o.opcode);
    table.add_row({std::string(f->kind()), opcodes, std::string(f->doc())});
  }
  std::cout << table.to_string();
  return 0;
}

}  // namespace

Command add_ops_command(CLI::App& root) {
  auto args = std::make_shared<CommonOptions>();
  CLI::App* app = root.add_subcommand("ops", "List the op families");
  add_common_options(*app, *args);
  return {app, [args] { return run_ops(*args); }};
}

}  // namespace megartp::cli
