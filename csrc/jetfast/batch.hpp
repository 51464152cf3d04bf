// Rows in columns with counted owners, and the allocation of columns to write results into.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "jetfast/arena.hpp"
#include "jetfast/column_view.hpp"

namespace jetfast {

// The buffers that 16-byte views point into.
struct ViewBuffers {
  std::vector<const uint8_t*> pointers;
  std::vector<int64_t> sizes;
  std::vector<std::shared_ptr<const void>> owners;
};

// A view and whatever keeps its memory alive. Immutable once it is part of a batch; copies share the memory.
struct Column {
  ColumnView view;
  std::shared_ptr<const void> owner;               // validity, values, offsets, bytes
  std::shared_ptr<const Column> dictionary;        // Layout::dictionary: view.dictionary is &dictionary->view
  std::shared_ptr<const ViewBuffers> view_buffers;  // Layout::views: view.view_buffers is its pointers.data()
  bool comes_again = false;                         // its maker will send this memory again: see sent_columns.hpp
  // Layout::opaque: view.values is a `const ArrowArray*` (arrow_c_data.hpp) and view.bits_offset the first row of it.

  // What a fresh column writes through; only for whoever allocated it, before it is shared.
  template <typename T>
  T* mutable_values() { return static_cast<T*>(const_cast<void*>(view.values)); }
  template <typename T>
  T* mutable_offsets() { return static_cast<T*>(const_cast<void*>(view.offsets)); }
  uint8_t* mutable_validity() { return const_cast<uint8_t*>(view.validity); }
  uint8_t* mutable_bytes() { return const_cast<uint8_t*>(view.bytes); }
};

struct Rows {
  int64_t row_count = 0;
  std::vector<Column> columns;
};

// ---- bitmaps ------------------------------------------------------------------------------------------------------------

inline int64_t bitmap_bytes(int64_t bits) { return (bits + 7) >> 3; }

inline bool get_bit(const uint8_t* bitmap, int64_t bit) { return (bitmap[bit >> 3] >> (bit & 7)) & 1; }

inline void set_bit_to(uint8_t* bitmap, int64_t bit, bool value) {
  const uint8_t mask = static_cast<uint8_t>(1u << (bit & 7));
  bitmap[bit >> 3] = static_cast<uint8_t>(value ? bitmap[bit >> 3] | mask : bitmap[bit >> 3] & ~mask);
}

inline int popcount64(uint64_t word) {
#if defined(__GNUC__)
  return __builtin_popcountll(word);
#else
  int count = 0;
  for (; word; word &= word - 1) ++count;
  return count;
#endif
}

// Bits that are 1 in [offset, offset + length); reads no byte outside of them.
inline int64_t count_ones(const uint8_t* bitmap, int64_t offset, int64_t length) {
  int64_t count = 0, bit = offset;
  const int64_t end = offset + length;
  for (; bit < end && (bit & 7); ++bit) count += get_bit(bitmap, bit);
  for (; bit + 64 <= end; bit += 64) {
    uint64_t word;
    std::memcpy(&word, bitmap + (bit >> 3), 8);
    count += popcount64(word);
  }
  for (; bit + 8 <= end; bit += 8) count += popcount64(bitmap[bit >> 3]);
  for (; bit < end; ++bit) count += get_bit(bitmap, bit);
  return count;
}

// Copy `length` bits from `source` (bit `offset` on) to `target` (bit `target_offset` on); other bits of target stay.
inline void copy_bits(const uint8_t* source, int64_t offset, int64_t length, uint8_t* target, int64_t target_offset) {
  int64_t done = 0;
  if ((offset & 7) == (target_offset & 7)) {  // whole bytes in between
    for (; done < length && ((target_offset + done) & 7); ++done)
      set_bit_to(target, target_offset + done, get_bit(source, offset + done));
    const int64_t whole = (length - done) >> 3;
    if (whole > 0) {
      std::memcpy(target + ((target_offset + done) >> 3), source + ((offset + done) >> 3), static_cast<size_t>(whole));
      done += whole << 3;
    }
  }
  for (; done < length; ++done) set_bit_to(target, target_offset + done, get_bit(source, offset + done));
}

// Set `length` bits from `target_offset` on to `value`.
inline void fill_bits(uint8_t* target, int64_t target_offset, int64_t length, bool value) {
  int64_t done = 0;
  for (; done < length && ((target_offset + done) & 7); ++done) set_bit_to(target, target_offset + done, value);
  const int64_t whole = (length - done) >> 3;
  if (whole > 0) {
    std::memset(target + ((target_offset + done) >> 3), value ? 0xff : 0, static_cast<size_t>(whole));
    done += whole << 3;
  }
  for (; done < length; ++done) set_bit_to(target, target_offset + done, value);
}

// ---- views of columns -----------------------------------------------------------------------------------------------------

inline bool is_string_layout(Layout layout) { return layout == Layout::offsets32 || layout == Layout::offsets64; }

inline int64_t offset_at(const ColumnView& view, int64_t row) {
  return view.layout == Layout::offsets64 ? static_cast<const int64_t*>(view.offsets)[row]
                                          : static_cast<const int32_t*>(view.offsets)[row];
}

// The type of a column without rows or memory: what allocate_* take.
inline ColumnView type_of(const ColumnView& view) {
  ColumnView type;
  type.kind = view.kind;
  type.layout = view.layout;
  type.unit = view.unit;
  type.code_unsigned = view.code_unsigned;
  type.width = view.width;
  type.precision = view.precision;
  type.scale = view.scale;
  return type;
}

inline bool is_same_type(const ColumnView& left, const ColumnView& right) {
  return left.kind == right.kind && left.layout == right.layout && left.unit == right.unit && left.width == right.width &&
         left.code_unsigned == right.code_unsigned && left.precision == right.precision && left.scale == right.scale;
}

// Do the same rows lie in the same memory? (Of dictionaries: the codes.)
inline bool is_same_memory(const ColumnView& left, const ColumnView& right) {
  return left.row_count == right.row_count && left.values == right.values && left.offsets == right.offsets &&
         left.bytes == right.bytes && left.validity == right.validity && left.validity_offset == right.validity_offset &&
         left.bits_offset == right.bits_offset;
}

// Count the nulls of a bitmap again; one without any is dropped.
inline void settle_nulls(ColumnView& view) {
  if (view.validity == nullptr) return;
  view.null_count = view.row_count - count_ones(view.validity, view.validity_offset, view.row_count);
  if (view.null_count == 0) {
    view.validity = nullptr;
    view.validity_offset = 0;
  }
}

// Rows [start, start + row_count) of a column, sharing its memory. Null counts stay exact.
inline Column slice_column(const Column& column, int64_t start, int64_t row_count) {
  Column result = column;
  ColumnView& view = result.view;
  const bool whole = start == 0 && row_count == view.row_count;
  view.row_count = row_count;
  if (whole) return result;
  if (view.validity != nullptr) {
    view.validity_offset += start;
    settle_nulls(view);
  }
  if (view.kind == Kind::null) view.null_count = row_count;
  switch (view.layout) {
    case Layout::none: break;
    case Layout::bits:
    case Layout::opaque: view.bits_offset += start; break;
    case Layout::fixed:
    case Layout::dictionary:
      if (view.values) view.values = static_cast<const uint8_t*>(view.values) + start * view.width;
      break;
    case Layout::views:
      if (view.values) view.values = static_cast<const uint8_t*>(view.values) + start * 16;
      break;
    case Layout::offsets32:
      if (view.offsets) view.offsets = static_cast<const int32_t*>(view.offsets) + start;
      break;
    case Layout::offsets64:
      if (view.offsets) view.offsets = static_cast<const int64_t*>(view.offsets) + start;
      break;
  }
  return result;
}

inline Rows slice_rows(const Rows& rows, int64_t start, int64_t row_count) {
  Rows result;
  result.row_count = row_count;
  result.columns.reserve(rows.columns.size());
  for (const Column& column : rows.columns) result.columns.push_back(slice_column(column, start, row_count));
  return result;
}

// Bytes that the rows of a column take (opaque columns count 0, ask Arrow). Of a dictionary with more values than there are
// rows only the rows' share is counted: many slices may hold it, and no more than that is ever sent.
inline int64_t column_bytes(const ColumnView& view) {
  int64_t bytes = view.validity ? bitmap_bytes(view.row_count) : 0;
  switch (view.layout) {
    case Layout::none:
    case Layout::opaque: break;
    case Layout::bits: bytes += bitmap_bytes(view.row_count); break;
    case Layout::fixed: bytes += view.row_count * view.width; break;
    case Layout::dictionary: {
      const int64_t values = view.dictionary->row_count;
      const int64_t value_bytes = view.row_count == 0 ? 0 : column_bytes(*view.dictionary);
      bytes += view.row_count * view.width;
      bytes += values <= view.row_count ? value_bytes : static_cast<int64_t>(static_cast<double>(value_bytes) *
                                                                             static_cast<double>(view.row_count) /
                                                                             static_cast<double>(values));
      break;
    }
    case Layout::offsets32:
    case Layout::offsets64:
      if (view.row_count > 0)
        bytes += (view.row_count + 1) * (view.layout == Layout::offsets64 ? 8 : 4) + offset_at(view, view.row_count) -
                 offset_at(view, 0);
      break;
    case Layout::views:
      bytes += view.row_count * 16;
      for (int64_t row = 0; row < view.row_count; ++row) {
        int32_t length;
        std::memcpy(&length, static_cast<const uint8_t*>(view.values) + row * 16, 4);
        if (length > 12 && view.is_valid(row)) bytes += length;
      }
      break;
  }
  return bytes;
}

// ---- columns to write into ------------------------------------------------------------------------------------------------
// `type` comes from type_of or column_types. Content is undefined until written, except that validity starts all valid.
// After writing nulls set view.null_count, or call settle_nulls, which counts them and drops a bitmap without any.

inline uint8_t* allocate_validity(Column& column, Arena& arena, int64_t row_count) {
  const int64_t bytes = bitmap_bytes(row_count);
  Block block = arena.allocate(bytes + kAlignment);
  std::memset(block.get(), 0xff, static_cast<size_t>(bytes));
  column.view.validity = block.get();
  column.view.validity_offset = 0;
  // two owners in one handle: the values' block rides along with the bitmap's
  struct Both {
    std::shared_ptr<const void> first, second;
  };
  uint8_t* bitmap = block.get();
  if (column.owner)
    column.owner = std::make_shared<Both>(Both{std::move(column.owner), std::move(block)});
  else
    column.owner = std::move(block);
  return bitmap;
}

// A column of layout fixed, bits, dictionary or views (then the caller sets dictionary or view_buffers too).
// Values and bitmap lie in one block.
inline Column allocate_fixed(Arena& arena, const ColumnView& type, int64_t row_count, bool with_validity = false) {
  Column column;
  column.view = type;
  ColumnView& view = column.view;
  view.row_count = row_count;
  int64_t bytes = 0;
  switch (type.layout) {
    case Layout::bits: bytes = bitmap_bytes(row_count); break;
    case Layout::fixed:
    case Layout::dictionary: bytes = row_count * type.width; break;
    case Layout::views: bytes = row_count * 16; break;
    default: throw std::invalid_argument("allocate_fixed needs a column of fixed width");
  }
  const int64_t values_bytes = aligned_bytes(bytes);
  const int64_t validity_bytes = with_validity ? aligned_bytes(bitmap_bytes(row_count)) : 0;
  Block block = arena.allocate(values_bytes + validity_bytes);
  view.values = block.get();
  if (with_validity) {
    std::memset(block.get() + values_bytes, 0xff, static_cast<size_t>(validity_bytes));
    view.validity = block.get() + values_bytes;
  }
  if (type.layout == Layout::bits) std::memset(block.get(), 0, static_cast<size_t>(values_bytes));
  column.owner = std::move(block);
  return column;
}

// A string or binary column of layout offsets32 or offsets64 with room for `byte_count` bytes; the caller writes
// row_count + 1 offsets (from 0 to at most byte_count) and the bytes.
inline Column allocate_strings(Arena& arena, const ColumnView& type, int64_t row_count, int64_t byte_count,
                               bool with_validity = false) {
  if (!is_string_layout(type.layout)) throw std::invalid_argument("allocate_strings needs a string or binary column");
  if (type.layout == Layout::offsets32 && byte_count > INT32_MAX)
    throw std::overflow_error("a string column of more than 2 GiB needs large_string");
  Column column;
  column.view = type;
  ColumnView& view = column.view;
  view.row_count = row_count;
  const int64_t offsets_bytes = aligned_bytes((row_count + 1) * (type.layout == Layout::offsets64 ? 8 : 4));
  const int64_t validity_bytes = with_validity ? aligned_bytes(bitmap_bytes(row_count)) : 0;
  Block block = arena.allocate(offsets_bytes + validity_bytes + byte_count);
  view.offsets = block.get();
  if (with_validity) {
    view.validity = block.get() + offsets_bytes;
    std::memset(block.get() + offsets_bytes, 0xff, static_cast<size_t>(validity_bytes));
  }
  view.bytes = block.get() + offsets_bytes + validity_bytes;
  if (type.layout == Layout::offsets64)
    static_cast<int64_t*>(const_cast<void*>(view.offsets))[0] = 0;
  else
    static_cast<int32_t*>(const_cast<void*>(view.offsets))[0] = 0;
  column.owner = std::move(block);
  return column;
}

inline Column null_column(int64_t row_count) {
  Column column;
  column.view.row_count = column.view.null_count = row_count;
  return column;
}

// A type of fixed width, for columns that kernels make themselves (counts, times).
inline ColumnView fixed_type(Kind kind, int32_t width, TimeUnit unit = TimeUnit::micro) {
  ColumnView type;
  type.kind = kind;
  type.layout = kind == Kind::boolean ? Layout::bits : Layout::fixed;
  type.width = kind == Kind::boolean ? 0 : width;
  type.unit = unit;
  return type;
}

}  // namespace jetfast
