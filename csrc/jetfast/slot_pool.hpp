// Hands out small numbers for keys, the ones given back first.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

namespace jetfast {

constexpr uint32_t kNoSlot = 0xffffffffu;

class SlotPool {
 public:
  uint32_t take() {
    if (!free_.empty()) {
      const uint32_t slot = free_.back();
      free_.pop_back();
      return slot;
    }
    if (limit_ >= kNoSlot - 2) throw std::length_error("more than 2^32 - 3 keys at once");
    return limit_++;
  }
  void give_back(uint32_t slot) { free_.push_back(slot); }
  uint32_t limit() const { return limit_; }
  int64_t live() const { return static_cast<int64_t>(limit_) - static_cast<int64_t>(free_.size()); }
  const std::vector<uint32_t>& free_slots() const { return free_; }
  int64_t bytes() const { return static_cast<int64_t>(free_.capacity() * sizeof(uint32_t)); }

 private:
  uint32_t limit_ = 0;
  std::vector<uint32_t> free_;
};

}  // namespace jetfast
