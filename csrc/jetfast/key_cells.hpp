// Reading key columns of any type: where the value of a row lies, its bytes in one form for equal keys, and their hash.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"

namespace jetfast {

template <typename T>
inline T load_unaligned(const void* address) {
  T value;
  std::memcpy(&value, address, sizeof(T));
  return value;
}

// Floats that compare equal as keys get equal bits.
inline uint64_t canonical_float64(uint64_t bits) {
  if ((bits << 1) > 0xffe0000000000000u) return 0x7ff8000000000000u;  // NaN
  return bits == 0x8000000000000000u ? 0 : bits;
}
inline uint32_t canonical_float32(uint32_t bits) {
  if ((bits << 1) > 0xff000000u) return 0x7fc00000u;
  return bits == 0x80000000u ? 0 : bits;
}

// The code of a dictionary column at a valid row.
inline int64_t dictionary_code(const ColumnView& view, int64_t row) {
  switch (view.width) {
    case 1: {
      const uint8_t code = static_cast<const uint8_t*>(view.values)[row];
      return view.code_unsigned ? code : static_cast<int8_t>(code);
    }
    case 2: {
      const uint16_t code = load_unaligned<uint16_t>(static_cast<const uint8_t*>(view.values) + row * 2);
      return view.code_unsigned ? code : static_cast<int16_t>(code);
    }
    case 4: {
      const uint32_t code = load_unaligned<uint32_t>(static_cast<const uint8_t*>(view.values) + row * 4);
      return view.code_unsigned ? static_cast<int64_t>(code) : static_cast<int32_t>(code);
    }
    default: return load_unaligned<int64_t>(static_cast<const uint8_t*>(view.values) + row * 8);
  }
}

// For each row, where its value lies: value_rows[i] is the row in `result` (the dictionary, if there is one), -1 for null.
inline const ColumnView& resolve_rows(const ColumnView& view, const int32_t* rows, int64_t count,
                                      std::vector<int64_t>& value_rows) {
  value_rows.resize(static_cast<size_t>(count));
  if (view.layout == Layout::dictionary) {
    const ColumnView& values = *view.dictionary;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows ? rows[i] : i;
      const int64_t code = view.is_valid(row) ? dictionary_code(view, row) : -1;
      value_rows[i] = code >= 0 && values.is_valid(code) ? code : -1;
    }
    return values;
  }
  if (view.kind == Kind::null) {
    for (int64_t i = 0; i < count; ++i) value_rows[i] = -1;
  } else if (view.validity == nullptr) {
    for (int64_t i = 0; i < count; ++i) value_rows[i] = rows ? rows[i] : i;
  } else {
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = rows ? rows[i] : i;
      value_rows[i] = view.is_valid(row) ? row : -1;
    }
  }
  return view;
}

struct Cell {
  const uint8_t* data;
  uint32_t length;
};

// Calls work(string) where string(row) gives the bytes of a valid value of a column of strings.
template <typename Work>
inline void with_strings(const ColumnView& view, Work&& work) {
  switch (view.layout) {
    case Layout::offsets32:
      return work([bytes = view.bytes, offsets = static_cast<const int32_t*>(view.offsets)](int64_t row) {
        return Cell{bytes + offsets[row], static_cast<uint32_t>(offsets[row + 1] - offsets[row])};
      });
    case Layout::offsets64:
      return work([bytes = view.bytes, offsets = static_cast<const int64_t*>(view.offsets)](int64_t row) {
        if (offsets[row + 1] - offsets[row] > INT32_MAX) throw std::length_error("a key of more than 2 GiB");
        return Cell{bytes + offsets[row], static_cast<uint32_t>(offsets[row + 1] - offsets[row])};
      });
    default:
      return work([buffers = view.view_buffers, values = static_cast<const uint8_t*>(view.values)](int64_t row) {
        const uint8_t* value = values + row * 16;
        const auto length = load_unaligned<uint32_t>(value);
        if (length <= 12) return Cell{value + 4, length};
        return Cell{buffers[load_unaligned<int32_t>(value + 8)] + load_unaligned<int32_t>(value + 12), length};
      });
  }
}

// Calls work(cell) where cell(row, room) gives the bytes of a valid value; `room` has 8 bytes for those that must be made.
template <typename Work>
inline void with_cells(const ColumnView& view, Work&& work) {
  const auto* values = static_cast<const uint8_t*>(view.values);
  const int32_t width = view.width;
  switch (view.layout) {
    case Layout::bits:
      return work([&view](int64_t row, uint8_t* room) {
        *room = get_bit(static_cast<const uint8_t*>(view.values), view.bits_offset + row);
        return Cell{room, 1};
      });
    case Layout::fixed:
      if (view.kind == Kind::float64)
        return work([values](int64_t row, uint8_t* room) {
          const uint64_t bits = canonical_float64(load_unaligned<uint64_t>(values + row * 8));
          std::memcpy(room, &bits, 8);
          return Cell{room, 8};
        });
      if (view.kind == Kind::float32)
        return work([values](int64_t row, uint8_t* room) {
          const uint32_t bits = canonical_float32(load_unaligned<uint32_t>(values + row * 4));
          std::memcpy(room, &bits, 4);
          return Cell{room, 4};
        });
      return work([values, width](int64_t row, uint8_t*) {
        return Cell{values + row * width, static_cast<uint32_t>(width)};
      });
    case Layout::offsets32:
    case Layout::offsets64:
    case Layout::views: return with_strings(view, [&work](auto string) {
      return work([string](int64_t row, uint8_t*) { return string(row); });
    });
    case Layout::none:
      return work([](int64_t, uint8_t* room) { return Cell{room, 0}; });
    default: throw std::invalid_argument("nested columns cannot be keys");
  }
}

// words[i] = the value of row rows[i] (row i without `rows`), zeros before it, floats in their form as keys: columns of bits or
// of a fixed width up to 8. What it gives for NULLs means nothing.
inline void load_words(const ColumnView& view, const int32_t* rows, int64_t count, uint64_t* words) {
  const auto* values = static_cast<const uint8_t*>(view.values);
  const auto each = [&](auto load) {
    if (rows == nullptr)
      for (int64_t i = 0; i < count; ++i) words[i] = load(i);
    else
      for (int64_t i = 0; i < count; ++i) words[i] = load(static_cast<int64_t>(rows[i]));
  };
  if (view.layout == Layout::bits)
    return each([&](int64_t row) { return static_cast<uint64_t>(get_bit(values, view.bits_offset + row)); });
  if (view.kind == Kind::float64)
    return each([&](int64_t row) { return canonical_float64(load_unaligned<uint64_t>(values + row * 8)); });
  if (view.kind == Kind::float32)
    return each([&](int64_t row) -> uint64_t { return canonical_float32(load_unaligned<uint32_t>(values + row * 4)); });
  switch (view.width) {
    case 1: return each([&](int64_t row) -> uint64_t { return values[row]; });
    case 2: return each([&](int64_t row) -> uint64_t { return load_unaligned<uint16_t>(values + row * 2); });
    case 4: return each([&](int64_t row) -> uint64_t { return load_unaligned<uint32_t>(values + row * 4); });
    default: return each([&](int64_t row) { return load_unaligned<uint64_t>(values + row * 8); });
  }
}

// values[i] = `other` where valid[i] is 0, not 1.
template <typename Value>
inline void keep_valid(const uint8_t* valid, int64_t count, Value other, Value* values) {
  for (int64_t i = 0; i < count; ++i) {
    const Value changed = (values[i] ^ other) & (Value{valid[i]} - 1);
    values[i] ^= changed;
  }
}

inline bool is_variable(const ColumnView& type) {
  return type.layout == Layout::offsets32 || type.layout == Layout::offsets64 || type.layout == Layout::views;
}

inline uint64_t fold_multiply(uint64_t left, uint64_t right) {
  const unsigned __int128 product = static_cast<unsigned __int128>(left) * right;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Not for use outside of a process: it may change, and differs by byte order. At most 7 bytes behind the end are read.
inline uint64_t hash_padded_bytes(const uint8_t* bytes, uint32_t length) {
  uint64_t hash = 0x2d358dccaa6c78a5u ^ length;
  while (length >= 8) {
    hash = fold_multiply(hash ^ load_unaligned<uint64_t>(bytes), 0x9e3779b97f4a7c15u);
    bytes += 8;
    length -= 8;
  }
  if (length > 0) {
    const uint64_t last = load_unaligned<uint64_t>(bytes) & ((uint64_t{1} << (8 * length)) - 1);
    hash = fold_multiply(hash ^ last, 0x9e3779b97f4a7c15u);
  }
  return hash;
}

}  // namespace jetfast
