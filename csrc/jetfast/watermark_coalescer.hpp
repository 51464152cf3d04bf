// Makes one watermark out of those of many inputs: the least of the inputs that are neither idle nor done.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "jetfast/assertions.hpp"

namespace jetfast {

// Rules: SEMANTICS 1.5. Up to `scan_max` inputs a plain scan finds the least watermark; above that a tournament tree does,
// whose inner nodes hold the least of their two children, so that one observation costs at most log2(n) comparisons.
//
// Invariants: last <= top; idle() implies that every input is idle or done; forwarded watermarks strictly increase.
class WatermarkCoalescer {
 public:
  static constexpr int64_t min_time = std::numeric_limits<int64_t>::min();
  static constexpr int64_t max_time = std::numeric_limits<int64_t>::max();
  static constexpr size_t scan_max = 16;

  // What leaves after one observation, in this order: active, watermark, idle.
  struct Forwarded {
    bool active = false;
    bool has_watermark = false;
    bool idle = false;
    int64_t watermark = min_time;
  };

  explicit WatermarkCoalescer(size_t input_count)
      : watermarks_(input_count, min_time), state_(input_count, awake), awake_count_(input_count) {
    if (input_count > scan_max) {
      leaf_count_ = 1;
      while (leaf_count_ < input_count) leaf_count_ *= 2;
      least_.assign(2 * leaf_count_, max_time);
      for (size_t input = 0; input < input_count; ++input) least_[leaf_count_ + input] = min_time;
      for (size_t node = leaf_count_ - 1; node > 0; --node) least_[node] = smaller(least_[2 * node], least_[2 * node + 1]);
    }
  }

  size_t input_count() const { return watermarks_.size(); }
  int64_t watermark() const { return last_; }
  bool idle() const { return idle_was_last_; }
  int64_t input_watermark(size_t input) const { return watermarks_[input]; }
  bool is_idle(size_t input) const { return state_[input] == idle_input; }
  bool is_done(size_t input) const { return state_[input] == done_input; }

  // Callers check first: the input is not done, and value > input_watermark(input).
  // Counts fit the states, the tree holds the least of its leaves, and nothing was forwarded that no input has said.
  void check_invariants() const {
    size_t awake_inputs = 0, idle_inputs = 0;
    for (size_t input = 0; input < watermarks_.size(); ++input) {
      awake_inputs += state_[input] == awake;
      idle_inputs += state_[input] == idle_input;
      JETFAST_INVARIANT(watermarks_[input] <= top_);
      if (leaf_count_ != 0)
        JETFAST_INVARIANT(least_[leaf_count_ + input] == (state_[input] == awake ? watermarks_[input] : max_time));
    }
    JETFAST_INVARIANT(awake_inputs == awake_count_);
    JETFAST_INVARIANT(idle_inputs == idle_count_);
    JETFAST_INVARIANT(last_ <= top_);
    JETFAST_INVARIANT(!idle_was_last_ || awake_count_ == 0);
    for (size_t node = 1; node < leaf_count_; ++node)
      JETFAST_INVARIANT(least_[node] == smaller(least_[2 * node], least_[2 * node + 1]));
  }

  Forwarded observe_watermark(size_t input, int64_t value) noexcept {
    JETFAST_CHECK(input < watermarks_.size());
    JETFAST_CHECK(state_[input] != done_input);
    JETFAST_CHECK(value > watermarks_[input]);
    Forwarded forwarded;
    watermarks_[input] = value;
    if (value > top_) top_ = value;
    wake(input, forwarded);
    set_leaf(input, value);
    forward_least(forwarded);
    return forwarded;
  }

  Forwarded observe_idle(size_t input) noexcept {
    JETFAST_CHECK(input < watermarks_.size());
    JETFAST_CHECK(state_[input] != done_input);
    Forwarded forwarded;
    if (state_[input] == awake) {
      state_[input] = idle_input;
      --awake_count_;
      ++idle_count_;
      set_leaf(input, max_time);
    }
    forward_least(forwarded);
    return forwarded;
  }

  // Rows, or an active message: the input takes part again with the watermark that it had.
  Forwarded observe_active(size_t input) noexcept {
    JETFAST_CHECK(input < watermarks_.size());
    JETFAST_CHECK(state_[input] != done_input);
    Forwarded forwarded;
    if (state_[input] == idle_input) {
      wake(input, forwarded);
      set_leaf(input, watermarks_[input]);
      forward_least(forwarded);
    }
    return forwarded;
  }

  Forwarded observe_done(size_t input) noexcept {
    JETFAST_CHECK(input < watermarks_.size());
    JETFAST_CHECK(state_[input] != done_input);
    Forwarded forwarded;
    if (state_[input] == awake) {
      --awake_count_;
    } else {
      --idle_count_;
    }
    state_[input] = done_input;
    set_leaf(input, max_time);
    forward_least(forwarded);
    return forwarded;
  }

 private:
  enum State : uint8_t { awake, idle_input, done_input };

  static int64_t smaller(int64_t left, int64_t right) { return left < right ? left : right; }

  void wake(size_t input, Forwarded& forwarded) noexcept {
    if (state_[input] == idle_input) {
      state_[input] = awake;
      ++awake_count_;
      --idle_count_;
    }
    if (idle_was_last_) {
      idle_was_last_ = false;
      forwarded.active = true;
    }
  }

  void set_leaf(size_t input, int64_t value) noexcept {
    if (leaf_count_ == 0) return;
    size_t node = leaf_count_ + input;
    least_[node] = value;
    for (node /= 2; node > 0; node /= 2) {
      const int64_t least = smaller(least_[2 * node], least_[2 * node + 1]);
      if (least_[node] == least) return;  // nothing above can change
      least_[node] = least;
    }
  }

  // Only asked while some input is awake: a sleeper's max_time cannot be mistaken for a watermark then.
  int64_t least_awake() const noexcept {
    if (leaf_count_ != 0) return least_[1];
    int64_t least = max_time;
    for (size_t input = 0; input < watermarks_.size(); ++input) {
      if (state_[input] == awake && watermarks_[input] < least) least = watermarks_[input];
    }
    return least;
  }

  void forward_least(Forwarded& forwarded) noexcept {
    const int64_t candidate = awake_count_ > 0 ? least_awake() : top_;
    JETFAST_CHECK(candidate <= top_);
    if (candidate > last_) {
      last_ = candidate;
      idle_was_last_ = false;
      forwarded.has_watermark = true;
      forwarded.watermark = candidate;
    }
    if (awake_count_ == 0 && idle_count_ > 0 && !idle_was_last_) {
      idle_was_last_ = true;
      forwarded.idle = true;
    }
  }

  std::vector<int64_t> watermarks_;
  std::vector<uint8_t> state_;
  std::vector<int64_t> least_;  // tree: root at 1, children of k at 2k and 2k + 1, input i at leaf_count_ + i
  size_t leaf_count_ = 0;       // 0: plain scan
  size_t awake_count_;
  size_t idle_count_ = 0;
  int64_t last_ = min_time;
  int64_t top_ = min_time;
  bool idle_was_last_ = false;
};

}  // namespace jetfast
