// Pairs of rows of two sides whose keys have the same slot: a hash join of rows that were hashed already.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace jetfast {

// A row whose key is null has this slot: it matches nothing.
constexpr uint32_t kJoinsNothing = UINT32_MAX;

// The rows of the right side, counted into their slots; rows of the left side look them up.
//
// Pairs come in the order of the left rows, those of one left row in the order of the right ones, in portions: one key that is on
// both sides a thousand times gives a million of them.
class SlotMatches {
 public:
  SlotMatches(const uint32_t* slots, int64_t count, uint32_t slot_limit)
      : starts_(static_cast<size_t>(slot_limit) + 1, 0), matched_(static_cast<size_t>(count), 0) {
    int64_t joining = 0;
    for (int64_t row = 0; row < count; ++row) {
      if (slots[row] >= slot_limit) continue;
      ++starts_[slots[row]];
      ++joining;
    }
    int32_t before = 0;
    for (int32_t& start : starts_) {  // of each slot: where the next one's rows begin, which then count down
      before += start;
      start = before;
    }
    rows_.resize(static_cast<size_t>(joining));
    for (int64_t row = count - 1; row >= 0; --row)
      if (slots[row] < slot_limit) rows_[static_cast<size_t>(--starts_[slots[row]])] = static_cast<int32_t>(row);
  }

  int64_t right_count() const { return static_cast<int64_t>(matched_.size()); }

  // Begin with other left rows, whose slots stay where they are until the last of their pairs is taken.
  void probe(const uint32_t* slots, int64_t count) {
    slots_ = slots;
    count_ = count;
    row_ = 0;
    taken_ = 0;
  }

  // How many rows `next` would give, if they are fewer than rows_max.
  int64_t count_next(int64_t rows_max, bool keep_left) const {
    int64_t total = -taken_;
    for (int64_t row = row_; row < count_ && total < rows_max; ++row) {
      const int64_t found = matches_of(slots_[row]);
      total += found == 0 && keep_left ? 1 : found;
    }
    return std::min(total, rows_max);
  }

  // The next pairs, at most rows_max; how many. With keep_left a left row without match comes with `missing`.
  int64_t next(int64_t rows_max, bool keep_left, int32_t missing, int32_t* left, int32_t* right) {
    int64_t made = 0;
    while (row_ < count_ && made < rows_max) {
      const uint32_t slot = slots_[row_];
      const int64_t found = matches_of(slot);
      if (found == 0) {
        if (keep_left) {
          left[made] = static_cast<int32_t>(row_);
          right[made++] = missing;
        }
        ++row_;
        continue;
      }
      const int64_t end = std::min(found, taken_ + rows_max - made);
      for (const int32_t* rows = rows_.data() + starts_[slot]; taken_ < end; ++taken_, ++made) {
        left[made] = static_cast<int32_t>(row_);
        right[made] = rows[taken_];
        matched_[static_cast<size_t>(rows[taken_])] = 1;
      }
      if (taken_ < found) break;
      taken_ = 0;
      ++row_;
    }
    return made;
  }

  // Right rows that were in no pair so far; `rows` has room for right_count().
  int64_t unmatched(int32_t* rows) const {
    int64_t count = 0;
    for (size_t row = 0; row < matched_.size(); ++row)
      if (!matched_[row]) rows[count++] = static_cast<int32_t>(row);
    return count;
  }

 private:
  int64_t matches_of(uint32_t slot) const {
    return slot < starts_.size() - 1 ? int64_t{starts_[slot + 1]} - starts_[slot] : 0;
  }

  std::vector<int32_t> starts_;  // of each slot in rows_; one more at the end
  std::vector<int32_t> rows_;    // right rows by slot
  std::vector<uint8_t> matched_;
  const uint32_t* slots_ = nullptr;
  int64_t count_ = 0, row_ = 0;
  int64_t taken_ = 0;  // matches of the left row `row_` that were given
};

}  // namespace jetfast
