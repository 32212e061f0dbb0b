#include "plan/simulate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include <fmt/format.h>

#include "abi/instruction.h"
#include "ops/op_family.h"

namespace megartp {
namespace {

// Something that happens at a time; those of one time in the order in which they were asked for.
struct SimEvent {
  enum class Kind : uint8_t { kStart, kReady, kComputed, kSignal };
  double time = 0;
  uint64_t order = 0;
  Kind kind = Kind::kStart;
  uint32_t idx = 0;  // worker, or event
  uint32_t increment = 0;
  bool operator<(const SimEvent& o) const { return time != o.time ? time > o.time : order > o.order; }
};
// A read that ends when each reader has got `target` bytes since the start of the simulation.
struct SimRead {
  double target = 0;
  uint64_t order = 0;
  uint32_t worker = 0;
  bool operator<(const SimRead& o) const { return target != o.target ? target > o.target : order > o.order; }
};

class Simulator {
 public:
  Simulator(const SimProgram& program, const SimCosts& costs) : p_(program), c_(costs) {
    times_.resize(p_.tasks.size());
    arrived_.assign(p_.join_counts.size(), 0);
    counts_.assign(p_.num_events, 0);
    last_add_.assign(p_.num_events, -std::numeric_limits<double>::infinity());
    waiting_.resize(p_.num_events);
    workers_.resize(p_.queue_offsets.size() - 1);
  }

  Result<SimResult> run() {
    for (uint32_t w = 0; w < workers_.size(); ++w) {
      workers_[w].next = workers_[w].fetching = p_.queue_offsets[w];
      at(c_.launch_ns, SimEvent::Kind::kStart, w);
    }
    while (step()) {
    }
    if (num_done_ != p_.queue.size())
      return make_error(ErrorCode::kDeadlock, fmt::format("simulation: {} of {} tasks wait for signals that never come",
                                                          p_.queue.size() - num_done_, p_.queue.size()));
    if (now_ > kMaxTimeNs)
      return make_error(ErrorCode::kInvalidArgument, "simulation: it takes more than a hundred years");
    return SimResult{now_ns(), std::move(times_), std::move(parts_)};
  }

 private:
  enum class Phase : uint8_t { kIdle, kWaiting, kOverhead, kRunning };
  struct Worker {
    uint32_t next = 0;      // queue position of the task at hand
    uint32_t fetching = 0;  // of the task whose weights are read ahead
    double fetched = 0;     // bytes of it
    double ahead = 0;       // bytes of all tasks that wait in the buffer
    Phase phase = Phase::kIdle;
    bool computing = false, reading = false;  // of the running task
    uint64_t read_order = 0;                  // of the read under way; 0: none
    double read_from = 0, read_bytes = 0;
    bool is_ahead = false;  // the read under way is ahead of its task
    uint32_t read_task = 0;
    double read_begin = 0, compute_begin = 0;  // times
  };

  void at(double time, SimEvent::Kind kind, uint32_t idx, uint32_t increment = 0) {
    events_.push({time, ++order_, kind, idx, increment});
  }

  // --- reads: all that are under way advance alike, so one number tells how far each is ---

  double rate() const {
    const double share = c_.chip_bytes_per_ns / static_cast<double>(num_reads_);
    return c_.worker_bytes_per_ns > 0 ? std::min(c_.worker_bytes_per_ns, share) : share;
  }
  void advance(double time) {
    if (num_reads_ > 0) level_ += rate() * (time - now_);
    now_ = time;
  }
  void begin_read(uint32_t w, uint32_t task, double num_bytes, bool is_ahead) {
    Worker& worker = workers_[w];
    worker.read_task = task;
    worker.read_begin = now_;
    worker.read_order = ++order_;
    worker.read_from = level_;
    worker.read_bytes = num_bytes;
    worker.is_ahead = is_ahead;
    reads_.push({level_ + num_bytes, worker.read_order, w});
    ++num_reads_;
  }
  // How much of the read under way has come; it is over then.
  double end_read(Worker& worker, bool complete) {
    --num_reads_;
    worker.read_order = 0;
    add_part(worker.read_task, true, worker.read_begin);
    return complete ? worker.read_bytes : std::clamp(level_ - worker.read_from, 0.0, worker.read_bytes);
  }

  void add_part(uint32_t task, bool is_read, double begin) {
    const uint64_t begin_ns = to_ns(begin);
    if (begin_ns < now_ns()) parts_.push_back({task, is_read, begin_ns, now_ns()});
  }

  bool step() {
    while (!reads_.empty() && workers_[reads_.top().worker].read_order != reads_.top().order) reads_.pop();
    const double inf = std::numeric_limits<double>::infinity();
    const double read_time = reads_.empty() ? inf : now_ + std::max(0.0, reads_.top().target - level_) / rate();
    const double event_time = events_.empty() ? inf : events_.top().time;
    if (read_time == inf && event_time == inf) return false;
    if (read_time < event_time) {
      const SimRead read = reads_.top();
      reads_.pop();
      advance(read_time);
      level_ = std::max(level_, read.target);
      read_done(read.worker);
      return true;
    }
    const SimEvent event = events_.top();
    events_.pop();
    advance(event.time);
    switch (event.kind) {
      case SimEvent::Kind::kStart: start_next(event.idx); break;
      case SimEvent::Kind::kReady: run_task(event.idx); break;
      case SimEvent::Kind::kComputed:
        workers_[event.idx].computing = false;
        if (task_of(event.idx).fixed_ns < 0)
          add_part(p_.queue[workers_[event.idx].next], false, workers_[event.idx].compute_begin);
        maybe_done(event.idx);
        break;
      case SimEvent::Kind::kSignal: add(event.idx, event.increment); break;
    }
    return true;
  }

  void read_done(uint32_t w) {
    Worker& worker = workers_[w];
    const bool was_ahead = worker.is_ahead;
    const double bytes = end_read(worker, true);
    if (was_ahead) {
      worker.fetched += bytes;
      worker.ahead += bytes;
      read_ahead(w);
    } else {
      worker.reading = false;
      if (!maybe_done(w)) read_ahead(w);
    }
  }

  // Goes on reading weights of tasks to come, where there is room.
  void read_ahead(uint32_t w) {
    Worker& worker = workers_[w];
    if (c_.prefetch_bytes == 0 || c_.chip_bytes_per_ns <= 0 || worker.read_order != 0) return;
    const double room = static_cast<double>(c_.prefetch_bytes) - worker.ahead;
    if (room < 1) return;
    for (; worker.fetching < p_.queue_offsets[w + 1]; ++worker.fetching, worker.fetched = 0) {
      const SimTask& task = p_.tasks[p_.queue[worker.fetching]];
      const double left = task.fixed_ns >= 0 ? 0 : static_cast<double>(task.cost.weight_bytes) - worker.fetched;
      if (left < 1) continue;
      begin_read(w, p_.queue[worker.fetching], std::min(left, room), true);
      return;
    }
  }

  // --- tasks ---

  const SimTask& task_of(uint32_t w) const { return p_.tasks[p_.queue[workers_[w].next]]; }
  SimTimes& times_of(uint32_t w) { return times_[p_.queue[workers_[w].next]]; }
  static constexpr double kMaxTimeNs = 4e18;
  static uint64_t to_ns(double time) { return static_cast<uint64_t>(std::llround(std::min(time, kMaxTimeNs))); }
  uint64_t now_ns() const { return to_ns(now_); }

  void start_next(uint32_t w) {
    Worker& worker = workers_[w];
    worker.phase = Phase::kIdle;
    if (worker.next == p_.queue_offsets[w + 1]) return;
    times_of(w).visible_ns = now_ns();
    worker.phase = Phase::kWaiting;
    read_ahead(w);
    look_at_waits(w);
  }

  void look_at_waits(uint32_t w) {
    const SimTask& task = task_of(w);
    for (uint32_t i = 0; i < task.num_waits; ++i) {
      const abi::Wait& wait = p_.waits[task.first_wait + i];
      if (counts_[wait.event] >= wait.threshold) continue;
      waiting_[wait.event].push_back(w);
      return;
    }
    times_of(w).ready_ns = now_ns();
    workers_[w].phase = Phase::kOverhead;
    at(now_ + (task.fixed_ns >= 0 ? 0 : c_.task_ns), SimEvent::Kind::kReady, w);
  }

  void run_task(uint32_t w) {
    Worker& worker = workers_[w];
    const SimTask& task = task_of(w);
    worker.phase = Phase::kRunning;
    worker.computing = true;
    worker.compute_begin = now_;
    double compute_ns = task.fixed_ns;
    if (compute_ns < 0)
      compute_ns = c_.worker_flops_per_ns > 0 ? static_cast<double>(task.cost.flops) / c_.worker_flops_per_ns : 0;
    at(now_ + compute_ns, SimEvent::Kind::kComputed, w);
    if (task.fixed_ns >= 0 || c_.chip_bytes_per_ns <= 0) return;
    if (worker.read_order != 0) {  // one that was ahead of its task
      const double bytes = end_read(worker, false);
      worker.fetched += bytes;
      worker.ahead += bytes;
    }
    const auto weights = static_cast<double>(task.cost.weight_bytes);
    double here = 0;
    if (worker.fetching > worker.next) {
      here = weights;
    } else {
      here = std::min(worker.fetched, weights);
      worker.fetching = worker.next + 1;
      worker.fetched = 0;
    }
    worker.ahead = std::max(0.0, worker.ahead - here);
    const double left = weights - here + static_cast<double>(task.cost.other_bytes);
    worker.reading = left > 0;
    if (worker.reading)
      begin_read(w, p_.queue[worker.next], left, false);
    else
      read_ahead(w);
  }

  bool maybe_done(uint32_t w) {
    Worker& worker = workers_[w];
    if (worker.phase != Phase::kRunning || worker.computing || worker.reading) return false;
    const SimTask& task = task_of(w);
    SimTimes& times = times_of(w);
    times.done_ns = now_ns();
    times.sent = task.join_group == abi::kNoJoin || ++arrived_[task.join_group] == p_.join_counts[task.join_group];
    double send = now_;
    if (times.sent) {
      for (uint32_t i = 0; i < task.num_signals; ++i) {
        const abi::Signal& signal = p_.signals[task.first_signal + i];
        if (i > 0) send += c_.signal_ns;
        last_add_[signal.event] = std::max(send + c_.event_ns, last_add_[signal.event] + c_.contended_add_ns);
        at(last_add_[signal.event], SimEvent::Kind::kSignal, signal.event, abi::increment(signal));
      }
    }
    ++num_done_;
    ++worker.next;
    worker.phase = Phase::kIdle;
    at(send + c_.gap_ns, SimEvent::Kind::kStart, w);
    return true;
  }

  void add(uint32_t event, uint32_t increment) {
    counts_[event] += increment;
    std::vector<uint32_t> workers = std::exchange(waiting_[event], {});
    for (const uint32_t w : workers) look_at_waits(w);
  }

  const SimProgram& p_;
  const SimCosts& c_;
  std::vector<SimTimes> times_;
  std::vector<SimPart> parts_;
  std::vector<uint32_t> arrived_;
  std::vector<uint64_t> counts_;
  std::vector<double> last_add_;                // of each event: when its latest add arrives
  std::vector<std::vector<uint32_t>> waiting_;  // of each event: workers that look again when it moves
  std::vector<Worker> workers_;
  std::priority_queue<SimEvent> events_;
  std::priority_queue<SimRead> reads_;
  uint64_t order_ = 0;
  uint32_t num_reads_ = 0;
  size_t num_done_ = 0;
  double now_ = 0;
  double level_ = 0;  // bytes that a reader which never paused would have got
};

Status check_program(const SimProgram& p) {
  std::vector<bool> seen(p.tasks.size());
  for (const uint32_t t : p.queue) {
    if (t >= p.tasks.size() || seen[t])
      return make_error(
          ErrorCode::kInvalidArgument,
          fmt::format("simulation: task {} of {} is not there, or stands in two places", t, p.tasks.size()));
    seen[t] = true;
  }
  if (p.queue_offsets.size() < 2)
    return make_error(ErrorCode::kInvalidArgument, "simulation: a program without workers");
  return {};
}

}  // namespace

std::vector<TaskCost> task_costs(const TaskGraph& graph) {
  std::vector<TaskCost> costs(graph.tasks.size());
  TileDesc tile;
  tile.wants_regions = false;
  for (size_t t = 0; t < costs.size(); ++t) {
    const Task& task = graph.tasks[t];
    if (is_relay(graph.stages[task.stage])) continue;
    tile.clear();
    graph.stages[task.stage].stage->tile(task.tile, tile);
    costs[t] = {tile.weight_bytes, tile.other_bytes, tile.flops};
  }
  return costs;
}

SimProgram make_sim_program(const KernelPlan& plan, std::span<const TaskCost> costs) {
  SimProgram p;
  p.tasks.resize(plan.num_tasks);
  p.join_counts = plan.join_counts;
  p.num_events = static_cast<uint32_t>(plan.events.size());
  p.queue_offsets.push_back(0);
  for (uint32_t w = 0; w < plan.num_workers; ++w) {
    for (uint32_t slot = 0; slot < plan.queue_depth; ++slot) {
      const abi::Instruction& i = plan.instruction(w, slot);
      if (i.opcode == abi::kOpcodeNoOp) continue;
      SimTask& task = p.tasks[i.task_id];
      if (i.task_id < costs.size()) task.cost = costs[i.task_id];
      task.first_wait = static_cast<uint32_t>(p.waits.size());
      task.num_waits = abi::num_waits(i);
      p.waits.insert(p.waits.end(), i.waits, i.waits + task.num_waits);
      task.first_signal = static_cast<uint32_t>(p.signals.size());
      task.num_signals = abi::num_signals(i);
      p.signals.insert(p.signals.end(), i.signals, i.signals + task.num_signals);
      task.join_group = i.join_counter;
      p.queue.push_back(i.task_id);
    }
    p.queue_offsets.push_back(static_cast<uint32_t>(p.queue.size()));
  }
  return p;
}

SimCosts sim_costs(const TargetDesc& target, uint32_t num_workers) {
  // The rates are the whole chip's, whichever part of it the plan uses.
  SimCosts c;
  c.chip_bytes_per_ns = target.read_gb_per_s;  // 1 GB/s is a byte a nanosecond
  c.worker_bytes_per_ns =
      target.worker_gb_per_s > 0 ? target.worker_gb_per_s : target.read_gb_per_s / target.num_workers;
  c.worker_flops_per_ns = target.gflops / std::max({1U, num_workers, target.num_workers});
  c.task_ns = target.task_overhead_us * 1e3;
  c.event_ns = target.event_latency_us * 1e3;
  c.signal_ns = target.signal_us * 1e3;
  c.contended_add_ns = target.contended_add_us * 1e3;
  c.launch_ns = target.launch_us * 1e3;
  c.prefetch_bytes = target.prefetch_bytes;
  return c;
}

Result<SimResult> simulate(const SimProgram& program, const SimCosts& costs) {
  MEGARTP_TRY(check_program(program));
  return Simulator(program, costs).run();
}

}  // namespace megartp
