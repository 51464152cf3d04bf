// Event times of any unit as int64 microseconds, floored; overflow is reported, never wrapped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "jetfast/column_view.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"

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

// The least and the greatest of `count` values; count >= 1.
template <typename Value>
struct ValueRange {
  Value least, greatest;
};

template <typename Value>
JETFAST_INLINE ValueRange<Value> value_range_body(const Value* values, int64_t count) {
  constexpr int64_t line = 64 / sizeof(Value);
  constexpr int64_t lanes = 4 * line;  // so many chains of comparisons: one alone is slower than memory
  Value least[lanes], greatest[lanes];
  std::fill_n(least, lanes, values[0]);
  std::fill_n(greatest, lanes, values[0]);
  int64_t row = 0;
  for (; row + lanes <= count; row += lanes) {
    for (int64_t ahead = 0; ahead < lanes; ahead += line) prefetch_page_ahead(values + row + ahead);
    for (int64_t lane = 0; lane < lanes; ++lane) {
      least[lane] = values[row + lane] < least[lane] ? values[row + lane] : least[lane];
      greatest[lane] = values[row + lane] > greatest[lane] ? values[row + lane] : greatest[lane];
    }
  }
  for (; row < count; ++row) {
    least[0] = std::min(least[0], values[row]);
    greatest[0] = std::max(greatest[0], values[row]);
  }
  return {*std::min_element(least, least + lanes), *std::max_element(greatest, greatest + lanes)};
}

#if JETFAST_X86
template <typename Value>
JETFAST_TARGET_AVX2 inline ValueRange<Value> value_range_avx2(const Value* values, int64_t count) {
  return value_range_body(values, count);
}
template <typename Value>
JETFAST_TARGET_AVX512 inline ValueRange<Value> value_range_avx512(const Value* values, int64_t count) {
  return value_range_body(values, count);
}
#endif

template <typename Value>
inline ValueRange<Value> value_range(const Value* values, int64_t count) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return value_range_avx512(values, count);
  if (simd_level() == SimdLevel::avx2) return value_range_avx2(values, count);
#endif
  return value_range_body(values, count);
}

// The least and the greatest time of a time column in microseconds. False: there is no row, a null, or one that does not fit
// int64; then look at each row. Floors and multiples keep the order, so only the two ends are converted.
inline bool time_range(const ColumnView& view, int64_t* least, int64_t* greatest) {
  if (view.row_count == 0 || view.validity != nullptr) return false;
  const MicrosecondScale scale = microsecond_scale(view);
  ValueRange<int64_t> range;
  if (view.width == 4) {
    const auto narrow = value_range(static_cast<const int32_t*>(view.values), view.row_count);
    range = {narrow.least, narrow.greatest};
  } else {
    range = value_range(static_cast<const int64_t*>(view.values), view.row_count);
  }
  if (scale.divisor != 1) {
    *least = floor_divide(range.least, scale.divisor);
    *greatest = floor_divide(range.greatest, scale.divisor);
    return true;
  }
  if (range.greatest > INT64_MAX / scale.multiplier || range.least < INT64_MIN / scale.multiplier) return false;
  *least = range.least * scale.multiplier;
  *greatest = range.greatest * scale.multiplier;
  return true;
}

// One byte a row: 1 valid, 0 null.
inline void expand_validity(const ColumnView& view, uint8_t* target) {
  if (view.validity == nullptr || view.kind == Kind::null) {
    std::memset(target, view.kind != Kind::null, static_cast<size_t>(view.row_count));
    return;
  }
  const uint8_t* bytes = view.validity + view.validity_offset / 8;
  const int shift = static_cast<int>(view.validity_offset % 8);
  int64_t row = 0;
  for (; row + 8 <= view.row_count; row += 8, ++bytes) {
    const uint32_t bits = shift == 0 ? bytes[0] : (bytes[0] | uint32_t{bytes[1]} << 8) >> shift;
    // Byte i of a product keeps bit i only, and then is 1 or 0.
    const uint64_t spread = ((bits & 0xff) * 0x0101010101010101u) & 0x8040201008040201u;
    const uint64_t ones = ((spread + 0x7f7f7f7f7f7f7f7fu) >> 7) & 0x0101010101010101u;
    std::memcpy(target + row, &ones, 8);
  }
  for (; row < view.row_count; ++row) target[row] = view.is_valid(row);
}

}  // namespace jetfast
