// A task graph in the JSON shape of MPK (Mirage Persistent Kernel), for its tools and for comparison with its compiler.
//
//   all_tasks    0 terminate, 1 begin-task-graph, then our tasks so that an event's consumers are one range of ids
//   all_events   0 TERMINATION, 1 LAUNCH_DEPENDENT_TASKS, then one an event of ours by first consumer, last
//                END_OF_TASK_GRAPH, which all tasks trigger that nothing waits for
//   first_tasks  ids of the tasks that wait for nothing; they follow task 1
//
// What differs from a file of MPK's: task_type is our opcode and task_name its name, because MPK's task types are its
// own kernels (0 and 10, terminate and begin, are MPK's); variant_id numbers the specs of one opcode; task_offset is
// the tile's index; relay tasks are tasks without inputs and outputs. A task may have more inputs and outputs than
// MPK's 7 and 3. MPK has no join groups: every task of a group triggers the group's event and lists the regions of its
// final tiles, and the event counts all of them. "megartp" at the end says all this in the file.
#pragma once

#include <string>

#include "lowering/task_graph.h"

namespace megartp {

struct MpkOptions {
  // MPK's compiler ends by rewriting everything to be launched ahead of time: event 1 launches all tasks, each task
  // names the event that it waits for, and events only count. Without the rewrite an event launches its consumers
  // (LAUNCH_TASKS, LAUNCH_MASSIVE_TASKS from 8 on) and event 1 the first tasks.
  bool ahead_of_time = true;
};

// Time and text are linear in tasks and their regions. Errors: kInvalidArgument for a task with more than one wait or
// signal (derive the events with max_waits = max_signals = 1) or a graph without tasks; kInternal for a cycle or for
// regions that do not fit their tensors.
Result<std::string> to_mpk_json(const TaskGraph& graph, const MpkOptions& options = {});

}  // namespace megartp
