// The coalescer against a plain definition of its rules, on random observations, for few inputs (scan) and many (tree).
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <vector>

#include "jetfast/watermark_coalescer.hpp"

using jetfast::WatermarkCoalescer;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
      std::exit(1);                                                           \
    }                                                                         \
  } while (false)

namespace {

constexpr int64_t min_time = WatermarkCoalescer::min_time;

struct Slow {
  explicit Slow(size_t count) : watermarks(count, min_time), idle(count), done(count) {}

  WatermarkCoalescer::Forwarded forward(bool woken) {
    WatermarkCoalescer::Forwarded forwarded;
    if (woken && idle_was_last) {
      forwarded.active = true;
      idle_was_last = false;
    }
    bool any_awake = false, any_idle = false;
    int64_t least = WatermarkCoalescer::max_time;
    for (size_t input = 0; input < watermarks.size(); ++input) {
      if (done[input]) continue;
      if (idle[input]) {
        any_idle = true;
      } else {
        any_awake = true;
        if (watermarks[input] < least) least = watermarks[input];
      }
    }
    const int64_t candidate = any_awake ? least : top;
    if (candidate > last) {
      last = candidate;
      idle_was_last = false;
      forwarded.has_watermark = true;
      forwarded.watermark = candidate;
    }
    if (!any_awake && any_idle && !idle_was_last) {
      forwarded.idle = true;
      idle_was_last = true;
    }
    return forwarded;
  }

  std::vector<int64_t> watermarks;
  std::vector<bool> idle, done;
  int64_t last = min_time, top = min_time;
  bool idle_was_last = false;
};

void equals_its_slow_twin(size_t input_count, uint32_t seed) {
  std::mt19937 random(seed);
  WatermarkCoalescer fast(input_count);
  Slow slow(input_count);
  for (int step = 0; step < 3000; ++step) {
    const size_t input = random() % input_count;
    if (slow.done[input]) continue;
    WatermarkCoalescer::Forwarded got, wanted;
    const uint32_t choice = random() % 100;
    if (choice < 70) {
      const int64_t before = slow.watermarks[input];
      const int64_t value = before == min_time ? -static_cast<int64_t>(random() % 50) : before + 1 + random() % 20;
      slow.watermarks[input] = value;
      slow.idle[input] = false;
      if (value > slow.top) slow.top = value;
      wanted = slow.forward(true);
      got = fast.observe_watermark(input, value);
    } else if (choice < 85) {
      slow.idle[input] = true;
      wanted = slow.forward(false);
      got = fast.observe_idle(input);
    } else if (choice < 99 || step < 1000) {
      slow.idle[input] = false;
      wanted = slow.forward(true);
      got = fast.observe_active(input);
    } else {
      slow.idle[input] = false;
      slow.done[input] = true;
      wanted = slow.forward(false);
      got = fast.observe_done(input);
    }
    fast.check_invariants();
    CHECK(got.active == wanted.active);
    CHECK(got.has_watermark == wanted.has_watermark);
    CHECK(got.watermark == wanted.watermark);
    CHECK(got.idle == wanted.idle);
    CHECK(fast.watermark() == slow.last);
    CHECK(fast.idle() == slow.idle_was_last);
    CHECK(fast.is_idle(input) == slow.idle[input]);
    CHECK(fast.is_done(input) == slow.done[input]);
  }
}

}  // namespace

int main() {
  for (size_t input_count : {1, 2, 3, 15, 16, 17, 33, 1000, 1024}) {
    for (uint32_t seed = 0; seed < 3; ++seed) equals_its_slow_twin(input_count, seed);
  }
  std::puts("test_watermark_coalescer: passed");
  return 0;
}
