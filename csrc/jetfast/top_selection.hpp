// Of the results of one window the n best, of all keys or of each group of keys, found while the window is read.
//
// A result is looked at once: its value becomes a 64-bit rank, and only ranks up to that of the n-th best so far are kept as
// candidates, of which now and then all but the n best are thrown away. Where values are equal, keys decide, ascending; keys
// are looked at only then.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "jetfast/arena.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/key_index.hpp"
#include "jetfast/simd.hpp"
#include "jetfast/value_column.hpp"
#include "jetfast/value_order.hpp"

namespace jetfast {

// passing[w], bit b: is ranks[64 w + b] at most `limit`? Bits past the last rank are 0.
inline void mark_passing_plain(const uint64_t* ranks, int64_t count, uint64_t limit, uint64_t* passing) {
  for (int64_t start = 0; start < count; start += 64) {
    uint64_t bits = 0;
    const int64_t length = std::min<int64_t>(64, count - start);
    for (int64_t i = 0; i < length; ++i) bits |= uint64_t{ranks[start + i] <= limit} << i;
    passing[start / 64] = bits;
  }
}

#if JETFAST_X86
JETFAST_TARGET_AVX512 inline void mark_passing_avx512(const uint64_t* ranks, int64_t count, uint64_t limit, uint64_t* passing) {
  const __m512i limits = _mm512_set1_epi64(static_cast<int64_t>(limit));
  int64_t start = 0;
  for (; start + 64 <= count; start += 64) {
    uint64_t bits = 0;
    for (int part = 0; part < 8; ++part)
      bits |= uint64_t{_mm512_cmple_epu64_mask(_mm512_loadu_si512(ranks + start + part * 8), limits)} << (part * 8);
    passing[start / 64] = bits;
  }
  if (start < count) mark_passing_plain(ranks + start, count - start, limit, passing + start / 64);
}
#endif

inline void mark_passing(const uint64_t* ranks, int64_t count, uint64_t limit, uint64_t* passing) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return mark_passing_avx512(ranks, count, limit, passing);
#endif
  mark_passing_plain(ranks, count, limit, passing);
}

// Ranks of values: in their order, and turned round by `flip` (all bits). All NaN are equal and the greatest, -0.0 is 0.0.
JETFAST_INLINE void rank_doubles_body(const uint64_t* __restrict words, int64_t count, uint64_t flip, uint64_t* __restrict ranks) {
  for (int64_t i = 0; i < count; ++i) {
    uint64_t bits = words[i];
    bits = (bits << 1) > 0xffe0000000000000u ? 0x7ff8000000000000u : bits;
    bits = bits == uint64_t{1} << 63 ? 0 : bits;
    const auto negative = static_cast<uint64_t>(static_cast<int64_t>(bits) >> 63);
    ranks[i] = bits ^ (negative | uint64_t{1} << 63) ^ flip;
  }
}
#if JETFAST_X86
JETFAST_TARGET_AVX2 inline void rank_doubles_avx2(const uint64_t* words, int64_t count, uint64_t flip, uint64_t* ranks) {
  rank_doubles_body(words, count, flip, ranks);
}
JETFAST_TARGET_AVX512 inline void rank_doubles_avx512(const uint64_t* words, int64_t count, uint64_t flip, uint64_t* ranks) {
  rank_doubles_body(words, count, flip, ranks);
}
#endif
inline void rank_doubles(const uint64_t* words, int64_t count, uint64_t flip, uint64_t* ranks) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return rank_doubles_avx512(words, count, flip, ranks);
  if (simd_level() == SimdLevel::avx2) return rank_doubles_avx2(words, count, flip, ranks);
#endif
  rank_doubles_body(words, count, flip, ranks);
}

struct TopSpec {
  int aggregate = 0;            // whose values are compared
  int64_t count = 1;            // results that are kept of each group
  bool ascending = false;       // the least values are the best
  std::vector<int> group_keys;  // key columns by which results are grouped; none: all are one group
};

class TopSelection {
 public:
  TopSelection(TopSpec spec, const KeyIndex& keys, Arena& arena) : spec_(std::move(spec)), keys_(keys), arena_(arena) {
    if (spec_.count < 1) throw std::invalid_argument("the number of results that are kept must be at least 1");
    groups_ = make_groups();
  }

  const TopSpec& spec() const { return spec_; }

  // A new window: nothing has been offered.
  void begin() {
    candidates_.clear();
    limits_.assign(spec_.group_keys.empty() ? 1 : groups_->slot_limit(), Order{true, ~uint64_t{0}});
    if (released_ != keys_.releases()) {  // slots have got other keys
      groups_ = make_groups();
      group_of_slot_.clear();
      limits_.assign(1, Order{true, ~uint64_t{0}});
      released_ = keys_.releases();
    }
    more_room_ = kFirstRoom;
    room_ = static_cast<size_t>(spec_.count) * limits_.size() + more_room_;
  }

  // Offer the results of the entries from `first` on. `values`: fixed width, of 8 bytes at most; slot_of(entry): its key;
  // counts(entry): is there such a result at all?
  template <typename SlotOf, typename Counts>
  void offer(const ColumnView& values, uint32_t first, SlotOf slot_of, Counts counts) {
    rank(values);
    if (!spec_.group_keys.empty()) {
      offer_by_group(values.row_count, first, slot_of, counts);
      return;
    }
    const int64_t count = values.row_count;
    const auto consider = [&](int64_t row) {
      const Order order = order_of(row);
      const uint32_t entry = first + static_cast<uint32_t>(row);
      if (limits_[0] < order || !counts(entry)) return;
      candidates_.push_back({order, 0, entry, slot_of(entry)});
      if (candidates_.size() >= room_) keep_best();
    };
    for (int64_t start = 0; start < count; start += kBlock) {
      const int64_t length = std::min(kBlock, count - start);
      if (widened_.has_nulls || limits_[0].is_null) {
        for (int64_t row = start; row < start + length; ++row) consider(row);
        continue;
      }
      uint64_t passing[kBlock / 64];
      mark_passing(ranks_.data() + start, length, limits_[0].rank, passing);
      for (int64_t word = 0; word < (length + 63) / 64; ++word)
        for (uint64_t bits = passing[word]; bits != 0; bits &= bits - 1) consider(start + word * 64 + __builtin_ctzll(bits));
    }
  }

  // The entries that are kept, at most `count` of each group, in no particular order.
  const std::vector<uint32_t>& finish() {
    keep_best();
    chosen_.clear();
    for (const Candidate& candidate : candidates_) chosen_.push_back(candidate.entry);
    return chosen_;
  }

 private:
  // What comes first is better.
  struct Order {
    bool is_null;
    uint64_t rank;

    bool operator<(const Order& other) const { return is_null != other.is_null ? !is_null : rank < other.rank; }
    bool operator==(const Order& other) const { return is_null == other.is_null && rank == other.rank; }
  };
  struct Candidate {
    Order order;
    uint32_t group, entry, slot;
  };
  using Candidates = std::vector<Candidate>::iterator;

  std::unique_ptr<KeyIndex> make_groups() const {
    std::vector<ColumnView> types;
    for (const int key : spec_.group_keys) types.push_back(keys_.types()[static_cast<size_t>(key)]);
    return std::make_unique<KeyIndex>(std::move(types));
  }

  Order order_of(int64_t row) const {
    const bool is_null = widened_.has_nulls && !widened_.valid[static_cast<size_t>(row)];
    return {is_null, is_null ? 0 : ranks_[static_cast<size_t>(row)]};
  }

  // ranks_ of all values: the better, the lower.
  void rank(const ColumnView& values) {
    const ValueClass value_class = value_class_of(values);
    if (value_class == ValueClass::i128 || (values.layout != Layout::fixed && values.layout != Layout::bits))
      throw std::invalid_argument("only values of up to 64 bits are ranked");
    widened_.widen(values, value_class, true);
    const auto* words = static_cast<const uint64_t*>(widened_.values);
    ranks_.resize(static_cast<size_t>(values.row_count));
    uint64_t* ranks = ranks_.data();
    const uint64_t flip = spec_.ascending ? 0 : ~uint64_t{0};
    constexpr uint64_t kSign = uint64_t{1} << 63;
    const int64_t count = values.row_count;
    if (value_class == ValueClass::f64) {
      rank_doubles(words, count, flip, ranks);
    } else {
      const uint64_t change = (value_class == ValueClass::i64 ? kSign : 0) ^ flip;
      for (int64_t i = 0; i < count; ++i) ranks[i] = words[i] ^ change;
    }
  }

  template <typename SlotOf, typename Counts>
  void offer_by_group(int64_t count, uint32_t first, SlotOf slot_of, Counts counts) {
    find_groups(count, first, slot_of, counts);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t entry = first + static_cast<uint32_t>(i);
      if (!counts(entry)) continue;
      const uint32_t slot = slot_of(entry), group = group_of_slot_[slot];
      const Order order = order_of(i);
      if (limits_[group] < order) continue;
      candidates_.push_back({order, group, entry, slot});
      if (candidates_.size() >= room_) keep_best();
    }
  }

  // The group of each key that was not met before.
  template <typename SlotOf, typename Counts>
  void find_groups(int64_t count, uint32_t first, SlotOf slot_of, Counts counts) {
    new_slots_.clear();
    if (group_of_slot_.size() < keys_.slot_limit()) group_of_slot_.resize(keys_.slot_limit(), kNoSlot);
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t entry = first + static_cast<uint32_t>(i);
      if (counts(entry) && group_of_slot_[slot_of(entry)] == kNoSlot) new_slots_.push_back(slot_of(entry));
    }
    if (new_slots_.empty()) return;
    const auto new_count = static_cast<int64_t>(new_slots_.size());
    const std::vector<Column> keys = keys_.keys_of(new_slots_.data(), new_count, arena_);
    std::vector<ColumnView> views;
    for (const int key : spec_.group_keys) views.push_back(keys[static_cast<size_t>(key)].view);
    new_groups_.resize(new_slots_.size());
    groups_->find_or_insert(views.data(), nullptr, new_count, new_groups_.data());
    for (size_t i = 0; i < new_slots_.size(); ++i) group_of_slot_[new_slots_[i]] = new_groups_[i];
    limits_.resize(groups_->slot_limit(), Order{true, ~uint64_t{0}});
  }

  // Throw away all candidates but the best of each group.
  void keep_best() {
    if (spec_.group_keys.empty()) {
      candidates_.erase(best_of(candidates_.begin(), candidates_.end()), candidates_.end());
    } else {
      sort_by_group();
      auto target = candidates_.begin();
      for (size_t group = 0; group < limits_.size(); ++group) {
        const auto start = candidates_.begin() + static_cast<int64_t>(group_starts_[group]);
        const auto end = candidates_.begin() + static_cast<int64_t>(group_starts_[group + 1]);
        if (start == end) continue;
        const auto best_end = best_of(start, end);
        target = target == start ? best_end : std::copy(start, best_end, target);
      }
      candidates_.erase(target, candidates_.end());
    }
    // Little room at first, so that there is a limit soon; much where ties pass it all the time.
    more_room_ = std::min(more_room_ * 2, kMoreRoomMax);
    room_ = candidates_.size() + std::max(candidates_.size(), more_room_);
  }

  void sort_by_group() {
    group_starts_.assign(limits_.size() + 1, 0);
    for (const Candidate& candidate : candidates_) ++group_starts_[candidate.group + 1];
    for (size_t group = 0; group < limits_.size(); ++group) group_starts_[group + 1] += group_starts_[group];
    group_places_.assign(group_starts_.begin(), group_starts_.end() - 1);
    sorted_.resize(candidates_.size());
    for (const Candidate& candidate : candidates_) sorted_[group_places_[candidate.group]++] = candidate;
    candidates_.swap(sorted_);
  }

  // Brings the best of one group to the front, notes the n-th as the limit, and returns their end.
  Candidates best_of(Candidates start, Candidates end) {
    if (end - start < spec_.count) return end;
    const auto by_order = [](const Candidate& one, const Candidate& other) { return one.order < other.order; };
    std::nth_element(start, start + (spec_.count - 1), end, by_order);
    const Order last = start[spec_.count - 1].order;
    limits_[start->group] = last;
    const auto ties = std::partition(start, end, [&](const Candidate& c) { return c.order < last; });
    const auto ties_end = std::partition(ties, end, [&](const Candidate& c) { return c.order == last; });
    const auto best_end = start + spec_.count;
    if (best_end < ties_end) keep_least_keys(ties, best_end - ties, ties_end - ties);
    return best_end;
  }

  // Brings those `kept` of `count` candidates to the front that have the least keys.
  void keep_least_keys(Candidates ties, int64_t kept, int64_t count) {
    new_slots_.clear();
    for (int64_t i = 0; i < count; ++i) new_slots_.push_back(ties[i].slot);
    const std::vector<Column> keys = keys_.keys_of(new_slots_.data(), count, arena_);
    std::vector<int64_t> places(static_cast<size_t>(count));
    std::iota(places.begin(), places.end(), 0);
    std::nth_element(places.begin(), places.begin() + kept, places.end(),
                     [&](int64_t one, int64_t other) { return compare_rows(keys, one, other) < 0; });
    const std::vector<Candidate> all(ties, ties + count);
    for (int64_t i = 0; i < count; ++i) ties[i] = all[static_cast<size_t>(places[static_cast<size_t>(i)])];
  }

  static constexpr int64_t kBlock = 512;  // the limit may sink within
  static constexpr size_t kFirstRoom = 32;
  static constexpr size_t kMoreRoomMax = 65536;

  TopSpec spec_;
  const KeyIndex& keys_;
  Arena& arena_;
  std::vector<Candidate> candidates_;
  std::vector<Order> limits_;  // by group: what is worse is not among the best
  size_t room_ = 0, more_room_ = 0;  // candidates that there may be before all but the best are thrown away
  std::unique_ptr<KeyIndex> groups_;
  std::vector<uint32_t> group_of_slot_;  // kNoSlot where it is not known
  uint64_t released_ = 0;

  // scratch
  WidenedColumn widened_;
  std::vector<uint64_t> ranks_;
  std::vector<uint32_t> chosen_, new_slots_, new_groups_;
  std::vector<Candidate> sorted_;
  std::vector<uint32_t> group_starts_, group_places_;
};

}  // namespace jetfast
