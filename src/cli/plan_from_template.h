// megartp plan --template-m/--template-kv: the plan comes out of a template for a larger shape.
#pragma once

#include "cli/plan_build.h"

namespace megartp::cli {

struct TemplateOptions {
  int64_t m = 0;  // 0: the batch's
  int64_t kv = 0;
  int64_t requests = 0;
  bool is_used() const { return m != 0 || kv != 0 || requests != 0; }
};

// Adds --template-m, --template-kv, --template-requests.
void add_template_options(CLI::App& app, TemplateOptions& options);

// Makes the template and from it the plan of the batch; `how` of the result says how long each took.
Result<BuiltPlan> build_plan_from_template(const OpGraph& graph, const BatchOptions& batch, const PlanOptions& options,
                                           const TemplateOptions& template_options);

}  // namespace megartp::cli
