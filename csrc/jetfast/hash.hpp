// Spark SQL's hash(): Murmur3_x86_32 (Austin Appleby, 2008) with Spark's handling of tail bytes, nulls and several columns.
//
// The hash of a row starts at seed 42; each column replaces it by the hash of its value with the running hash as seed; a
// null leaves it. What a value hashes as (Spark 4):
//     bool                            int 0 or 1
//     int8 int16 int32 uint8 uint16   int
//     int64 uint32                    long
//     float32 float64                 int or long of its bits; -0.0 as 0.0, every NaN as the canonical one
//     decimal, precision <= 18        long of the unscaled value
//     decimal, precision > 18         bytes of the unscaled value: big endian, two's complement, as few as hold it
//     date32 date64                   int days (floored)
//     timestamp, duration             long microseconds (floored); coarser units that overflow wrap
//     time                            long nanoseconds
//     string, binary                  bytes
#pragma once

#include <cstdint>
#include <cstring>

#include "jetfast/column_view.hpp"
#include "jetfast/simd.hpp"
#include "jetfast/timestamps.hpp"

namespace jetfast {

constexpr uint32_t kHashSeed = 42;

JETFAST_INLINE uint32_t rotate_left(uint32_t value, int bits) { return (value << bits) | (value >> (32 - bits)); }

JETFAST_INLINE uint32_t mix_word(uint32_t hash, uint32_t word) {
  word *= 0xcc9e2d51u;
  word = rotate_left(word, 15);
  word *= 0x1b873593u;
  hash ^= word;
  hash = rotate_left(hash, 13);
  return hash * 5 + 0xe6546b64u;
}

JETFAST_INLINE uint32_t finish_hash(uint32_t hash, uint32_t length) {
  hash ^= length;
  hash ^= hash >> 16;
  hash *= 0x85ebca6bu;
  hash ^= hash >> 13;
  hash *= 0xc2b2ae35u;
  return hash ^ (hash >> 16);
}

JETFAST_INLINE uint32_t hash_int(int32_t value, uint32_t seed) {
  return finish_hash(mix_word(seed, static_cast<uint32_t>(value)), 4);
}

JETFAST_INLINE uint32_t hash_long(int64_t value, uint32_t seed) {
  const auto bits = static_cast<uint64_t>(value);
  return finish_hash(mix_word(mix_word(seed, static_cast<uint32_t>(bits)), static_cast<uint32_t>(bits >> 32)), 8);
}

// Spark's hashUnsafeBytes: little-endian words, then each tail byte, sign-extended, as a word of its own.
inline uint32_t hash_bytes(const uint8_t* bytes, int64_t length, uint32_t seed) {
  uint32_t hash = seed;
  const int64_t aligned = length & ~int64_t{3};
  for (int64_t i = 0; i < aligned; i += 4) {
    uint32_t word;
    std::memcpy(&word, bytes + i, 4);  // all machines we build for are little-endian
    hash = mix_word(hash, word);
  }
  for (int64_t i = aligned; i < length; ++i)
    hash = mix_word(hash, static_cast<uint32_t>(static_cast<int32_t>(static_cast<int8_t>(bytes[i]))));
  return finish_hash(hash, static_cast<uint32_t>(length));
}

inline int32_t float_bits(float value) {
  if (value == 0.0f) return 0;
  if (value != value) return 0x7fc00000;
  int32_t bits;
  std::memcpy(&bits, &value, 4);
  return bits;
}

inline int64_t double_bits(double value) {
  if (value == 0.0) return 0;
  if (value != value) return 0x7ff8000000000000;
  int64_t bits;
  std::memcpy(&bits, &value, 8);
  return bits;
}

// BigInteger.toByteArray of a little-endian two's-complement number: 1 -> 01, 128 -> 00 80, -128 -> 80.
inline uint32_t hash_big_integer(const uint8_t* value, int32_t width, uint32_t seed) {
  uint8_t big_endian[32];
  for (int32_t i = 0; i < width; ++i) big_endian[i] = value[width - 1 - i];
  int32_t first = 0;
  const uint8_t sign = big_endian[0] & 0x80 ? 0xff : 0;
  while (first < width - 1 && big_endian[first] == sign && ((big_endian[first + 1] ^ sign) & 0x80) == 0) ++first;
  return hash_bytes(big_endian + first, width - first, seed);
}

template <typename T>
JETFAST_INLINE T load_value(const void* values, int64_t row) {
  T value;
  std::memcpy(&value, static_cast<const uint8_t*>(values) + row * static_cast<int64_t>(sizeof(T)), sizeof(T));
  return value;
}

inline int64_t wrapping_multiply(int64_t value, int64_t factor) {
  return static_cast<int64_t>(static_cast<uint64_t>(value) * static_cast<uint64_t>(factor));
}

// One view of 16 bytes: length, then the bytes themselves (up to 12) or a prefix, a buffer and an offset.
inline const uint8_t* view_bytes(const ColumnView& column, int64_t row, int32_t* length) {
  const uint8_t* view = static_cast<const uint8_t*>(column.values) + row * 16;
  std::memcpy(length, view, 4);
  if (*length <= 12) return view + 4;
  int32_t buffer, offset;
  std::memcpy(&buffer, view + 8, 4);
  std::memcpy(&offset, view + 12, 4);
  return column.view_buffers[buffer] + offset;
}

// ---- loops over rows ------------------------------------------------------------------------------------------------------

// hashes[i] = value_hash(row i, hashes[i]) for valid rows; row i is codes[i] if there are codes.
template <typename ValueHash>
inline void hash_rows(const ColumnView& column, const int32_t* codes, int64_t count, uint32_t* hashes, ValueHash value_hash) {
  if (codes == nullptr) {
    if (column.validity == nullptr) {
      for (int64_t i = 0; i < count; ++i) hashes[i] = value_hash(i, hashes[i]);
    } else {
      for (int64_t i = 0; i < count; ++i)
        if (column.is_valid(i)) hashes[i] = value_hash(i, hashes[i]);
    }
  } else {
    for (int64_t i = 0; i < count; ++i)
      if (codes[i] >= 0 && column.is_valid(codes[i])) hashes[i] = value_hash(codes[i], hashes[i]);
  }
}

JETFAST_INLINE void hash_int32_body(const int32_t* values, int64_t count, uint32_t* hashes) {
  for (int64_t i = 0; i < count; ++i) hashes[i] = hash_int(values[i], hashes[i]);
}

JETFAST_INLINE void hash_int64_body(const int64_t* values, int64_t count, uint32_t* hashes) {
  for (int64_t i = 0; i < count; ++i) hashes[i] = hash_long(values[i], hashes[i]);
}

inline void hash_int32_plain(const int32_t* values, int64_t count, uint32_t* hashes) { hash_int32_body(values, count, hashes); }
inline void hash_int64_plain(const int64_t* values, int64_t count, uint32_t* hashes) { hash_int64_body(values, count, hashes); }
#if JETFAST_X86
JETFAST_TARGET_AVX2 inline void hash_int32_avx2(const int32_t* values, int64_t count, uint32_t* hashes) {
  hash_int32_body(values, count, hashes);
}
JETFAST_TARGET_AVX2 inline void hash_int64_avx2(const int64_t* values, int64_t count, uint32_t* hashes) {
  hash_int64_body(values, count, hashes);
}
JETFAST_TARGET_AVX512 inline void hash_int32_avx512(const int32_t* values, int64_t count, uint32_t* hashes) {
  hash_int32_body(values, count, hashes);
}
JETFAST_TARGET_AVX512 inline void hash_int64_avx512(const int64_t* values, int64_t count, uint32_t* hashes) {
  hash_int64_body(values, count, hashes);
}
#endif

inline void hash_int32_values(const int32_t* values, int64_t count, uint32_t* hashes) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return hash_int32_avx512(values, count, hashes);
  if (simd_level() == SimdLevel::avx2) return hash_int32_avx2(values, count, hashes);
#endif
  hash_int32_plain(values, count, hashes);
}

inline void hash_int64_values(const int64_t* values, int64_t count, uint32_t* hashes) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return hash_int64_avx512(values, count, hashes);
  if (simd_level() == SimdLevel::avx2) return hash_int64_avx2(values, count, hashes);
#endif
  hash_int64_plain(values, count, hashes);
}

// Where rows may be null: hash blocks of rows as if none were, then give the nulls back what they had.
template <typename T>
inline void hash_nullable_values(const ColumnView& column, const T* values, uint32_t* hashes) {
  constexpr int64_t kBlockRows = 1024;
  uint32_t before[kBlockRows];
  for (int64_t start = 0; start < column.row_count; start += kBlockRows) {
    const int64_t rows = column.row_count - start < kBlockRows ? column.row_count - start : kBlockRows;
    std::memcpy(before, hashes + start, static_cast<size_t>(rows) * 4);
    if constexpr (sizeof(T) == 8) hash_int64_values(values + start, rows, hashes + start);
    else hash_int32_values(values + start, rows, hashes + start);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t bit = column.validity_offset + start + row;
      const uint32_t valid = 0u - ((column.validity[bit >> 3] >> (bit & 7)) & 1u);
      hashes[start + row] = (hashes[start + row] & valid) | (before[row] & ~valid);
    }
  }
}

inline bool is_aligned(const void* pointer, uintptr_t bytes) { return (reinterpret_cast<uintptr_t>(pointer) & (bytes - 1)) == 0; }

// Whether the values lie in memory as the longs that are hashed, none of them null.
inline bool hashes_as_long(const ColumnView& column) {
  if (column.layout != Layout::fixed || column.validity != nullptr || !is_aligned(column.values, 8)) return false;
  if (column.kind == Kind::int64) return true;
  if (column.kind != Kind::timestamp && column.kind != Kind::duration) return false;
  const MicrosecondScale scale = microsecond_scale(column);
  return scale.multiplier == 1 && scale.divisor == 1;
}

// Hash the values of a column that is not a dictionary itself (codes pick its rows, if given).
inline void hash_plain_column(const ColumnView& column, const int32_t* codes, int64_t count, uint32_t* hashes) {
  const void* values = column.values;
  const auto hash_ints = [&] {
    if (column.validity) return hash_nullable_values(column, static_cast<const int32_t*>(values), hashes);
    return hash_int32_values(static_cast<const int32_t*>(values), count, hashes);
  };
  const auto hash_longs = [&] {
    if (column.validity) return hash_nullable_values(column, static_cast<const int64_t*>(values), hashes);
    return hash_int64_values(static_cast<const int64_t*>(values), count, hashes);
  };
  switch (column.kind) {
    case Kind::boolean: {
      const auto* bits = static_cast<const uint8_t*>(values);
      const int64_t first = column.bits_offset;
      hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
        return hash_int((bits[(first + row) >> 3] >> ((first + row) & 7)) & 1, seed);
      });
      return;
    }
    case Kind::int8:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_int(load_value<int8_t>(values, row), seed); });
    case Kind::uint8:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_int(load_value<uint8_t>(values, row), seed); });
    case Kind::int16:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_int(load_value<int16_t>(values, row), seed); });
    case Kind::uint16:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_int(load_value<uint16_t>(values, row), seed); });
    case Kind::int32:
    case Kind::date32:
      if (codes == nullptr && is_aligned(values, 4)) return hash_ints();
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_int(load_value<int32_t>(values, row), seed); });
    case Kind::uint32:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_long(load_value<uint32_t>(values, row), seed); });
    case Kind::int64:
      if (codes == nullptr && is_aligned(values, 8)) return hash_longs();
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_long(load_value<int64_t>(values, row), seed); });
    case Kind::float32:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_int(float_bits(load_value<float>(values, row)), seed); });
    case Kind::float64:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_long(double_bits(load_value<double>(values, row)), seed); });
    case Kind::decimal32:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_long(load_value<int32_t>(values, row), seed); });
    case Kind::decimal64:
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_long(load_value<int64_t>(values, row), seed); });
    case Kind::decimal128:
      if (column.precision <= 18)  // the low half is the whole value
        return hash_rows(column, codes, count, hashes,
                         [=](int64_t row, uint32_t seed) { return hash_long(load_value<int64_t>(values, row * 2), seed); });
      return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
        return hash_big_integer(static_cast<const uint8_t*>(values) + row * 16, 16, seed);
      });
    case Kind::date64:
      return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
        return hash_int(static_cast<int32_t>(floor_divide(load_value<int64_t>(values, row), 86400000)), seed);
      });
    case Kind::time32: {
      const int64_t factor = column.unit == TimeUnit::second ? 1000000000 : 1000000;
      return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
        return hash_long(wrapping_multiply(load_value<int32_t>(values, row), factor), seed);
      });
    }
    case Kind::time64: {
      const int64_t factor = column.unit == TimeUnit::micro ? 1000 : 1;
      return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
        return hash_long(wrapping_multiply(load_value<int64_t>(values, row), factor), seed);
      });
    }
    case Kind::timestamp:
    case Kind::duration: {
      const MicrosecondScale scale = microsecond_scale(column);
      if (scale.divisor != 1)
        return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
          return hash_long(floor_divide(load_value<int64_t>(values, row), 1000), seed);
        });
      if (scale.multiplier != 1)
        return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
          return hash_long(wrapping_multiply(load_value<int64_t>(values, row), scale.multiplier), seed);
        });
      if (codes == nullptr && is_aligned(values, 8)) return hash_longs();
      return hash_rows(column, codes, count, hashes,
                       [=](int64_t row, uint32_t seed) { return hash_long(load_value<int64_t>(values, row), seed); });
    }
    case Kind::string:
    case Kind::binary: {
      if (column.layout == Layout::views)
        return hash_rows(column, codes, count, hashes, [&](int64_t row, uint32_t seed) {
          int32_t length;
          const uint8_t* bytes = view_bytes(column, row, &length);
          return hash_bytes(bytes, length, seed);
        });
      const uint8_t* bytes = column.bytes;
      if (column.layout == Layout::offsets64) {
        const auto* offsets = static_cast<const int64_t*>(column.offsets);
        return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
          return hash_bytes(bytes + offsets[row], offsets[row + 1] - offsets[row], seed);
        });
      }
      const auto* offsets = static_cast<const int32_t*>(column.offsets);
      return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
        return hash_bytes(bytes + offsets[row], offsets[row + 1] - offsets[row], seed);
      });
    }
    case Kind::fixed_binary: {
      const int32_t width = column.width;
      return hash_rows(column, codes, count, hashes, [=](int64_t row, uint32_t seed) {
        return hash_bytes(static_cast<const uint8_t*>(values) + row * width, width, seed);
      });
    }
    case Kind::null: return;
    default: return;  // not hashable: refused before (is_hashable)
  }
}

inline bool is_hashable(const ColumnView& column) {
  switch (column.kind) {
    case Kind::uint64:
    case Kind::float16:
    case Kind::decimal256:
    case Kind::nested: return false;
    default: return true;
  }
}

template <typename Code>
inline void expand_codes_as(const ColumnView& column, int32_t* codes) {
  const auto* values = static_cast<const Code*>(column.values);
  if (column.validity == nullptr) {
    for (int64_t row = 0; row < column.row_count; ++row) codes[row] = static_cast<int32_t>(values[row]);
  } else {
    for (int64_t row = 0; row < column.row_count; ++row)
      codes[row] = column.is_valid(row) ? static_cast<int32_t>(values[row]) : -1;
  }
}

// Dictionary codes as int32, -1 for null rows. Dictionaries have fewer than 2^31 values.
inline void expand_codes(const ColumnView& column, int32_t* codes) {
  switch (column.width) {
    case 1: return expand_codes_as<uint8_t>(column, codes);
    case 2: return expand_codes_as<uint16_t>(column, codes);
    case 4: return expand_codes_as<uint32_t>(column, codes);
    default: return expand_codes_as<uint64_t>(column, codes);
  }
}

// int32 values of scratch memory that hash_column needs for a column.
inline int64_t hash_scratch_values(const ColumnView& column) {
  return column.layout == Layout::dictionary ? column.row_count * 2 : 0;
}

// Chain one column into the running hashes (row_count of them). `uniform`: all hashes are still equal to `seed`, so that
// each dictionary value need be hashed but once.
inline void hash_column(const ColumnView& column, bool uniform, uint32_t seed, uint32_t* hashes, int32_t* scratch) {
  if (column.row_count == 0 || column.kind == Kind::null) return;
  if (column.layout != Layout::dictionary) return hash_plain_column(column, nullptr, column.row_count, hashes);
  const ColumnView& dictionary = *column.dictionary;
  expand_codes(column, scratch);
  if (!uniform || dictionary.row_count > column.row_count)
    return hash_plain_column(dictionary, scratch, column.row_count, hashes);
  auto* table = reinterpret_cast<uint32_t*>(scratch + column.row_count);
  for (int64_t value = 0; value < dictionary.row_count; ++value) table[value] = seed;
  hash_plain_column(dictionary, nullptr, dictionary.row_count, table);
  if (column.validity == nullptr) {
    for (int64_t row = 0; row < column.row_count; ++row) hashes[row] = table[scratch[row]];
  } else {
    for (int64_t row = 0; row < column.row_count; ++row)
      if (scratch[row] >= 0) hashes[row] = table[scratch[row]];
  }
}

}  // namespace jetfast
