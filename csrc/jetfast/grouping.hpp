// Rows by group: which places occur, and in which order the rows of each group come. For states that are kept in Arrow arrays.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "jetfast/batch.hpp"

namespace jetfast {

// Number the different places of each span of rows, ascending: groups[row] is the number of places[row], counted on from span
// to span. The span s is rows [starts[s], starts[s + 1]); group_places gets the place of each group, bounds[s] the first group
// of span s. Places are not negative.
//
// A bitmap of the places gives the numbers by counting bits; where places are too sparse for that they are sorted.
inline void number_places(const int64_t* places, const int64_t* starts, int64_t span_count, int64_t* groups,
                          std::vector<int64_t>& group_places, int64_t* bounds) {
  std::vector<uint64_t> bits;
  std::vector<int64_t> before;  // bits set in the words before
  std::vector<std::pair<int64_t, int64_t>> sorted;
  for (int64_t span = 0; span < span_count; ++span) {
    const int64_t start = starts[span], count = starts[span + 1] - start;
    const auto first_group = static_cast<int64_t>(group_places.size());
    bounds[span] = first_group;
    if (count == 0) continue;
    const int64_t words = *std::max_element(places + start, places + start + count) / 64 + 1;
    if (words > 8 * count + 64) {
      sorted.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) sorted[static_cast<size_t>(i)] = {places[start + i], start + i};
      std::sort(sorted.begin(), sorted.end());
      for (const auto& [place, row] : sorted) {
        if (static_cast<int64_t>(group_places.size()) == first_group || group_places.back() != place) group_places.push_back(place);
        groups[row] = static_cast<int64_t>(group_places.size()) - 1;
      }
      continue;
    }
    bits.assign(static_cast<size_t>(words), 0);
    before.resize(static_cast<size_t>(words));
    for (int64_t row = start; row < start + count; ++row) bits[places[row] >> 6] |= uint64_t{1} << (places[row] & 63);
    for (int64_t word = 0; word < words; ++word) {
      before[word] = static_cast<int64_t>(group_places.size());
      for (uint64_t rest = bits[word]; rest != 0; rest &= rest - 1)
        group_places.push_back(word * 64 + popcount64((rest & (~rest + 1)) - 1));
    }
    for (int64_t row = start; row < start + count; ++row) {
      const uint64_t lower = (uint64_t{1} << (places[row] & 63)) - 1;
      groups[row] = before[places[row] >> 6] + popcount64(bits[places[row] >> 6] & lower);
    }
  }
  bounds[span_count] = static_cast<int64_t>(group_places.size());
}

// order = the rows by group, then by keys (if given), then by second_keys (if given), then as they come. Groups are numbers in
// [0, group_count). Rows are counted into their groups; a group of one or two ascending runs is merged instead of sorted,
// since most are: new entries behind those that were there.
inline void order_by_group(const int64_t* groups, const int64_t* keys, const int64_t* second_keys, int64_t count,
                           int64_t group_count, int64_t* order) {
  std::vector<int64_t> next(static_cast<size_t>(group_count) + 1, 0);
  for (int64_t row = 0; row < count; ++row) ++next[groups[row] + 1];
  for (int64_t group = 0; group < group_count; ++group) next[group + 1] += next[group];
  if (keys == nullptr) {
    for (int64_t row = 0; row < count; ++row) order[next[groups[row]]++] = row;
    return;
  }
  struct KeyedRow {
    int64_t key, row;
  };
  const auto less = [second_keys](const KeyedRow& left, const KeyedRow& right) {
    if (left.key != right.key) return left.key < right.key;
    if (second_keys && second_keys[left.row] != second_keys[right.row]) return second_keys[left.row] < second_keys[right.row];
    return left.row < right.row;
  };
  std::vector<KeyedRow> rows(static_cast<size_t>(count));
  for (int64_t row = 0; row < count; ++row) rows[next[groups[row]]++] = {keys[row], row};
  auto start = rows.begin();
  for (int64_t group = 0; group < group_count; ++group) {
    const auto end = rows.begin() + next[group];
    const auto middle = std::is_sorted_until(start, end, less);
    if (middle != end) {
      if (std::is_sorted(middle, end, less)) std::inplace_merge(start, middle, end, less);
      else std::sort(start, end, less);
    }
    start = end;
  }
  for (int64_t place = 0; place < count; ++place) order[place] = rows[place].row;
}

}  // namespace jetfast
