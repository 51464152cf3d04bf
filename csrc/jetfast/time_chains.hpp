// Rows of one side of a join by key and time: each key's rows are a chain, the latest first.
//
// Rows come nearly in the order of their times, so a new one finds its place at the head of its chain or close to it; and who looks
// for rows near the present finds them there, too. Rows are numbered as they come. None is taken out: whoever owns the chains makes
// new ones of those that are left now and then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "jetfast/assertions.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/slot_matches.hpp"

namespace jetfast {

inline int64_t add_saturating(int64_t left, int64_t right) {
  int64_t sum;
  if (__builtin_add_overflow(left, right, &sum))
    return right < 0 ? std::numeric_limits<int64_t>::min() : std::numeric_limits<int64_t>::max();
  return sum;
}

class TimeChains {
 public:
  int64_t size() const { return static_cast<int64_t>(times_.size()); }
  const int64_t* times() const { return times_.data(); }
  const uint8_t* matched() const { return matched_.data(); }
  int64_t bytes() const {
    return static_cast<int64_t>(times_.capacity() * sizeof(int64_t) + next_.capacity() * sizeof(uint32_t) +
                                heads_.capacity() * sizeof(uint32_t) + matched_.capacity() +
                                spans_.capacity() * sizeof(Span));
  }

  // Chains go back in time, hold each row at most once, and lie within the spans. Reads all rows.
  void check_invariants() const {
    JETFAST_INVARIANT(next_.size() == times_.size() && matched_.size() == times_.size());
    JETFAST_INVARIANT(spans_.size() == (times_.size() + kSpanRows - 1) / kSpanRows);
    std::vector<uint8_t> is_seen(times_.size(), 0);
    for (uint32_t row : heads_)
      for (int64_t later = kNever; row != kEnd; row = next_[row]) {
        JETFAST_INVARIANT(row < times_.size());
        JETFAST_INVARIANT(!is_seen[row]);
        JETFAST_INVARIANT(times_[row] <= later);
        JETFAST_INVARIANT(times_[row] <= spans_[row / kSpanRows].high);
        is_seen[row] = 1;
        later = times_[row];
      }
  }

  // Add rows; `matched` says which of them have met a row of the other side (nullptr: none). Slots are below slot_limit, or
  // kJoinsNothing.
  void append(const uint32_t* slots, const int64_t* times, const uint8_t* matched, int64_t count, uint32_t slot_limit) {
    const auto first = static_cast<uint32_t>(times_.size());
    if (heads_.size() < slot_limit) heads_.resize(std::max<size_t>(slot_limit, heads_.size() * 2), kEnd);
    times_.insert(times_.end(), times, times + count);
    next_.resize(times_.size(), kEnd);
    matched_.resize(times_.size(), 0);
    if (matched != nullptr) std::copy(matched, matched + count, matched_.begin() + first);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t row = first + static_cast<uint32_t>(i);
      JETFAST_CHECK(slots[i] == kJoinsNothing || slots[i] < slot_limit);
      if (i + kAhead < count && slots[i + kAhead] != kJoinsNothing) prefetch_line(&heads_[slots[i + kAhead]]);
      if (row % kSpanRows == 0) spans_.emplace_back();
      Span& span = spans_.back();
      span.low = std::min(span.low, times[i]);
      span.high = std::max(span.high, times[i]);
      if (slots[i] == kJoinsNothing) continue;
      uint32_t* link = &heads_[slots[i]];
      while (*link != kEnd && times_[*link] > times[i]) link = &next_[*link];
      next_[row] = *link;
      *link = row;
    }
  }

  // Begin with rows of the other side, which stay where they are until the last of their pairs is taken: row i meets rows of its
  // slot with a time in [times[i] + lower, times[i] + upper]. found[i] becomes 1 if there is one.
  void probe(const uint32_t* slots, const int64_t* times, int64_t count, int64_t lower, int64_t upper, uint8_t* found) {
    JETFAST_CHECK(lower <= upper);
    slots_ = slots;
    probed_times_ = times;
    count_ = count;
    lower_ = lower;
    upper_ = upper;
    found_ = found;
    row_ = 0;
    begin_row();
  }

  // The next pairs, at most rows_max; how many: by row, the latest match first.
  int64_t next(int64_t rows_max, int32_t* probed, int32_t* rows) {
    int64_t made = 0;
    for (; row_ < count_; ++row_, begin_row()) {
      const int64_t low = add_saturating(probed_times_[row_], lower_);
      for (; at_ != kEnd && times_[at_] >= low; at_ = next_[at_]) {
        if (made == rows_max) return made;
        JETFAST_CHECK(at_ < times_.size());
        probed[made] = static_cast<int32_t>(row_);
        rows[made++] = static_cast<int32_t>(at_);
        matched_[at_] = 1;
        found_[row_] = 1;
      }
    }
    return made;
  }

  // For each row of another side the latest row here of its slot that is not after it and at most `reach` before it; else -1. Of
  // rows of one time the one that came last.
  void find_latest(const uint32_t* slots, const int64_t* times, int64_t count, int64_t reach, int32_t* rows) const {
    for (int64_t i = 0; i < count; ++i) {
      if (i + kAhead < count && slots[i + kAhead] < heads_.size()) prefetch_line(&heads_[slots[i + kAhead]]);
      uint32_t row = slots[i] < heads_.size() ? heads_[slots[i]] : kEnd;
      while (row != kEnd && times_[row] > times[i]) row = next_[row];
      rows[i] = row != kEnd && times_[row] >= add_saturating(times[i], -reach) ? static_cast<int32_t>(row) : -1;
    }
  }

  // Rows before `bound` that have met no other, each once. `rows` has room for size().
  int64_t expire(int64_t bound, int32_t* rows) {
    int64_t made = 0;
    for (size_t index = 0; index < spans_.size(); ++index) {
      Span& span = spans_[index];
      if (span.low >= bound) continue;
      span.low = kNever;
      const size_t end = std::min(times_.size(), (index + 1) * kSpanRows);
      for (size_t row = index * kSpanRows; row < end; ++row) {
        if (times_[row] >= bound) {
          span.low = std::min(span.low, times_[row]);
        } else if (!matched_[row]) {
          matched_[row] = 1;
          rows[made++] = static_cast<int32_t>(row);
        }
      }
    }
    return made;
  }

  // At least so many rows are before `bound`: those of spans that are as a whole.
  int64_t count_before(int64_t bound) const {
    int64_t count = 0;
    for (size_t index = 0; index < spans_.size(); ++index)
      if (spans_[index].high < bound)
        count += static_cast<int64_t>(std::min(times_.size(), (index + 1) * kSpanRows) - index * kSpanRows);
    return count;
  }

  // Rows from `bound` on, and of each slot the latest before it unless that is before `floor`; ascending. `rows` has room for
  // size().
  int64_t keep(int64_t bound, int64_t floor, int32_t* rows) const {
    std::vector<uint8_t> kept(times_.size(), 0);
    for (size_t row = 0; row < times_.size(); ++row) kept[row] = times_[row] >= bound;
    if (floor < bound)
      for (uint32_t row : heads_) {
        while (row != kEnd && times_[row] >= bound) row = next_[row];
        if (row != kEnd && times_[row] >= floor) kept[row] = 1;
      }
    int64_t made = 0;
    for (size_t row = 0; row < kept.size(); ++row)
      if (kept[row]) rows[made++] = static_cast<int32_t>(row);
    return made;
  }

 private:
  static constexpr uint32_t kEnd = UINT32_MAX;
  static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  static constexpr int64_t kAhead = 16;
  static constexpr size_t kSpanRows = 4096;

  // Rows that came one after the other.
  struct Span {
    int64_t low = kNever;  // of those that have not expired
    int64_t high = std::numeric_limits<int64_t>::min();
  };

  void begin_row() {
    if (row_ >= count_) return;
    if (row_ + kAhead < count_ && slots_[row_ + kAhead] < heads_.size()) prefetch_line(&heads_[slots_[row_ + kAhead]]);
    at_ = slots_[row_] < heads_.size() ? heads_[slots_[row_]] : kEnd;
    const int64_t high = add_saturating(probed_times_[row_], upper_);
    while (at_ != kEnd && times_[at_] > high) at_ = next_[at_];
  }

  std::vector<int64_t> times_;
  std::vector<uint32_t> next_;   // of each row the one before it in time
  std::vector<uint8_t> matched_;
  std::vector<uint32_t> heads_;  // of each slot the latest row
  std::vector<Span> spans_;

  const uint32_t* slots_ = nullptr;
  const int64_t* probed_times_ = nullptr;
  uint8_t* found_ = nullptr;
  int64_t count_ = 0, lower_ = 0, upper_ = 0, row_ = 0;
  uint32_t at_ = kEnd;
};

}  // namespace jetfast
