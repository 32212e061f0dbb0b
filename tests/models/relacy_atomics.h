// Relacy's atomics in the place of the standard's, for counters.h and rings.h: Relacy runs the threads of a test in
// many interleavings, lets a relaxed load give any value that the memory model allows, and reports data races on Plain.
//
// `Weaken` makes the twins: it says which memory orders become relaxed.
#pragma once

// First everything that must not see Relacy's macros.
#include <array>
#include <atomic>
#include <cstdint>
#include <iostream>
#include <memory>
#include <optional>
#include <streambuf>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backends/cpu_threads/counters.h"
#include "backends/cpu_threads/rings.h"

#include <relacy/relacy.hpp>
// Relacy renames what the rest of this program needs under its own name.
#undef new
#undef delete
#undef malloc
#undef calloc
#undef realloc
#undef free
#undef assert
#undef errno
#undef memory_order_relaxed
#undef memory_order_consume
#undef memory_order_acquire
#undef memory_order_release
#undef memory_order_acq_rel
#undef memory_order_seq_cst

namespace megartp {

enum class Weaken { kNothing, kRelease, kAcquire };

template <Weaken weaken>
struct RelacyAtomics {
  static rl::memory_order order(std::memory_order mo) {
    constexpr bool kNoRelease = weaken == Weaken::kRelease;
    constexpr bool kNoAcquire = weaken == Weaken::kAcquire;
    switch (mo) {
      case std::memory_order_relaxed: return rl::mo_relaxed;
      case std::memory_order_acquire: return kNoAcquire ? rl::mo_relaxed : rl::mo_acquire;
      case std::memory_order_release: return kNoRelease ? rl::mo_relaxed : rl::mo_release;
      case std::memory_order_acq_rel: return kNoRelease ? rl::mo_acquire : kNoAcquire ? rl::mo_release : rl::mo_acq_rel;
      default: return rl::mo_seq_cst;
    }
  }

  template <class T>
  class Atomic {
   public:
    T load(std::memory_order mo) const { return value_.load(order(mo), RL_INFO); }
    void store(T v, std::memory_order mo) { value_.store(v, order(mo), RL_INFO); }
    T fetch_add(T v, std::memory_order mo) { return value_.fetch_add(v, order(mo), RL_INFO); }
    bool compare_exchange_weak(T& expected, T v, std::memory_order mo) {
      // Without spurious failures: a loop that may fail at will has no end to its interleavings.
      return value_.compare_exchange_strong(expected, v, order(mo), RL_INFO);
    }

   private:
    rl::atomic<T> value_;
  };

  template <class T>
  class Plain {
   public:
    T get() const { return value_(RL_INFO); }
    void set(T v) { value_(RL_INFO) = v; }

   private:
    rl::var<T> value_;
  };
};

}  // namespace megartp
