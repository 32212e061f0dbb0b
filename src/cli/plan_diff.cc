// megartp plan diff: what differs between two saved plans.
#include <iostream>

#include <fmt/format.h>

#include "cli/cli.h"
#include "plan/plan_diff.h"

namespace megartp::cli {
namespace {

constexpr const char* kDiffCommand = "plan-diff";

struct PlanDiffArgs {
  CommonOptions common;
  std::string a, b;
};

Json to_json(const DiffValue& value) {
  if (const auto* number = std::get_if<uint64_t>(&value)) return *number;
  if (const auto* text = std::get_if<std::string>(&value)) return *text;
  if (const auto* histogram = std::get_if<Histogram>(&value)) {
    Json j = Json::object();
    for (const auto& [key, count] : *histogram) j[std::to_string(key)] = count;
    return j;
  }
  return nullptr;
}

Json to_json(const std::vector<FieldDiff>& fields) {
  Json j = Json::object();
  for (const FieldDiff& f : fields) j[f.field] = {{"a", to_json(f.a)}, {"b", to_json(f.b)}};
  return j;
}

Json to_json(const std::vector<ItemDiff>& items) {
  constexpr const char* kPresence[] = {"both", "only_a", "only_b"};
  Json j = Json::array();
  for (const ItemDiff& item : items)
    j.push_back(
        {{"name", item.name}, {"in", kPresence[static_cast<size_t>(item.presence)]}, {"fields", to_json(item.fields)}});
  return j;
}

Json to_json(const PlanDiffArgs& args, const PlanDiff& diff) {
  Json j;
  j["a"] = args.a;
  j["b"] = args.b;
  j["identical"] = diff.is_identical;
  j["header"] = to_json(diff.header);
  j["ops"] = to_json(diff.ops);
  j["tensors"] = to_json(diff.tensors);
  j["specs"] = to_json(diff.specs);
  j["placement"] = Json::array();
  for (const PlacementDiff& p : diff.placement)
    j["placement"].push_back({{"name", p.name},
                              {"tasks", p.num_tasks},
                              {"other_worker", p.num_other_worker},
                              {"other_slot", p.num_other_slot},
                              {"other_contents", p.num_other_contents}});
  return j;
}

void print_items(const char* what, const std::vector<ItemDiff>& items) {
  if (items.empty()) return;
  Table table({what, "field", "a", "b"});
  for (const ItemDiff& item : items) {
    std::string name = item.name;
    for (const FieldDiff& f : item.fields) {
      table.add_row({name, f.field, to_string(f.a), to_string(f.b)});
      name.clear();
    }
  }
  std::cout << "\n" << table.to_string();
}

void print_text(const PlanDiffArgs& args, const PlanDiff& diff) {
  if (diff.is_identical) {
    std::cout << fmt::format("{} and {}: the plans are identical\n", args.a, args.b);
    return;
  }
  std::cout << fmt::format("a: {}\nb: {}\n", args.a, args.b);
  if (!diff.header.empty()) {
    Table table({"plan", "a", "b"});
    for (const FieldDiff& f : diff.header) table.add_row({f.field, to_string(f.a), to_string(f.b)});
    std::cout << "\n" << table.to_string();
  }
  print_items("op", diff.ops);
  print_items("tensor", diff.tensors);
  print_items("spec", diff.specs);
  if (!diff.placement.empty()) {
    Table table({"op", "tasks in both", "other worker", "other slot", "other contents"});
    for (const PlacementDiff& p : diff.placement)
      table.add_row({p.name, std::to_string(p.num_tasks), std::to_string(p.num_other_worker),
                     std::to_string(p.num_other_slot), std::to_string(p.num_other_contents)});
    std::cout << "\n" << table.to_string();
  }
  if (diff.header.empty() && diff.ops.empty() && diff.tensors.empty() && diff.specs.empty() && diff.placement.empty())
    std::cout << "\nThe plans differ only in how tasks, rows, tensors, events or specs are numbered.\n";
}

int run_plan_diff(const PlanDiffArgs& args) {
  const KernelPlan a = value_or_exit(load_plan(args.a), args.common, kDiffCommand);
  const KernelPlan b = value_or_exit(load_plan(args.b), args.common, kDiffCommand);
  const PlanDiff diff = diff_plans(a, b);
  if (args.common.json)
    print_json(kDiffCommand, to_json(args, diff));
  else if (!args.common.quiet)
    print_text(args, diff);
  return diff.is_identical ? 0 : exit_code(ErrorCode::kMismatch);
}

}  // namespace

Command add_plan_diff_command(CLI::App& plan) {
  auto args = std::make_shared<PlanDiffArgs>();
  CLI::App* app = plan.add_subcommand("diff", "Compare two saved plans; exit code 1 when they differ");
  add_common_options(*app, args->common);
  app->add_option("a", args->a, "Plan file")->required();
  app->add_option("b", args->b, "Plan file")->required();
  app->footer(
      "Example:\n"
      "  megartp plan glm52-attention-pre --m 16 -q -o a.plan; megartp plan glm52-attention-pre --m 32 -q -o b.plan\n"
      "  megartp plan diff a.plan b.plan");
  return {app, [args] { return run_plan_diff(*args); }};
}

}  // namespace megartp::cli
