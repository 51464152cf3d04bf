// Bounded queue between one producer thread and one consumer thread, without locks.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "jetfast/assertions.hpp"

namespace jetfast {

// A ring with two indexes that only grow (Lamport 1983). Each side keeps a copy of the other side's index and reads the
// shared one only when the copy says full or empty (FastForward; Giacomoni et al. 2008): most calls touch no line that the other
// core writes. Publishing is a release store, taking over an acquire load: what the producer wrote into the item is seen.
template <typename T>
class SpscQueue {
 public:
  explicit SpscQueue(size_t capacity) : capacity_(capacity) {
    size_t slot_count = 1;
    while (slot_count < capacity) slot_count *= 2;
    mask_ = slot_count - 1;
    slots_ = std::make_unique<T[]>(slot_count);
    JETFAST_CHECK(capacity > 0);
    JETFAST_CHECK((slot_count & mask_) == 0);
  }

  SpscQueue(const SpscQueue&) = delete;
  SpscQueue& operator=(const SpscQueue&) = delete;

  size_t capacity() const { return capacity_; }

  // Right on either side's own thread; from others a recent value, never above capacity.
  size_t size() const noexcept {
    const uint64_t taken = taken_.load(std::memory_order_acquire);
    const uint64_t put = put_.load(std::memory_order_acquire);
    const uint64_t size = put - taken;  // `taken` was read first: put >= taken
    return size < capacity_ ? static_cast<size_t>(size) : capacity_;
  }

  // Producer. False: full, nothing was taken.
  bool offer(const T& item) noexcept {
    const uint64_t put = put_.load(std::memory_order_relaxed);
    if (put - taken_seen_ >= capacity_) {
      taken_seen_ = taken_.load(std::memory_order_acquire);
      if (put - taken_seen_ >= capacity_) return false;
    }
    JETFAST_CHECK(put - taken_seen_ < capacity_);
    slots_[put & mask_] = item;
    put_.store(put + 1, std::memory_order_release);
    return true;
  }

  // Producer: is there nothing in it?
  bool drained() noexcept {
    taken_seen_ = taken_.load(std::memory_order_acquire);
    return put_.load(std::memory_order_relaxed) == taken_seen_;
  }

  // Consumer. nullptr: empty. The slot stays valid until `pop`.
  T* front() noexcept {
    const uint64_t taken = taken_.load(std::memory_order_relaxed);
    if (taken == put_seen_) {
      put_seen_ = put_.load(std::memory_order_acquire);
      if (taken == put_seen_) return nullptr;
    }
    return &slots_[taken & mask_];
  }

  // Consumer, after `front` gave a slot.
  void pop() noexcept {
    JETFAST_CHECK(taken_.load(std::memory_order_relaxed) != put_.load(std::memory_order_acquire));
    taken_.store(taken_.load(std::memory_order_relaxed) + 1, std::memory_order_release);
  }

  // At most `capacity` items, and neither side knows more of the other than has happened. Only while both sides rest.
  void check_invariants() const {
    const uint64_t put = put_.load(), taken = taken_.load();
    JETFAST_INVARIANT(put >= taken && put - taken <= capacity_);
    JETFAST_INVARIANT(taken_seen_ <= taken);
    JETFAST_INVARIANT(put_seen_ <= put && put_seen_ >= taken);
    JETFAST_INVARIANT(capacity_ <= mask_ + 1);
  }

 private:
  static constexpr size_t line = 64;

  alignas(line) std::atomic<uint64_t> put_{0};  // written by the producer
  uint64_t taken_seen_ = 0;
  alignas(line) std::atomic<uint64_t> taken_{0};  // written by the consumer
  uint64_t put_seen_ = 0;
  alignas(line) size_t capacity_;  // never written after construction
  size_t mask_ = 0;
  std::unique_ptr<T[]> slots_;
};

// Bytes that wait in all channels of a job, against a limit. Shared by all producers and consumers.
//
// A channel that is empty always takes one item; more only while the total is below the limit. So a job's channels hold at most
// limit + one item for each channel and each producer, and none waits for ever: a channel that refuses has something to consume.
class MemoryBudget {
 public:
  explicit MemoryBudget(int64_t limit) : limit_(limit) {}
  int64_t limit() const { return limit_; }
  int64_t used() const noexcept { return used_.load(std::memory_order_relaxed); }
  bool exhausted() const noexcept { return used() >= limit_; }
  int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  void add(int64_t bytes) noexcept {
    const int64_t now = used_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    JETFAST_CHECK(now >= 0);
    int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

 private:
  std::atomic<int64_t> used_{0}, peak_{0};
  int64_t limit_;
};

}  // namespace jetfast
