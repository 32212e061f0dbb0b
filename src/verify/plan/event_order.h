// event_order_plan: the same tasks and events in queues that order nothing by themselves.
#pragma once

#include "plan/kernel_plan.h"

namespace megartp {

// For runners that ignore a plan's queues (the dynamic schedule): a plan whose every queue is a chain of tasks, each of
// which waits for an event that the one before it in the chain signals. Such queues add no order to that of events and
// join groups, so what is proved of this plan holds in whatever order the tasks are handed out. The plan must have
// passed check_plan. Linear in instructions, waits and signals.
KernelPlan event_order_plan(const KernelPlan& plan);

}  // namespace megartp
