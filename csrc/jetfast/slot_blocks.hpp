// Values by slot in blocks that stay where they are: room for more keys costs no copy of what is there.
#pragma once

#include <cstdint>
#include <vector>

#include "jetfast/assertions.hpp"
#include "jetfast/slot_pool.hpp"

namespace jetfast {

template <typename T>
class SlotBlocks {
 public:
  uint32_t limit() const { return limit_; }  // slots below it have a value
  T& operator[](uint32_t slot) {
    JETFAST_CHECK(slot < limit_);
    return blocks_[slot / kBlockSlots][slot % kBlockSlots];
  }
  const T& operator[](uint32_t slot) const {
    JETFAST_CHECK(slot < limit_);
    return blocks_[slot / kBlockSlots][slot % kBlockSlots];
  }

  // All blocks but the last are full, and together they have room for `limit` slots.
  void check_invariants() const {
    uint64_t room = 0;
    for (size_t block = 0; block < blocks_.size(); ++block) {
      JETFAST_INVARIANT(blocks_[block].size() <= kBlockSlots);
      JETFAST_INVARIANT(block + 1 == blocks_.size() || blocks_[block].size() == kBlockSlots);
      room += blocks_[block].size();
    }
    JETFAST_INVARIANT(room == limit_);
  }

  // Make room for a slot, and all below it.
  void cover(uint32_t slot) {
    while (slot >= limit_) add_room();
    JETFAST_CHECK(slot < limit_);
  }

  int64_t bytes() const {
    int64_t bytes = static_cast<int64_t>(blocks_.capacity() * sizeof(std::vector<T>));
    for (const std::vector<T>& block : blocks_) bytes += static_cast<int64_t>(block.capacity() * sizeof(T));
    return bytes;
  }

 private:
  static constexpr uint32_t kFirstSlots = 64;

  // The first block doubles until it is full: few keys take little memory.
  void add_room() {
    if (limit_ % kBlockSlots == 0) blocks_.emplace_back();
    const uint32_t room = blocks_.size() > 1 ? kBlockSlots : limit_ == 0 ? kFirstSlots : 2 * limit_;
    blocks_.back().resize(room);
    limit_ = static_cast<uint32_t>(blocks_.size() - 1) * kBlockSlots + room;
  }

  std::vector<std::vector<T>> blocks_;
  uint32_t limit_ = 0;
};

}  // namespace jetfast
