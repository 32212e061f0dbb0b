#include "backends/cpu_threads/thread_team.h"

#include <exception>
#include <utility>

namespace megartp {

Status ThreadTeam::start(uint32_t count, std::function<void(uint32_t)> body) {
  body_ = std::move(body);
  try {
    for (uint32_t i = 0; i < count; ++i) threads_.emplace_back([this, i] { main(i); });
  } catch (const std::exception& e) {
    const size_t started = threads_.size();
    stop();
    return make_error(ErrorCode::kOutOfResources, "cpu-threads: cannot start thread " + std::to_string(started) +
                                                      " of " + std::to_string(count) + ": " + e.what());
  }
  return {};
}

void ThreadTeam::begin_round() {
  {
    const std::lock_guard lock(mutex_);
    ++round_;
    num_done_ = 0;
  }
  wake_.notify_all();
}

bool ThreadTeam::wait_for(std::chrono::milliseconds time) {
  std::unique_lock lock(mutex_);
  return done_.wait_for(lock, time, [this] { return num_done_ == threads_.size(); });
}

void ThreadTeam::wait() {
  std::unique_lock lock(mutex_);
  done_.wait(lock, [this] { return num_done_ == threads_.size(); });
}

void ThreadTeam::stop() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_all();
  threads_.clear();  // joins
}

void ThreadTeam::main(uint32_t i) {
  uint64_t seen = 0;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait(lock, [&] { return stop_ || round_ != seen; });
      if (stop_) return;
      seen = round_;
    }
    body_(i);
    {
      const std::lock_guard lock(mutex_);
      ++num_done_;
    }
    done_.notify_one();
  }
}

}  // namespace megartp
