// A value column of one batch, whatever its Arrow type and layout, as a plain array of one of the four value classes.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/arrow_c_data.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/key_cells.hpp"
#include "jetfast/timestamps.hpp"

namespace jetfast {

inline ValueClass value_class_of(const ColumnView& type) {
  switch (type.kind) {
    case Kind::uint8:
    case Kind::uint16:
    case Kind::uint32:
    case Kind::uint64: return ValueClass::u64;
    case Kind::float16:
    case Kind::float32:
    case Kind::float64: return ValueClass::f64;
    case Kind::decimal128: return ValueClass::i128;
    default: return ValueClass::i64;
  }
}

inline bool is_decimal(Kind kind) {
  return kind == Kind::decimal32 || kind == Kind::decimal64 || kind == Kind::decimal128;
}

// ---- half precision ----------------------------------------------------------------------------------------------------

inline double half_to_double(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double value;
  if (exponent == 31) value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0) value = std::ldexp(fraction, -24);
  else value = std::ldexp(fraction + 1024, exponent - 25);
  return half & 0x8000 ? -value : value;
}

// For values that came from half precision, so nothing is rounded.
inline uint16_t double_to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7e00;
  const double size = std::fabs(value);
  if (std::isinf(value)) return sign | 0x7c00;
  if (size == 0) return sign;
  int exponent;
  const double fraction = std::frexp(size, &exponent);  // size = fraction * 2^exponent, fraction in [0.5, 1)
  if (exponent < -13) return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(size, 24)));
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | (static_cast<int>(std::ldexp(fraction, 11)) - 1024));
}

// ---- widening ----------------------------------------------------------------------------------------------------------

struct WidenedColumn {
  const void* values = nullptr;
  bool has_nulls = false;
  std::vector<uint8_t> valid;  // by row, if has_nulls
  std::vector<uint64_t> words;
  std::vector<int64_t> value_rows;

  // `needs_values` false: only the nulls are of interest (count of a column of any type).
  void widen(const ColumnView& view, ValueClass value_class, bool needs_values) {
    const int64_t count = view.row_count;
    const ColumnView* values_view = &view;
    const int64_t* value_row = nullptr;
    has_nulls = false;
    if (view.layout == Layout::dictionary) {
      values_view = &resolve_rows(view, nullptr, count, value_rows);
      value_row = value_rows.data();
      for (int64_t row = 0; row < count; ++row) has_nulls |= value_row[row] < 0;
      if (has_nulls) {
        valid.resize(static_cast<size_t>(count));
        for (int64_t row = 0; row < count; ++row) valid[row] = value_row[row] >= 0;
      }
    } else if (view.kind == Kind::null) {
      has_nulls = count > 0;
      valid.assign(static_cast<size_t>(count), 0);
      needs_values = false;
    } else if (view.layout == Layout::opaque) {  // only counted; unions have no nulls of their own, and say 0
      const auto* array = static_cast<const ArrowArray*>(view.values);
      const auto* bitmap = array->null_count != 0 && array->n_buffers > 0 ? static_cast<const uint8_t*>(array->buffers[0]) : nullptr;
      has_nulls = bitmap != nullptr;
      if (has_nulls) {
        valid.resize(static_cast<size_t>(count));
        for (int64_t row = 0; row < count; ++row) valid[row] = get_bit(bitmap, array->offset + view.bits_offset + row);
      }
    } else if (view.validity != nullptr && view.null_count > 0) {
      has_nulls = true;
      valid.resize(static_cast<size_t>(count));
      expand_validity(view, valid.data());
    }
    values = nullptr;
    if (!needs_values || count == 0) return;
    const auto* source = static_cast<const uint8_t*>(values_view->values);
    const bool aligned = reinterpret_cast<uintptr_t>(source) % 8 == 0;
    if (value_row == nullptr && aligned && values_view->layout == Layout::fixed &&
        (values_view->width == 8 || values_view->width == 16)) {
      values = source;
      return;
    }
    words.resize(static_cast<size_t>(count) * (value_class == ValueClass::i128 ? 2 : 1));
    values = words.data();
    const auto each = [&](auto* target, auto load) {
      for (int64_t row = 0; row < count; ++row) {
        const int64_t from = value_row ? value_row[row] : row;
        if (from >= 0) target[row] = load(from);
      }
    };
    auto* as_signed = reinterpret_cast<int64_t*>(words.data());
    auto* as_double = reinterpret_cast<double*>(words.data());
    if (values_view->layout == Layout::bits)
      return each(as_signed, [&](int64_t row) { return int64_t{get_bit(source, values_view->bits_offset + row)}; });
    switch (value_class) {
      case ValueClass::i64:
        switch (values_view->width) {
          case 1: return each(as_signed, [&](int64_t row) -> int64_t { return load_unaligned<int8_t>(source + row); });
          case 2: return each(as_signed, [&](int64_t row) -> int64_t { return load_unaligned<int16_t>(source + row * 2); });
          case 4: return each(as_signed, [&](int64_t row) -> int64_t { return load_unaligned<int32_t>(source + row * 4); });
          default: return each(as_signed, [&](int64_t row) { return load_unaligned<int64_t>(source + row * 8); });
        }
      case ValueClass::u64:
        switch (values_view->width) {
          case 1: return each(words.data(), [&](int64_t row) -> uint64_t { return source[row]; });
          case 2: return each(words.data(), [&](int64_t row) -> uint64_t { return load_unaligned<uint16_t>(source + row * 2); });
          case 4: return each(words.data(), [&](int64_t row) -> uint64_t { return load_unaligned<uint32_t>(source + row * 4); });
          default: return each(words.data(), [&](int64_t row) { return load_unaligned<uint64_t>(source + row * 8); });
        }
      case ValueClass::f64:
        switch (values_view->width) {
          case 2: return each(as_double, [&](int64_t row) { return half_to_double(load_unaligned<uint16_t>(source + row * 2)); });
          case 4: return each(as_double, [&](int64_t row) -> double { return load_unaligned<float>(source + row * 4); });
          default: return each(as_double, [&](int64_t row) { return load_unaligned<double>(source + row * 8); });
        }
      case ValueClass::i128:
        return each(reinterpret_cast<Int128Words*>(words.data()),
                    [&](int64_t row) { return load_unaligned<Int128Words>(source + row * 16); });
    }
  }
};

}  // namespace jetfast
