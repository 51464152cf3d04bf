// State of keys by slot, followed row by row: when a key was seen last, its first rows, and its running aggregates.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>

namespace jetfast {

// No row of the key was seen.
constexpr int64_t kNeverSeen = std::numeric_limits<int64_t>::min();

// seen[slot] = the greatest time of its rows.
inline void note_times(const uint32_t* slots, const int64_t* times, int64_t count, int64_t* seen) {
  for (int64_t i = 0; i < count; ++i) seen[slots[i]] = std::max(seen[slots[i]], times[i]);
}

// Rows whose key was not seen before, or more than `horizon` before them; seen[slot] becomes the time of the row. How many.
inline int64_t keep_first(const uint32_t* slots, const int64_t* times, int64_t count, int64_t horizon, int64_t* seen,
                          int32_t* rows) {
  int64_t kept = 0;
  for (int64_t i = 0; i < count; ++i) {
    int64_t& last = seen[slots[i]];
    int64_t end;
    if (last != kNeverSeen && (__builtin_add_overflow(last, horizon, &end) || times[i] <= end)) continue;
    last = times[i];
    rows[kept++] = static_cast<int32_t>(i);
  }
  return kept;
}

// Number the states that rows meet: one for each key, and another one from a row on that comes more than `ttl` after the rows of
// its key before. groups[row] is the number; of each group slots_of[group] is its slot, before[group] the group of its slot that
// ends with it, or -1, and ended[group] the time to which the state before it lived: kNeverSeen if there is none that ends with it.
// seen[slot] is raised; group_of_slot is -1 for each slot, before and after. How many groups.
inline int64_t number_states(const uint32_t* slots, const int64_t* times, int64_t count, int64_t ttl, int64_t* seen,
                             int32_t* group_of_slot, int64_t* groups, uint32_t* slots_of, int32_t* before, int64_t* ended) {
  int64_t made = 0;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t slot = slots[i];
    int64_t end = std::numeric_limits<int64_t>::max();
    const bool known = seen[slot] != kNeverSeen && !__builtin_add_overflow(seen[slot], ttl, &end);
    const bool over = known && times[i] > end;
    if (group_of_slot[slot] < 0 || over) {
      slots_of[made] = slot;
      before[made] = over ? group_of_slot[slot] : -1;
      ended[made] = over ? end : kNeverSeen;
      group_of_slot[slot] = static_cast<int32_t>(made++);
    }
    groups[i] = group_of_slot[slot];
    seen[slot] = std::max(seen[slot], times[i]);
  }
  for (int64_t group = 0; group < made; ++group) group_of_slot[slots_of[group]] = -1;
  return made;
}

// ---- running aggregates: of each row, what its key has come to with it. A row whose value is null (valid[i] == 0; without
// `valid` none is) changes nothing.

inline void run_counts(const uint32_t* slots, const uint8_t* valid, int64_t count, int64_t* counts, int64_t* results) {
  for (int64_t i = 0; i < count; ++i) results[i] = counts[slots[i]] += valid == nullptr || valid[i];
}

// The first row with which a sum does not fit 64 bits, or -1.
inline int64_t run_sums(const uint32_t* slots, const int64_t* values, const uint8_t* valid, int64_t count, int64_t* sums,
                        int64_t* results) {
  for (int64_t i = 0; i < count; ++i) {
    int64_t& sum = sums[slots[i]];
    if ((valid == nullptr || valid[i]) && __builtin_add_overflow(sum, values[i], &sum)) return i;
    results[i] = sum;
  }
  return -1;
}

inline int64_t run_sums(const uint32_t* slots, const double* values, const uint8_t* valid, int64_t count, double* sums,
                        double* results) {
  for (int64_t i = 0; i < count; ++i) {
    if (valid == nullptr || valid[i]) sums[slots[i]] += values[i];
    results[i] = sums[slots[i]];
  }
  return -1;
}

// Is left before right, where NaN is greater than any number?
inline bool is_before(int64_t left, int64_t right) { return left < right; }
inline bool is_before(double left, double right) { return left < right || (std::isnan(right) && !std::isnan(left)); }

// counts[slot] = values so far: the first one is the extreme, whatever stands there.
template <typename T>
inline void run_extremes(const uint32_t* slots, const T* values, const uint8_t* valid, int64_t count, bool greatest,
                         int64_t* counts, T* extremes, T* results) {
  for (int64_t i = 0; i < count; ++i) {
    T& extreme = extremes[slots[i]];
    if (valid == nullptr || valid[i]) {
      const bool better = greatest ? is_before(extreme, values[i]) : is_before(values[i], extreme);
      if (counts[slots[i]]++ == 0 || better) extreme = values[i];
    }
    results[i] = extreme;
  }
}

}  // namespace jetfast
