// megartp verify MODEL, megartp verify plan FILE: the proof of a plan, its findings and what it looked at.
#include <chrono>
#include <iostream>

#include <fmt/format.h>

#include "cli/plan_build.h"
#include "cli/verify.h"
#include "plan/plan_structure.h"
#include "verify/plan/plan_proof.h"

namespace megartp::cli {
namespace {

constexpr const char* kVerifyPlan = "verify-plan";

// What the runner keeps in shared memory; the rest of its limits are the target's.
struct FrameOptions {
  uint32_t num_pages = 0;
  uint32_t scratch_bytes = 0;
  uint32_t max_queue_depth = 0;
};
void add_frame_options(CLI::App& app, FrameOptions& frame) {
  app.add_option("--pages", frame.num_pages, "Shared-memory pages that the runner keeps (default: not checked)");
  app.add_option("--scratch-bytes", frame.scratch_bytes, "What else it keeps in shared memory");
  app.add_option("--max-queue-depth", frame.max_queue_depth,
                 "Instructions that one of its queues holds (default: any)");
}

struct VerifyModelArgs {
  CommonOptions common;
  ModelOptions model;
  BatchOptions batch;
  PlanOptions plan;
  FrameOptions frame;
  int64_t num_layers = 1;
};
struct VerifyPlanArgs {
  CommonOptions common;
  FrameOptions frame;
  std::string file;
  std::string target;  // "": the plan's
};

Json to_json(const PlanFinding& f) {
  Json j;
  j["fault"] = to_string(f.fault);
  j["severity"] = f.is_warning ? "warning" : "error";
  j["message"] = f.message;
  j["places"] = Json::array();
  for (const PlanPlace& p : f.places)
    j["places"].push_back({{"worker", p.worker}, {"slot", p.slot}, {"task", p.task}, {"name", p.name}});
  if (!f.tensor.empty()) j["tensor"] = f.tensor;
  if (f.event >= 0) j["event"] = f.event;
  return j;
}

int report(const KernelPlan& plan, const PlanLimits& limits, const CommonOptions& common) {
  const auto start = std::chrono::steady_clock::now();
  const PlanProof proof = prove_plan(plan, limits);
  const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count();
  const int code = proof.is_proved() ? 0 : exit_code(ErrorCode::kMismatch);
  const PlanProofStats& s = proof.stats;
  if (common.json) {
    Json j;
    j["graph"] = plan.graph_name;
    j["target"] = limits.name;
    j["proved"] = proof.is_proved();
    j["findings"] = Json::array();
    for (const PlanFinding& f : proof.findings) j["findings"].push_back(to_json(f));
    j["statistics"] = {{"tasks", s.num_tasks},         {"workers", plan.num_workers},
                       {"events", s.num_events},       {"join_groups", s.num_join_groups},
                       {"regions", s.num_regions},     {"distinct_regions", s.num_distinct_regions},
                       {"orderings", s.num_orderings}, {"shared_tensors", s.num_shared_tensors},
                       {"passes", s.num_passes},       {"prove_ns", ns}};
    print_json(kVerifyPlan, std::move(j));
    return code;
  }
  for (const PlanFinding& f : proof.findings)
    std::cout << fmt::format("{} {}: {}\n", f.is_warning ? "warning" : "error", to_string(f.fault), f.message);
  if (!common.quiet) {
    std::cout << fmt::format("{} for {}: {}\n", plan.graph_name, limits.name,
                             proof.is_proved() ? "proved" : "NOT proved");
    std::cout << fmt::format(
        "{} tasks, {} workers, {} events, {} join groups; {} regions, {} distinct, {} orderings; {:.2f} ms\n",
        s.num_tasks, plan.num_workers, s.num_events, s.num_join_groups, s.num_regions, s.num_distinct_regions,
        s.num_orderings, ns / 1e6);
  }
  return code;
}

Result<PlanLimits> limits_for(const std::string& target, const FrameOptions& frame) {
  PlanLimits limits = plan_limits(MEGARTP_TRY(find_target(target)));
  limits.num_pages = frame.num_pages;
  limits.scratch_bytes = frame.scratch_bytes;
  limits.max_queue_depth = frame.max_queue_depth;
  return limits;
}

int verify_model(const VerifyModelArgs& a) {
  if (a.model.model.empty())
    return print_error(Error{ErrorCode::kInvalidArgument,
                             "verify: give a model name or what to verify, as in 'verify "
                             "plan FILE' (--help shows the usage)"},
                       a.common, kVerifyPlan);
  const Model model = value_or_exit(load_model(a.model), a.common, kVerifyPlan);
  const OpGraph graph = glm52::attention_pre_graph(model.config, model.options, a.model.layer, a.num_layers);
  if (!graph.status()) return print_error(graph.status().error(), a.common, kVerifyPlan);
  const ShapeEnv shapes =
      value_or_exit(glm52::decode_shapes(a.batch.m, a.batch.kv, a.batch.num_requests()), a.common, kVerifyPlan);
  const BuiltPlan built = value_or_exit(build_plan(graph, shapes, a.plan), a.common, kVerifyPlan);
  return report(*built.plan, value_or_exit(limits_for(a.plan.target, a.frame), a.common, kVerifyPlan), a.common);
}

int verify_plan(const VerifyPlanArgs& a) {
  const KernelPlan plan = value_or_exit(load_plan_structure(a.file), a.common, kVerifyPlan);
  const std::string& target = a.target.empty() ? plan.target : a.target;
  return report(plan, value_or_exit(limits_for(target, a.frame), a.common, kVerifyPlan), a.common);
}

}  // namespace

Command add_verify_model(CLI::App& verify) {
  auto args = std::make_shared<VerifyModelArgs>();
  add_common_options(verify, args->common);
  add_model_options(verify, args->model);
  verify.get_option("model")->required(false);  // `verify plan` and its like take none
  add_batch_options(verify, args->batch);
  add_plan_options(verify, args->plan, "h200");
  add_frame_options(verify, args->frame);
  verify.add_option("--layers", args->num_layers, "Consecutive layers in one graph")
      ->check(CLI::Range(1, 10000))
      ->capture_default_str();
  return {&verify, [args] { return verify_model(*args); }};
}

Command add_verify_plan(CLI::App& verify) {
  auto args = std::make_shared<VerifyPlanArgs>();
  CLI::App* app = verify.add_subcommand("plan", "Prove a saved plan free of races and deadlocks");
  add_common_options(*app, args->common);
  app->add_option("plan", args->file, "Plan file")->required();
  app->add_option("--target", args->target, "What is to run it (default: what the plan was made for)");
  add_frame_options(*app, args->frame);
  app->footer(
      "Example:\n"
      "  megartp plan glm52-attention-pre -q -o layer.plan && megartp verify plan layer.plan");
  return {app, [args] { return verify_plan(*args); }};
}

}  // namespace megartp::cli
