#include "launch/simulate_launch.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <queue>
#include <utility>

#include <fmt/format.h>

namespace megartp {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr uint32_t kNoSm = ~uint32_t{0};
// More take minutes.
constexpr uint64_t kMaxSimCtas = 200000;

uint64_t num_ctas_of(const LaunchKernel& k) { return uint64_t{k.kernel.grid[0]} * k.kernel.grid[1] * k.kernel.grid[2]; }

// Something that happens at a time; those of one time in the order in which they were asked for.
struct LaunchSimEvent {
  enum class Kind : uint8_t { kLaunch, kStarted, kWake, kMultiply, kDone, kComplete };
  double time = 0;
  uint64_t order = 0;
  Kind kind = Kind::kLaunch;
  uint32_t idx = 0;  // kernel or CTA
  bool operator<(const LaunchSimEvent& o) const { return time != o.time ? time > o.time : order > o.order; }
};

// Work that shares a rate with other work: bytes that come, or products.
struct SimFlow {
  bool is_active = false;
  double left = 0;
  double rate = 0;
  double begin = 0;  // of the part that is under way
};

class LaunchSimulator {
 public:
  LaunchSimulator(const LaunchPlan& plan, const LaunchCosts& costs) : plan_(plan), c_(costs) {
    sms_.resize(c_.num_sms, {c_.smem_per_sm, c_.threads_per_sm, c_.ctas_per_sm});
    for (const LaunchKernel& k : plan_.kernels) {
      Kernel state;
      state.first = static_cast<uint32_t>(ctas_.size());
      state.count = static_cast<uint32_t>(num_ctas_of(k));
      state.needs = {k.kernel.smem_bytes + c_.smem_per_cta, k.kernel.block, 1};
      const double each = 1.0 / state.count;
      state.weights = static_cast<double>(k.kernel.weight_bytes) * each;
      state.others = static_cast<double>(k.kernel.other_bytes) * each;
      state.macs = static_cast<double>(k.kernel.flops) * each;
      // What is not held in shared memory is held in registers.
      if (k.wait == DeviceWait::kPrefetch)
        state.ahead = k.kernel.smem_bytes == 0 ? state.weights
                                               : std::min(state.weights, static_cast<double>(k.kernel.smem_bytes));
      kernels_.push_back(state);
      for (uint32_t i = 0; i < state.count; ++i)
        ctas_.emplace_back().kernel = static_cast<uint32_t>(kernels_.size() - 1);
    }
    for (const LaunchEdge& e : plan_.edges) {
      ++kernels_[e.to].num_blockers;
      if (e.kind == launch::EdgeKind::kProgrammatic) ++kernels_[e.to].num_waits;
    }
  }

  Result<LaunchSimResult> run() {
    MEGARTP_TRY(check_clusters());
    for (uint32_t k = 0; k < kernels_.size(); ++k) {
      if (kernels_[k].num_waits == 0) kernels_[k].is_awake = true;
      if (kernels_[k].num_blockers == 0) at(0, LaunchSimEvent::Kind::kLaunch, k);
    }
    while (step()) {
    }
    for (uint32_t k = 0; k < kernels_.size(); ++k)
      if (kernels_[k].num_done != kernels_[k].count)
        return make_error(ErrorCode::kInternal,
                          fmt::format("launch plan: the simulation stopped with {} of {} CTAs of '{}' done",
                                      kernels_[k].num_done, kernels_[k].count, plan_.kernels[k].name));
    return result();
  }

 private:
  struct Room {
    int64_t smem = 0, threads = 0, ctas = 0;
    bool holds(const Room& needs) const { return smem >= needs.smem && threads >= needs.threads && ctas >= needs.ctas; }
    void take(const Room& needs, int64_t sign) {
      smem -= sign * needs.smem;
      threads -= sign * needs.threads;
      ctas -= sign * needs.ctas;
    }
  };
  struct Kernel {
    uint32_t first = 0, count = 0;
    Room needs;
    double weights = 0, others = 0, macs = 0;  // of a CTA
    double ahead = 0;                          // bytes of weights before its inputs are ready
    uint32_t num_blockers = 0;                 // in-edges that keep it from being launched
    uint32_t num_waits = 0;                    // programmatic in-edges whose producers are not complete
    double launch_at = 0;
    bool is_awake = false;  // its wait returns
    uint32_t num_entered = 0, num_triggered = 0, num_done = 0;
  };
  struct Cta {
    uint32_t kernel = 0;
    uint32_t sm = kNoSm;
    double enter = 0, inputs = 0, done = 0;
    bool is_started = false, is_ready = false, is_multiplying = false, is_finishing = false;
    double weights_read = 0;
    SimFlow read, products;
  };

  void at(double time, LaunchSimEvent::Kind kind, uint32_t idx) { events_.push({time, ++order_, kind, idx}); }
  const LaunchKernel& kernel_of(const Cta& cta) const { return plan_.kernels[cta.kernel]; }
  static double ns(double us) { return us * 1e3; }

  Status check_clusters() const {
    for (uint32_t k = 0; k < kernels_.size(); ++k) {
      const uint32_t cluster = plan_.kernels[k].kernel.cluster;
      if (sms_.empty() || !sms_[0].holds(kernels_[k].needs) || cluster > c_.num_sms)
        return make_error(ErrorCode::kOutOfResources,
                          fmt::format("simulation: a cluster of {} CTAs of kernel '{}' does not fit {} SMs", cluster,
                                      plan_.kernels[k].name, c_.num_sms));
    }
    return {};
  }

  // --- flows ---

  void share_rates() {
    std::vector<uint32_t> reads_of(sms_.size()), products_of(sms_.size());
    for (const uint32_t i : readers_) ++reads_of[ctas_[i].sm];
    for (const uint32_t i : multipliers_) ++products_of[ctas_[i].sm];
    double wanted = 0;
    for (const uint32_t i : readers_) {
      Cta& cta = ctas_[i];
      cta.read.rate = std::min(c_.cta_read_gb_per_s, c_.sm_read_gb_per_s / reads_of[cta.sm]);
      wanted += cta.read.rate;
    }
    if (wanted > c_.read_gb_per_s)
      for (const uint32_t i : readers_) ctas_[i].read.rate *= c_.read_gb_per_s / wanted;
    for (const uint32_t i : multipliers_)
      ctas_[i].products.rate = std::min(c_.cta_macs_per_ns, c_.sm_macs_per_ns / products_of[ctas_[i].sm]);
    are_rates_old_ = false;
  }
  void advance(double time) {
    const double dt = time - now_;
    if (dt > 0) {
      for (const uint32_t i : readers_) ctas_[i].read.left -= ctas_[i].read.rate * dt;
      for (const uint32_t i : multipliers_) ctas_[i].products.left -= ctas_[i].products.rate * dt;
    }
    now_ = time;
  }
  void begin_flow(uint32_t i, bool is_read, double amount) {
    SimFlow& flow = is_read ? ctas_[i].read : ctas_[i].products;
    if (flow.is_active) {
      flow.left += amount;
      return;
    }
    flow = {true, amount, 0, now_};
    (is_read ? readers_ : multipliers_).push_back(i);
    are_rates_old_ = true;
  }
  void end_flow(uint32_t i, bool is_read) {
    Cta& cta = ctas_[i];
    SimFlow& flow = is_read ? cta.read : cta.products;
    flow.is_active = false;
    std::erase(is_read ? readers_ : multipliers_, i);
    are_rates_old_ = true;
    const LaunchSimPart part{cta.kernel, i - kernels_[cta.kernel].first, is_read, to_ns(flow.begin), to_ns(now_)};
    if (part.begin_ns < part.end_ns) parts_.push_back(part);
  }
  // The flow that ends first.
  struct Next {
    double time = kNever;
    uint32_t cta = 0;
    bool is_read = false;
  };
  Next next_end() const {
    Next next;
    const auto look = [&](const std::vector<uint32_t>& list, SimFlow Cta::* member, bool is_read) {
      for (const uint32_t i : list) {
        const SimFlow& flow = ctas_[i].*member;
        const double time = now_ + std::max(0.0, flow.left) / flow.rate;
        if (time < next.time) next = {time, i, is_read};
      }
    };
    look(readers_, &Cta::read, true);
    look(multipliers_, &Cta::products, false);
    return next;
  }

  bool step() {
    if (are_rates_old_) share_rates();
    const Next flow = next_end();
    const double event_time = events_.empty() ? kNever : events_.top().time;
    if (flow.time == kNever && event_time == kNever) return false;
    if (flow.time < event_time) {
      advance(flow.time);
      end_flow(flow.cta, flow.is_read);
      flow_done(flow.cta);
      return true;
    }
    const LaunchSimEvent event = events_.top();
    events_.pop();
    advance(event.time);
    switch (event.kind) {
      case LaunchSimEvent::Kind::kLaunch: launch(event.idx); break;
      case LaunchSimEvent::Kind::kStarted: started(event.idx); break;
      case LaunchSimEvent::Kind::kWake: wake(event.idx); break;
      case LaunchSimEvent::Kind::kMultiply: multiply(event.idx); break;
      case LaunchSimEvent::Kind::kDone: done(event.idx); break;
      case LaunchSimEvent::Kind::kComplete: complete(event.idx); break;
    }
    return true;
  }

  // --- kernels ---

  void launch(uint32_t k) {
    launched_.push_back(k);
    std::ranges::stable_sort(launched_, {}, [this](uint32_t i) { return plan_.kernels[i].priority; });
    place_ctas();
  }
  // One in-edge of `k` no longer keeps it.
  void unblock(uint32_t k, double launch_at) {
    Kernel& kernel = kernels_[k];
    kernel.launch_at = std::max(kernel.launch_at, launch_at);
    if (--kernel.num_blockers == 0) at(kernel.launch_at, LaunchSimEvent::Kind::kLaunch, k);
  }
  void trigger(uint32_t k) {
    if (++kernels_[k].num_triggered != kernels_[k].count) return;
    for (const LaunchEdge& e : plan_.edges)
      if (e.from == k && e.kind == launch::EdgeKind::kProgrammatic) unblock(e.to, now_ + ns(c_.programmatic_edge_us));
  }
  void complete(uint32_t k) {
    for (const LaunchEdge& e : plan_.edges) {
      if (e.from != k) continue;
      if (e.kind == launch::EdgeKind::kFull)
        unblock(e.to, now_ + ns(c_.full_edge_us));
      else if (--kernels_[e.to].num_waits == 0)
        at(now_ + ns(c_.wake_us), LaunchSimEvent::Kind::kWake, e.to);
    }
  }
  void wake(uint32_t k) {
    kernels_[k].is_awake = true;
    for (uint32_t i = kernels_[k].first; i < kernels_[k].first + kernels_[k].num_entered; ++i)
      waits_at_entry(k) ? start(i) : look_at_inputs(i);
  }

  bool waits_at_entry(uint32_t k) const { return plan_.kernels[k].wait == DeviceWait::kEntry; }

  // --- room ---

  // Clusters whole.
  void place_ctas() {
    for (const uint32_t k : launched_) {
      const uint32_t cluster = plan_.kernels[k].kernel.cluster;
      while (kernels_[k].num_entered < kernels_[k].count && place_cluster(k, cluster)) {
      }
    }
    std::erase_if(launched_, [this](uint32_t k) { return kernels_[k].num_entered == kernels_[k].count; });
  }
  bool place_cluster(uint32_t k, uint32_t cluster) {
    Kernel& kernel = kernels_[k];
    std::vector<uint32_t> sms;
    const uint32_t size = std::min(cluster, kernel.count - kernel.num_entered);
    for (uint32_t i = 0; i < size; ++i) {
      const uint32_t sm = roomiest(kernel.needs);
      if (sm == kNoSm) break;
      sms_[sm].take(kernel.needs, 1);
      sms.push_back(sm);
    }
    if (sms.size() < size) {
      for (const uint32_t sm : sms) sms_[sm].take(kernel.needs, -1);
      return false;
    }
    for (const uint32_t sm : sms) enter(kernel.first + kernel.num_entered++, sm);
    return true;
  }
  // The SM that holds the fewest CTAs; among those the one with the most shared memory left.
  uint32_t roomiest(const Room& needs) const {
    uint32_t best = kNoSm;
    for (uint32_t sm = 0; sm < sms_.size(); ++sm) {
      const Room& room = sms_[sm];
      if (!room.holds(needs)) continue;
      if (best == kNoSm || std::pair(room.ctas, room.smem) > std::pair(sms_[best].ctas, sms_[best].smem)) best = sm;
    }
    return best;
  }

  // --- CTAs ---

  void enter(uint32_t i, uint32_t sm) {
    Cta& cta = ctas_[i];
    cta.sm = sm;
    cta.enter = now_;
    if (kernels_[cta.kernel].is_awake || !waits_at_entry(cta.kernel)) start(i);
    if (kernel_of(cta).kernel.triggers_at_start) trigger(cta.kernel);
  }
  void start(uint32_t i) { at(now_ + ns(c_.start_us), LaunchSimEvent::Kind::kStarted, i); }
  void started(uint32_t i) {
    Cta& cta = ctas_[i];
    cta.is_started = true;
    const Kernel& kernel = kernels_[cta.kernel];
    look_at_inputs(i);
    if (cta.is_ready || kernel.ahead <= 0) return;
    cta.weights_read = kernel.ahead;
    begin_flow(i, true, kernel.ahead);
  }
  void look_at_inputs(uint32_t i) {
    Cta& cta = ctas_[i];
    const Kernel& kernel = kernels_[cta.kernel];
    if (!cta.is_started || cta.is_ready || !kernel.is_awake) return;
    cta.is_ready = true;
    cta.inputs = now_;
    const double left = kernel.weights - cta.weights_read + kernel.others;
    if (left > 0) begin_flow(i, true, left);
    at(now_ + ns(c_.trip_us), LaunchSimEvent::Kind::kMultiply, i);
  }
  void multiply(uint32_t i) {
    Cta& cta = ctas_[i];
    cta.is_multiplying = true;
    const double macs = kernels_[cta.kernel].macs;
    if (macs > 0) begin_flow(i, false, macs);
    flow_done(i);
  }
  void flow_done(uint32_t i) {
    Cta& cta = ctas_[i];
    if (!cta.is_multiplying || cta.is_finishing || cta.read.is_active || cta.products.is_active) return;
    cta.is_finishing = true;
    const DeviceKernel& kernel = kernel_of(cta).kernel;
    if (!kernel.triggers_at_start) trigger(cta.kernel);
    at(now_ + ns(c_.finish_us) + (kernel.cluster > 1 ? ns(c_.cluster_us) : 0), LaunchSimEvent::Kind::kDone, i);
  }
  void done(uint32_t i) {
    Cta& cta = ctas_[i];
    cta.done = now_;
    Kernel& kernel = kernels_[cta.kernel];
    sms_[cta.sm].take(kernel.needs, -1);
    if (++kernel.num_done == kernel.count) at(now_ + ns(c_.complete_us), LaunchSimEvent::Kind::kComplete, cta.kernel);
    place_ctas();
  }

  static uint64_t to_ns(double time) { return static_cast<uint64_t>(std::llround(time)); }
  LaunchSimResult result() {
    LaunchSimResult r;
    for (uint32_t i = 0; i < ctas_.size(); ++i) {
      const Cta& cta = ctas_[i];
      r.records.push_back(
          {to_ns(cta.enter), to_ns(cta.inputs), to_ns(cta.done), cta.sm, i - kernels_[cta.kernel].first, {}});
      r.span_ns = std::max(r.span_ns, to_ns(cta.done));
    }
    r.timed_us = c_.frame_us + static_cast<double>(r.span_ns) / 1e3;
    r.parts = std::move(parts_);
    return r;
  }

  const LaunchPlan& plan_;
  const LaunchCosts& c_;
  std::vector<Room> sms_;
  std::vector<Kernel> kernels_;
  std::vector<Cta> ctas_;           // of all kernels, in order
  std::vector<uint32_t> launched_;  // with CTAs that have not entered; urgent ones first
  std::vector<uint32_t> readers_, multipliers_;
  std::vector<LaunchSimPart> parts_;
  std::priority_queue<LaunchSimEvent> events_;
  uint64_t order_ = 0;
  double now_ = 0;
  bool are_rates_old_ = false;
};

}  // namespace

Result<LaunchSimResult> simulate_launch(const LaunchPlan& plan, const LaunchCosts& costs) {
  uint64_t num_ctas = 0;
  for (const LaunchKernel& k : plan.kernels) num_ctas += num_ctas_of(k);
  if (num_ctas > kMaxSimCtas)
    return make_error(ErrorCode::kOutOfResources,
                      fmt::format("simulation: {} CTAs, of at most {}", num_ctas, kMaxSimCtas));
  return LaunchSimulator(plan, costs).run();
}

}  // namespace megartp
