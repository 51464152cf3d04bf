// The order of values of one column: numbers by size (NaN is the greatest), text and bytes bytewise, NULL last.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

#include "jetfast/column_view.hpp"
#include "jetfast/key_index.hpp"
#include "jetfast/value_column.hpp"

namespace jetfast {

template <typename T>
inline int compare_numbers(T left, T right) {
  return (left > right) - (left < right);
}

inline int compare_doubles(double left, double right) {
  if (std::isnan(left) || std::isnan(right)) return std::isnan(left) - std::isnan(right);
  return compare_numbers(left, right);
}

// Two's complement of `width` bytes, lowest first.
inline int compare_wide_integers(const uint8_t* left, const uint8_t* right, int32_t width) {
  const auto highest = [width](const uint8_t* value) { return load_unaligned<int64_t>(value + width - 8); };
  if (const int order = compare_numbers(highest(left), highest(right))) return order;
  for (int32_t byte = width - 16; byte >= 0; byte -= 8)
    if (const int order = compare_numbers(load_unaligned<uint64_t>(left + byte), load_unaligned<uint64_t>(right + byte))) return order;
  return 0;
}

// Negative, 0 or positive, as row `left` comes before, with or after row `right`. Not for dictionaries and nested columns.
inline int compare_values(const ColumnView& view, int64_t left, int64_t right) {
  const bool left_valid = view.is_valid(left), right_valid = view.is_valid(right);
  if (!left_valid || !right_valid) return right_valid - left_valid;
  if (view.layout != Layout::fixed || view.kind == Kind::fixed_binary) {
    int order = 0;
    with_cells(view, [&](auto cell) {
      uint8_t left_room[8] = {}, right_room[8] = {};
      const Cell one = cell(left, left_room), other = cell(right, right_room);
      order = std::memcmp(one.data, other.data, std::min(one.length, other.length));
      if (order == 0) order = compare_numbers(one.length, other.length);
    });
    return order;
  }
  const auto* one = static_cast<const uint8_t*>(view.values) + left * view.width;
  const auto* other = static_cast<const uint8_t*>(view.values) + right * view.width;
  const auto as = [&](auto example) {
    using T = decltype(example);
    return compare_numbers(load_unaligned<T>(one), load_unaligned<T>(other));
  };
  switch (view.kind) {
    case Kind::float64: return compare_doubles(load_unaligned<double>(one), load_unaligned<double>(other));
    case Kind::float32: return compare_doubles(load_unaligned<float>(one), load_unaligned<float>(other));
    case Kind::float16:
      return compare_doubles(half_to_double(load_unaligned<uint16_t>(one)), half_to_double(load_unaligned<uint16_t>(other)));
    case Kind::uint8: return as(uint8_t{});
    case Kind::uint16: return as(uint16_t{});
    case Kind::uint32: return as(uint32_t{});
    case Kind::uint64: return as(uint64_t{});
    default: break;
  }
  switch (view.width) {
    case 1: return as(int8_t{});
    case 2: return as(int16_t{});
    case 4: return as(int32_t{});
    case 8: return as(int64_t{});
    default: return compare_wide_integers(one, other, view.width);
  }
}

// As compare_values, by several columns: the first that tells the rows apart decides.
inline int compare_rows(const std::vector<Column>& columns, int64_t left, int64_t right) {
  for (const Column& column : columns)
    if (const int order = compare_values(column.view, left, right)) return order;
  return 0;
}

}  // namespace jetfast
