// Waits until a snapshot barrier has come on every queue of a processor.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jetfast/assertions.hpp"

namespace jetfast {

// Rules: SEMANTICS 3. The states of one alignment:
//
//   reading --first barrier--> aligning --last live queue--> aligned --release--> reading (ended, after a terminal one)
//
// A queue that is done counts as aligned. Snapshot ids are consecutive.
class BarrierAligner {
 public:
  enum class Phase : uint8_t { reading, aligning, aligned, ended };

  enum class Outcome : uint8_t {
    waiting,
    aligned,           // this was the last one
    error_done,        // the queue is done already
    error_repeated,    // the queue has given this barrier already
    error_id,          // another id than expected_id()
    error_terminal,    // terminal on one queue, not on another
    error_phase,       // between alignment and release, or after a terminal barrier
  };

  BarrierAligner(size_t queue_count, bool exactly_once)
      : queues_(queue_count, live), live_count_(queue_count), exactly_once_(exactly_once) {}

  size_t queue_count() const { return queues_.size(); }
  bool is_aligning() const { return phase_ == Phase::aligning || phase_ == Phase::aligned; }
  int64_t snapshot_id() const { return snapshot_id_; }
  bool any_id_expected() const { return phase_ == Phase::reading && !seen_any_; }
  int64_t expected_id() const { return phase_ == Phase::reading ? snapshot_id_ + 1 : snapshot_id_; }
  bool terminal() const { return terminal_; }
  Phase phase() const { return phase_; }
  bool is_done(size_t queue) const { return queues_[queue] == done; }
  bool is_missing(size_t queue) const { return phase_ == Phase::aligning && queues_[queue] == live; }

  // Counts fit the states of the queues, and a barrier has come somewhere exactly while the phase says so.
  void check_invariants() const {
    size_t arrived_queues = 0, done_queues = 0;
    for (const uint8_t queue : queues_) {
      arrived_queues += queue == arrived;
      done_queues += queue == done;
    }
    JETFAST_INVARIANT(arrived_queues == arrived_count_);
    JETFAST_INVARIANT(live_count_ + done_queues == queues_.size());
    JETFAST_INVARIANT(phase_ == Phase::aligning || phase_ == Phase::aligned || arrived_count_ == 0);
    JETFAST_INVARIANT(phase_ != Phase::aligned || arrived_count_ == live_count_);
    JETFAST_INVARIANT(phase_ != Phase::aligning || arrived_count_ < live_count_);
  }

  Outcome observe_barrier(size_t queue, int64_t snapshot_id, bool terminal) noexcept {
    JETFAST_CHECK(queue < queues_.size());
    if (queues_[queue] == done) return Outcome::error_done;
    if (phase_ == Phase::aligned || phase_ == Phase::ended) return Outcome::error_phase;
    if (queues_[queue] == arrived) return Outcome::error_repeated;
    if (!any_id_expected() && snapshot_id != expected_id()) return Outcome::error_id;
    if (phase_ == Phase::aligning && terminal != terminal_) return Outcome::error_terminal;
    phase_ = Phase::aligning;
    seen_any_ = true;
    snapshot_id_ = snapshot_id;
    terminal_ = terminal;
    queues_[queue] = arrived;
    ++arrived_count_;
    return settle();
  }

  // Callers check first: the queue is not done.
  Outcome observe_done(size_t queue) noexcept {
    JETFAST_CHECK(queue < queues_.size());
    JETFAST_CHECK(queues_[queue] != done);
    if (queues_[queue] == arrived) --arrived_count_;
    queues_[queue] = done;
    --live_count_;
    return phase_ == Phase::aligning ? settle() : Outcome::waiting;
  }

  bool is_blocked(size_t queue) const noexcept {
    if (phase_ == Phase::ended) return true;
    return queues_[queue] == arrived && (exactly_once_ || terminal_);
  }

  // False: nothing was aligned.
  bool release() noexcept {
    if (phase_ != Phase::aligned) return false;
    for (uint8_t& queue : queues_) {
      if (queue == arrived) queue = live;
    }
    arrived_count_ = 0;
    phase_ = terminal_ ? Phase::ended : Phase::reading;
    return true;
  }

 private:
  enum State : uint8_t { live, arrived, done };

  Outcome settle() noexcept {
    JETFAST_CHECK(arrived_count_ <= live_count_);
    if (arrived_count_ < live_count_) return Outcome::waiting;
    phase_ = Phase::aligned;
    return Outcome::aligned;
  }

  std::vector<uint8_t> queues_;
  size_t live_count_;         // live or arrived
  size_t arrived_count_ = 0;
  int64_t snapshot_id_ = 0;
  Phase phase_ = Phase::reading;
  bool exactly_once_;
  bool seen_any_ = false;
  bool terminal_ = false;
};

}  // namespace jetfast
