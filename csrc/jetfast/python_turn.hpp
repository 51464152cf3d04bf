// Threads that come out of kernels and want to run Python wait for each other in a loop, for less time than it takes to sleep.
//
// Who finds the GIL taken sleeps, and must be woken: 10 to 50 us, while Python between two kernels runs for 5 or 10. So a thread
// takes a turn before it asks for the GIL, and gives it back once it has let go of it for the next kernel. A turn is advice, not a
// lock: it is waited for up to kTurnWait, then the thread asks for the GIL all the same.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <thread>

#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64)
#include <immintrin.h>
#endif

namespace jetfast {

constexpr int64_t kTurnWaitNs = 20'000;
constexpr int64_t kTurnWaitNsMin = 500;

inline void pause_in_loop() noexcept {
#if defined(__x86_64__) || defined(__i386__) || defined(_M_X64)
  _mm_pause();
#elif defined(__aarch64__) && defined(__GNUC__)
  asm volatile("yield");
#endif
}

// One a thread; `taken` is shared by all threads of the process.
class PythonTurn {
 public:
  explicit PythonTurn(std::atomic<bool>* taken) : taken_(taken) {}

  // From now on this thread takes turns: it comes back from each kernel soon, and sleeps nowhere without giving its turn.
  void join() noexcept { joined_ = std::thread::hardware_concurrency() > 1; }
  void leave() noexcept {
    give();
    joined_ = false;
  }

  // After a kernel, before the GIL is asked for. Returns how long it waited, nanoseconds.
  int64_t take() noexcept {
    if (!joined_ || held_) return 0;
    if (try_take()) return 0;
    // Who waits in vain has others before it that do not come back soon: it waits for less time the next time.
    const auto start = std::chrono::steady_clock::now();
    int64_t waited_ns = 0;
    do {
      for (int turn = 0; turn < 16; ++turn) pause_in_loop();
      waited_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now() - start).count();
      if (try_take()) {
        wait_ns_ = wait_ns_ * 2 < kTurnWaitNs ? wait_ns_ * 2 : kTurnWaitNs;
        return waited_ns;
      }
    } while (waited_ns < wait_ns_);
    wait_ns_ = wait_ns_ / 2 > kTurnWaitNsMin ? wait_ns_ / 2 : kTurnWaitNsMin;
    return waited_ns;
  }

  // The GIL has been let go.
  void give() noexcept {
    if (!held_) return;
    held_ = false;
    taken_->store(false, std::memory_order_release);
  }

  bool is_held() const noexcept { return held_; }

 private:
  bool try_take() noexcept {
    held_ = !taken_->load(std::memory_order_relaxed) && !taken_->exchange(true, std::memory_order_acquire);
    return held_;
  }

  std::atomic<bool>* taken_;
  bool joined_ = false, held_ = false;
  int64_t wait_ns_ = kTurnWaitNs;
};

}  // namespace jetfast
