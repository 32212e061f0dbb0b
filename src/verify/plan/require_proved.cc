#include <array>
#include <cstring>
#include <mutex>
#include <span>
#include <string>

#include <fmt/format.h>

#include "base/hash.h"
#include "verify/plan/plan_proof.h"

namespace megartp {
namespace {

class Fingerprint {
 public:
  template <class T>
  void add(const std::vector<T>& values) {
    add(values.size());
    const Hash128 h = hash128(std::as_bytes(std::span(values)));
    add(h.high);
    add(h.low);
  }
  void add(uint64_t word) { words_.push_back(word); }
  Hash128 value() const { return hash128(std::as_bytes(std::span(words_))); }

 private:
  std::vector<uint64_t> words_;
};

// Everything that a proof looks at.
Hash128 fingerprint(const KernelPlan& plan, const PlanLimits& limits) {
  Fingerprint f;
  f.add(plan.num_tasks);
  f.add(uint64_t{plan.num_workers} << 32 | plan.queue_depth);
  f.add(plan.workspace_bytes);
  f.add(plan.instructions);
  f.add(plan.events);
  f.add(plan.join_counts);
  for (const PlanSpec& s : plan.specs) {
    f.add(s.opcode);
    f.add(s.words);
  }
  for (const PlanOperandRow& r : plan.operand_rows) {
    f.add(r.opcode);
    f.add(r.tensors);
  }
  for (const PlanTensor& t : plan.tensors) {
    f.add(static_cast<uint64_t>(t.dtype) << 8 | static_cast<uint64_t>(t.storage));
    f.add(t.dims);
    f.add(t.arena_offset);
    f.add(t.num_bytes);
    const Hash128 name = hash128(std::string_view(t.name));
    f.add(name.low);
  }
  for (const uint32_t word : {limits.max_workers, limits.max_queue_depth, limits.smem_bytes, limits.num_pages,
                              limits.page_bytes, limits.scratch_bytes})
    f.add(word);
  return f.value();
}

// The last plans that passed. A server keeps a handful alive.
class Passed {
 public:
  bool contains(const Hash128& h) {
    const std::lock_guard lock(mutex_);
    for (size_t i = 0; i < count_; ++i)
      if (ring_[i] == h) return true;
    return false;
  }
  void add(const Hash128& h) {
    const std::lock_guard lock(mutex_);
    ring_[next_++ % ring_.size()] = h;
    count_ = std::min(count_ + 1, ring_.size());
  }

 private:
  std::mutex mutex_;
  std::array<Hash128, 256> ring_{};
  size_t count_ = 0;
  size_t next_ = 0;
};

ErrorCode code_of(PlanFault fault) {
  switch (fault) {
    case PlanFault::kMalformed: return ErrorCode::kParse;
    case PlanFault::kQueueCycle:
    case PlanFault::kWrongCount:
    case PlanFault::kStaleEpoch:
    case PlanFault::kJoinMismatch: return ErrorCode::kDeadlock;
    case PlanFault::kOverSubscribe:
    case PlanFault::kQueueOverflow:
    case PlanFault::kSmemBudget: return ErrorCode::kOutOfResources;
    default: return ErrorCode::kMismatch;
  }
}

}  // namespace

Status require_proved(const KernelPlan& plan, const PlanLimits& limits) {
  static Passed passed;
  const Hash128 key = fingerprint(plan, limits);
  if (passed.contains(key)) return {};
  const PlanProof proof = prove_plan(plan, limits);
  if (proof.is_proved()) {
    passed.add(key);
    return {};
  }
  const PlanFinding& first = proof.findings[0];
  Error error{code_of(first.fault), fmt::format("plan refused ({}): {}", to_string(first.fault), first.message)};
  for (size_t i = 1; i < proof.findings.size(); ++i)
    error.details += fmt::format("{}: {}\n", to_string(proof.findings[i].fault), proof.findings[i].message);
  return tl::unexpected(std::move(error));
}

}  // namespace megartp
