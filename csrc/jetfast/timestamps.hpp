// Event times of any unit as int64 microseconds, floored; overflow is reported, never wrapped.
#pragma once

#include <cstdint>

#include "jetfast/column_view.hpp"

namespace jetfast {

inline int64_t floor_divide(int64_t value, int64_t divisor) {
  const int64_t quotient = value / divisor;
  return quotient - ((value % divisor != 0) & ((value < 0) != (divisor < 0)));
}

// How a unit becomes microseconds: times `multiplier`, or floored by `divisor`.
struct MicrosecondScale {
  int64_t multiplier;
  int64_t divisor;
};

inline MicrosecondScale microsecond_scale(const ColumnView& view) {
  if (view.kind == Kind::date32) return {86400000000, 1};
  if (view.kind == Kind::date64) return {1000, 1};
  switch (view.unit) {
    case TimeUnit::second: return {1000000, 1};
    case TimeUnit::milli: return {1000, 1};
    case TimeUnit::micro: return {1, 1};
    case TimeUnit::nano: return {1, 1000};
  }
  return {1, 1};
}

inline bool is_time_kind(Kind kind) { return kind == Kind::date32 || kind == Kind::date64 || kind == Kind::timestamp; }

// Write view.row_count microseconds; nulls become 0. Returns the first row that does not fit int64, or -1.
inline int64_t convert_to_microseconds(const ColumnView& view, int64_t* target) {
  const MicrosecondScale scale = microsecond_scale(view);
  const auto* narrow = static_cast<const int32_t*>(view.values);
  const auto* wide = static_cast<const int64_t*>(view.values);
  const bool is_narrow = view.width == 4;
  const bool nullable = view.validity != nullptr;
  for (int64_t row = 0; row < view.row_count; ++row) {
    if (nullable && !view.is_valid(row)) {
      target[row] = 0;
      continue;
    }
    const int64_t value = is_narrow ? narrow[row] : wide[row];
    if (scale.divisor != 1) {
      target[row] = floor_divide(value, scale.divisor);
    } else {
      if (value > INT64_MAX / scale.multiplier || value < INT64_MIN / scale.multiplier) return row;
      target[row] = value * scale.multiplier;
    }
  }
  return -1;
}

// One byte a row: 1 valid, 0 null.
inline void expand_validity(const ColumnView& view, uint8_t* target) {
  for (int64_t row = 0; row < view.row_count; ++row) target[row] = view.is_valid(row);
}

}  // namespace jetfast
