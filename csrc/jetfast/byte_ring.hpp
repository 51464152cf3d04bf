// Bytes from one process to another through memory that both map: one end writes, the other reads, neither waits.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>

#include "jetfast/assertions.hpp"

namespace jetfast {

// Start of the memory. Two positions that only grow, each written by one side; the rest of the line is never touched, so that
// the two cores do not fight for it. Fresh memory is zeros, and that is an empty ring.
struct RingHead {
  alignas(64) std::atomic<uint64_t> written;
  alignas(64) std::atomic<uint64_t> taken;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "positions are shared between processes");

constexpr int64_t kRingHeadBytes = 4096;  // a page: data begins on its own
static_assert(sizeof(RingHead) <= kRingHeadBytes, "head fits its page");

constexpr int64_t kRingBroken = -1;

// What both ends know: where the bytes lie. Positions modulo the capacity, a power of two, are places.
//
// Neither end believes the other: each keeps its own position to itself, and how much lies between the two must fit the ring. So
// whatever a peer writes into this memory, nobody reads or writes outside of it.
class RingEnd {
 public:
  RingEnd(uint8_t* memory, int64_t capacity)
      : head_(reinterpret_cast<RingHead*>(memory)), data_(memory + kRingHeadBytes), capacity_(capacity) {
    JETFAST_CHECK(capacity > 0);
    JETFAST_CHECK((capacity & (capacity - 1)) == 0);
  }

 protected:
  // How many bytes of `count`, from a position on, lie before the end of the memory.
  int64_t before_end(uint64_t position, int64_t count) const noexcept {
    const int64_t left = capacity_ - static_cast<int64_t>(position & mask());
    return count < left ? count : left;
  }
  uint8_t* place(uint64_t position) const noexcept { return data_ + (position & mask()); }
  uint64_t mask() const noexcept { return static_cast<uint64_t>(capacity_) - 1; }

  RingHead* head_;
  uint8_t* data_;
  int64_t capacity_;
};

// The end that writes; one thread at a time. What is put in is seen by the reader from `publish` on.
class RingWriter : public RingEnd {
 public:
  using RingEnd::RingEnd;

  // Bytes that have room now, or kRingBroken. The reader's position is fetched if fewer than `wanted` are known to be free.
  int64_t room(int64_t wanted) noexcept {
    const int64_t known = capacity_ - static_cast<int64_t>(put_ - taken_seen_);
    if (known >= wanted) return known;
    const uint64_t taken = head_->taken.load(std::memory_order_acquire);
    if (taken - taken_seen_ > put_ - taken_seen_) return kRingBroken;  // back, or further than was written
    taken_seen_ = taken;
    return capacity_ - static_cast<int64_t>(put_ - taken);
  }

  // Put bytes in, at most as many as have room.
  void put(const uint8_t* bytes, int64_t count) noexcept {
    JETFAST_CHECK(count >= 0);
    JETFAST_CHECK(static_cast<int64_t>(put_ - taken_seen_) + count <= capacity_);
    const int64_t first = before_end(put_, count);
    std::memcpy(place(put_), bytes, first);
    std::memcpy(data_, bytes + first, count - first);
    put_ += count;
  }

  // What was put in and is not known to be taken fits the memory.
  void check_invariants() const {
    JETFAST_INVARIANT(put_ - taken_seen_ <= static_cast<uint64_t>(capacity_));
    JETFAST_INVARIANT(head_->written.load(std::memory_order_relaxed) <= put_);
  }

  void publish() noexcept { head_->written.store(put_, std::memory_order_release); }

 private:
  uint64_t put_ = 0;
  uint64_t taken_seen_ = 0;
};

// The end that reads; one thread at a time.
class RingReader : public RingEnd {
 public:
  using RingEnd::RingEnd;

  // Bytes that can be read now, or kRingBroken.
  int64_t readable() noexcept {
    const uint64_t count = head_->written.load(std::memory_order_acquire) - taken_;
    return count <= static_cast<uint64_t>(capacity_) ? static_cast<int64_t>(count) : kRingBroken;
  }

  // The position that the writer sees is the one that this end is at.
  void check_invariants() const { JETFAST_INVARIANT(head_->taken.load(std::memory_order_relaxed) == taken_); }

  // Copy bytes out, at most as many as can be read, and let the writer have their place.
  void take(uint8_t* bytes, int64_t count) noexcept {
    JETFAST_CHECK(count >= 0 && count <= capacity_);
    const int64_t first = before_end(taken_, count);
    std::memcpy(bytes, place(taken_), first);
    std::memcpy(bytes + first, data_, count - first);
    taken_ += count;
    head_->taken.store(taken_, std::memory_order_release);
  }

 private:
  uint64_t taken_ = 0;
};

}  // namespace jetfast
