// Hands out small numbers for keys, the ones given back first.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "jetfast/assertions.hpp"

namespace jetfast {

constexpr uint32_t kNoSlot = 0xffffffffu;

// So many slots in a row are a block: windows emit their results, and the keys of them, block by block.
constexpr uint32_t kBlockSlots = 16384;

class SlotPool {
 public:
  // Every free slot is below the limit, once, and counted in its block. Reads all free slots.
  void check_invariants() const {
    std::vector<uint8_t> is_free(limit_, 0);
    std::vector<uint32_t> counted(free_in_block_.size(), 0);
    for (const uint32_t slot : free_) {
      JETFAST_INVARIANT(slot < limit_);
      JETFAST_INVARIANT(!is_free[slot]);
      is_free[slot] = 1;
      ++counted[slot / kBlockSlots];
    }
    JETFAST_INVARIANT(counted == free_in_block_);
    JETFAST_INVARIANT(free_in_block_.size() == (limit_ + kBlockSlots - 1) / kBlockSlots);
  }

  uint32_t take() {
    if (!free_.empty()) {
      const uint32_t slot = free_.back();
      free_.pop_back();
      JETFAST_CHECK(slot < limit_);
      JETFAST_CHECK(free_in_block_[slot / kBlockSlots] > 0);
      --free_in_block_[slot / kBlockSlots];
      return slot;
    }
    if (limit_ >= kNoSlot - 2) throw std::length_error("more than 2^32 - 3 keys at once");
    if (limit_ % kBlockSlots == 0) free_in_block_.push_back(0);
    return limit_++;
  }
  void give_back(uint32_t slot) {
    JETFAST_CHECK(slot < limit_);
    JETFAST_CHECK(free_.size() < limit_);
    free_.push_back(slot);
    ++free_in_block_[slot / kBlockSlots];
  }
  uint32_t limit() const { return limit_; }
  int64_t live() const { return static_cast<int64_t>(limit_) - static_cast<int64_t>(free_.size()); }
  const std::vector<uint32_t>& free_slots() const { return free_; }
  bool is_full(size_t block) const { JETFAST_CHECK(block < free_in_block_.size()); return free_in_block_[block] == 0; }  // every slot of it below `limit` is taken
  int64_t bytes() const { return static_cast<int64_t>((free_.capacity() + free_in_block_.capacity()) * sizeof(uint32_t)); }

 private:
  uint32_t limit_ = 0;
  std::vector<uint32_t> free_, free_in_block_;
};

}  // namespace jetfast
