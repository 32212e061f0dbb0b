// The part of an instantiation that asks op families: new dims, new stages, new payloads.
#pragma once

#include "plan/template_data.h"

namespace megartp::plan {

// What changed against the state's last shapes.
struct Changes {
  bool counts = false;  // tiles, groups or final tiles of a stage
  bool specs = false;
  bool payload_sizes = false;  // number of payload words of a task
};

// The symbols' values into state.new_symbols. Errors: a symbol without value or above the template's.
Status read_symbols(const TemplateData& data, const ShapeEnv& shapes, InstanceState& state);
// Takes the new symbols over: dims of graph tensors, and which ops see a change.
void apply_symbols(const TemplateData& data, InstanceState& state);
// Lowers the ops in state.op_changed again; fills changed_stages and changed_tensors.
Result<Changes> lower_changed_ops(const TemplateData& data, const ShapeEnv& shapes, InstanceState& state);

}  // namespace megartp::plan
