// A column as kernels see it: pointers into memory that somebody else owns, whatever its Arrow layout was.
#pragma once

#include <cstdint>

namespace jetfast {

// What the values mean; decides hashing and arithmetic.
enum class Kind : uint8_t {
  null, boolean,
  int8, int16, int32, int64,
  uint8, uint16, uint32, uint64,
  float16, float32, float64,
  decimal32, decimal64, decimal128, decimal256,
  date32, date64,          // days; milliseconds
  time32, time64,          // see unit
  timestamp, duration,     // see unit
  string, binary, fixed_binary,
  nested,                  // carried, moved and sliced by Arrow itself; never a key
};

// How they lie in memory.
enum class Layout : uint8_t {
  none,         // null type: no buffers
  bits,         // boolean, one bit a value
  fixed,        // `width` bytes a value
  offsets32,    // binary, string
  offsets64,    // large binary, large string
  views,        // binary view, string view (16 bytes each)
  dictionary,   // codes of `width` bytes (signed unless code_unsigned) into `dictionary`
  opaque,       // nested: only through Arrow
};

enum class TimeUnit : uint8_t { second, milli, micro, nano };

// All pointers are at row 0 of the column (slices are already applied), except bitmaps, which keep a bit offset.
struct ColumnView {
  Kind kind = Kind::null;
  Layout layout = Layout::none;
  TimeUnit unit = TimeUnit::micro;
  bool code_unsigned = false;
  int32_t width = 0;                   // bytes a value (fixed), a code (dictionary)
  int32_t precision = 0, scale = 0;    // decimals
  int64_t row_count = 0;
  int64_t null_count = 0;              // exact, never -1
  const uint8_t* validity = nullptr;   // bitmap, 1 = valid; nullptr iff null_count == 0 (kind null: all rows are, whatever it says)
  int64_t validity_offset = 0;         // in bits
  const void* values = nullptr;        // fixed, codes, views, bits; never nullptr if row_count > 0 and layout has values
  int64_t bits_offset = 0;             // Layout::bits only
  const void* offsets = nullptr;       // row_count + 1 of them
  const uint8_t* bytes = nullptr;      // offsets32/64: what the offsets point into
  const uint8_t* const* view_buffers = nullptr;  // views
  const ColumnView* dictionary = nullptr;

  bool is_valid(int64_t row) const {
    if (kind == Kind::null) return false;
    if (validity == nullptr) return true;
    const int64_t bit = validity_offset + row;
    return (validity[bit >> 3] >> (bit & 7)) & 1;
  }
};

}  // namespace jetfast
