// Threads that all do one round when told so, and sleep in between.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "megartp/error.h"

namespace megartp {

class ThreadTeam {
 public:
  ThreadTeam() = default;
  ~ThreadTeam() { stop(); }
  ThreadTeam(const ThreadTeam&) = delete;
  ThreadTeam& operator=(const ThreadTeam&) = delete;

  // `body(i)` is thread i's part of a round. kOutOfResources when the system gives no more threads; those already
  // started have left then.
  Status start(uint32_t count, std::function<void(uint32_t)> body);
  // Everything that the caller wrote before is seen by the round; everything that the round wrote is seen after
  // wait_for() gave true or wait() came back.
  void begin_round();
  bool wait_for(std::chrono::milliseconds time);
  void wait();
  void stop();

 private:
  void main(uint32_t i);

  std::function<void(uint32_t)> body_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  uint64_t round_ = 0;
  uint32_t num_done_ = 0;
  bool stop_ = false;
  std::vector<std::jthread> threads_;
};

// Waiting gets cheaper the longer it takes: workers may outnumber cores.
class Backoff {
 public:
  void pause() {
    if (++count_ < 16) return;
    if (count_ < 64) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(std::chrono::microseconds(count_ < 256 ? 20 : 200));
    }
  }

 private:
  uint32_t count_ = 0;
};

// splitmix64, for delays only: results never depend on it.
class DelayRng {
 public:
  explicit DelayRng(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15ULL);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  void delay() {
    const uint64_t r = next();
    if (r % 4 == 0) std::this_thread::yield();
    if (r % 16 == 1) std::this_thread::sleep_for(std::chrono::microseconds((r >> 8) % 50));
  }

 private:
  uint64_t state_;
};

}  // namespace megartp
