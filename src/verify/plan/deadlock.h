// Why a plan cannot progress: the circle of workers that wait for each other, or the event that nobody completes.
#pragma once

#include "verify/plan/happens_before.h"

namespace megartp::verify {

// `order.run()` has found stuck workers.
PlanFinding explain_deadlock(const PlanNodes& nodes, const HappensBefore& order);

}  // namespace megartp::verify
