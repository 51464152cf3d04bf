// How much CPU time a thread spends in kernels, measured in samples: between samples a kernel pays one comparison.
#pragma once

#include <cstdint>

#include "jetfast/python_turn.hpp"

#if defined(_WIN32)
#include <chrono>
#else
#include <time.h>
#endif

namespace jetfast {

// CPU time of the calling thread. A system call of about 0.4 us on Linux, therefore samples. Windows counts a thread's time in
// ticks of 15 ms only: there it is wall time.
inline int64_t thread_cpu_ns() noexcept {
#if defined(_WIN32)
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch()).count();
#else
  timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
#endif
}

// What one reading of the clock costs: the least of a few.
inline int64_t clock_reading_ns() noexcept {
  int64_t least = INT64_MAX;
  for (int reading = 0; reading < 32; ++reading) {
    const int64_t before = thread_cpu_ns();
    const int64_t cost = thread_cpu_ns() - before;
    if (cost < least) least = cost;
  }
  return least;
}

// One a thread. enter and leave stand at both ends of a kernel, inside of the part that runs without the GIL. A kernel that
// throws never leaves: what it took then counts as being outside. `turn` is who may ask for the GIL next.
class KernelClock {
 public:
  explicit KernelClock(std::atomic<bool>* turn_taken) : turn(turn_taken) {}

  PythonTurn turn;

  void enter() noexcept {
    turn.give();
    if (sampling_) entered_ns_ = thread_cpu_ns();
  }
  void leave() noexcept {
    if (sampling_) {
      kernel_ns_ += thread_cpu_ns() - entered_ns_;
      ++kernel_calls_;
    }
    waited_ns_ += turn.take();
  }

  void begin_sample() noexcept {
    static const int64_t reading_ns = clock_reading_ns();  // once for all threads: 30 us
    reading_ns_ = reading_ns;
    sampling_ = true;
    kernel_ns_ = kernel_calls_ = waited_ns_ = 0;
    begun_ns_ = thread_cpu_ns();
  }
  // CPU time of this thread since begin_sample: all of it, and that in kernels. Without what reading the clock took, and waits
  // for its turn.
  void end_sample(int64_t* cpu_ns, int64_t* kernel_ns) noexcept {
    const int64_t all_ns = thread_cpu_ns() - begun_ns_;
    sampling_ = false;
    // From one reading to the next one reading is counted: so one for the whole, and two for each call of a kernel, of which
    // one lies inside of it.
    const int64_t cpu = all_ns - (2 * kernel_calls_ + 1) * reading_ns_ - waited_ns_;
    const int64_t kernel = kernel_ns_ - kernel_calls_ * reading_ns_;
    *cpu_ns = cpu > 0 ? cpu : 0;
    *kernel_ns = kernel < 0 ? 0 : kernel > *cpu_ns ? *cpu_ns : kernel;
  }

 private:
  bool sampling_ = false;
  int64_t reading_ns_ = 0;
  int64_t begun_ns_ = 0, entered_ns_ = 0, kernel_ns_ = 0, kernel_calls_ = 0, waited_ns_ = 0;
};

}  // namespace jetfast
