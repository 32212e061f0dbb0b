// Plan templates: a graph is lowered and packed once, for its largest shape; plans for smaller ones are cut out of
// that.
//
//   auto made = PlanTemplate::make(graph, largest, {}, target, {});
//   PlanInstance instance = made->instance();      // one for each plan that is alive at a time
//   MEGARTP_TRY(instance.instantiate(shapes));     // microseconds
//   run(instance.plan());
//
// It works because of the clipping contract (ops/op_family.h): a smaller shape's tiles are a prefix of each stage's,
// and touch no more than their counterparts. So the largest plan's dependencies, restricted to the tiles that are left,
// are right; what changes is payloads, thresholds, increments and the numbering. docs/plan-templates.md has the
// details.
//
// A template is immutable and may be shared by threads. An instance owns its plan, because only an owner can know what
// a plan was last made for, which is what makes small changes cheap; nothing in the plan depends on that history.
#pragma once

#include <cstdint>
#include <memory>

#include "lowering/lower.h"
#include "plan/kernel_plan.h"

namespace megartp {

namespace plan {
struct TemplateData;
struct InstanceState;
}  // namespace plan

// What instantiate() had to do.
enum class Replan : uint8_t {
  kNothing,  // the plan was already that of these shapes
  kPatch,    // the same tiles with other payloads: requests changed, no tile came or went
  kRewrite,  // every instruction was written anew
};

class PlanInstance {
 public:
  PlanInstance(PlanInstance&&) noexcept;
  PlanInstance& operator=(PlanInstance&&) noexcept;
  ~PlanInstance();

  // Makes plan() the plan for `shapes`; what does not fit leaves it as it was. The same shapes give the same bytes,
  // whatever was instantiated before.
  // Errors: kInvalidArgument for a symbol without value or above the template's, for requests that do not match the
  // tensors or need more tiles than the template has; kUnsupported when tiles that are left out would order others
  // (lower that shape afresh).
  Result<Replan> instantiate(const ShapeEnv& shapes);

  // Tensors' dims, specs, events and counts are those of the shapes; arena offsets and the workspace's size stay those
  // of the largest. graph_hash is empty, as pack() leaves it.
  const KernelPlan& plan() const;

 private:
  friend class PlanTemplate;
  PlanInstance(std::shared_ptr<const plan::TemplateData> data, std::unique_ptr<plan::InstanceState> state);
  std::shared_ptr<const plan::TemplateData> data_;
  std::unique_ptr<plan::InstanceState> state_;
};

class PlanTemplate {
 public:
  // Lowers for any shape up to `largest` (LowerOptions::any_shape is implied) and packs. Keeps a copy of the graph.
  // Errors: those of lower() and pack(); kUnsupported for a plan with relay tasks.
  static Result<PlanTemplate> make(const OpGraph& graph, const ShapeEnv& largest, const LowerOptions& lower_options,
                                   const TargetDesc& target, const PackOptions& pack_options);

  const ShapeEnv& largest() const;
  // An instance that holds the plan of the largest shape.
  PlanInstance instance() const;

 private:
  explicit PlanTemplate(std::shared_ptr<const plan::TemplateData> data) : data_(std::move(data)) {}
  std::shared_ptr<const plan::TemplateData> data_;
};

}  // namespace megartp
