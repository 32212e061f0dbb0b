#include "cli/plan_from_template.h"

#include <chrono>

#include <fmt/format.h>

#include "plan/plan_template.h"

namespace megartp::cli {

void add_template_options(CLI::App& app, TemplateOptions& options) {
  app.add_option("--template-m", options.m, "Cut the plan out of a template for this many rows")
      ->check(CLI::PositiveNumber);
  app.add_option("--template-kv", options.kv, "... and for requests of up to this length")->check(CLI::PositiveNumber);
  app.add_option("--template-requests", options.requests, "... and for this many requests")->check(CLI::PositiveNumber);
}

Result<BuiltPlan> build_plan_from_template(const OpGraph& graph, const BatchOptions& batch, const PlanOptions& options,
                                           const TemplateOptions& t) {
  using Clock = std::chrono::steady_clock;
  const auto us = [](Clock::time_point a, Clock::time_point b) {
    return std::chrono::duration<double, std::micro>(b - a).count();
  };
  const auto or_batch = [](int64_t value, int64_t from_batch) { return value != 0 ? value : from_batch; };
  const ShapeEnv shapes = MEGARTP_TRY(glm52::decode_shapes(batch.m, batch.kv, batch.num_requests()));
  const int64_t m = or_batch(t.m, batch.m);
  const int64_t kv = or_batch(t.kv, batch.kv);
  const ShapeEnv largest = MEGARTP_TRY(glm52::decode_shapes(m, kv, or_batch(t.requests, batch.num_requests())));
  PackOptions pack_options;
  pack_options.packer = MEGARTP_TRY(parse_packer(options.packer));
  pack_options.num_workers = options.workers;
  const TargetDesc target = MEGARTP_TRY(target_of(options));
  const LowerOptions lowering = MEGARTP_TRY(lower_options(options));
  const auto start = Clock::now();
  const PlanTemplate made = MEGARTP_TRY(PlanTemplate::make(graph, largest, lowering, target, pack_options));
  PlanInstance instance = made.instance();
  const auto ready = Clock::now();
  MEGARTP_TRY(instance.instantiate(shapes));
  const auto done = Clock::now();
  auto plan = std::make_shared<KernelPlan>(instance.plan());
  plan->graph_hash = graph_hash(graph);
  BuiltPlan built;
  built.how = fmt::format("template for M = {}, KV = {} made in {:.0f} us, instantiated in {:.0f} us", m, kv,
                          us(start, ready), us(ready, done));
  built.plan = std::move(plan);
  return built;
}

}  // namespace megartp::cli
