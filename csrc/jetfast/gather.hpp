// Moving rows: take (rows by index) and concatenate, into pooled memory. Opaque columns are left to Arrow.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/batch.hpp"
#include "jetfast/prefetch.hpp"

namespace jetfast {

// First position in `rows` that is outside [0, row_count), or -1.
inline int64_t first_out_of_range(const int32_t* rows, int64_t count, int64_t row_count) {
  uint32_t highest = 0;  // negative rows become large
  for (int64_t i = 0; i < count; ++i) {
    const auto row = static_cast<uint32_t>(rows[i]);
    highest = row > highest ? row : highest;
  }
  if (count == 0 || highest < row_count) return -1;
  for (int64_t i = 0; i < count; ++i)
    if (rows[i] < 0 || rows[i] >= row_count) return i;
  return -1;
}

// Memory that will be read next: fetched while other work goes on, `width` bytes for each row gathered.
struct ReadAhead {
  const uint8_t* bytes = nullptr;
  int64_t width = 0;
};

template <typename T>
inline void gather_values(const void* source, const int32_t* rows, int64_t count, void* target, ReadAhead ahead) {
  const T* from = static_cast<const T*>(source);
  T* to = static_cast<T*>(target);
  const int64_t whole = count & ~int64_t{7};
  if (ahead.bytes == nullptr) ahead = {static_cast<const uint8_t*>(source), 0};  // a line that is there anyway
  for (int64_t i = 0; i < whole; i += 8) {  // all loads before the stores: the compiler cannot know that they do not overlap
    T values[8];
    for (int k = 0; k < 8; ++k) values[k] = from[static_cast<uint32_t>(rows[i + k])];
    for (int k = 0; k < 8; ++k) to[i + k] = values[k];
    prefetch_line(ahead.bytes + i * ahead.width);
  }
  for (int64_t i = whole; i < count; ++i) to[i] = from[rows[i]];
}

inline void gather_fixed(const void* source, int64_t width, const int32_t* rows, int64_t count, void* target,
                         ReadAhead ahead = ReadAhead()) {
  switch (width) {
    case 0: return;
    case 1: return gather_values<uint8_t>(source, rows, count, target, ahead);
    case 2: return gather_values<uint16_t>(source, rows, count, target, ahead);
    case 4: return gather_values<uint32_t>(source, rows, count, target, ahead);
    case 8: return gather_values<uint64_t>(source, rows, count, target, ahead);
    case 16:
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(static_cast<uint8_t*>(target) + i * 16, static_cast<const uint8_t*>(source) + int64_t{rows[i]} * 16, 16);
      return;
    default:
      for (int64_t i = 0; i < count; ++i)
        std::memcpy(static_cast<uint8_t*>(target) + i * width, static_cast<const uint8_t*>(source) + rows[i] * width,
                    static_cast<size_t>(width));
  }
}

// Bytes beyond its own that the target of gather_strings has room for.
constexpr int32_t kGatherSlack = 16;

template <typename Offset>
inline void gather_strings(const ColumnView& source, const int32_t* rows, Column& result) {
  const auto* from = static_cast<const Offset*>(source.offsets);
  Offset* offsets = result.mutable_offsets<Offset>();
  uint8_t* bytes = result.mutable_bytes();
  if (result.view.row_count == 0) {
    offsets[0] = 0;
    return;
  }
  // Short values are copied as 16 bytes, whatever their length, where source and target have that many.
  const Offset last_wide = from[source.row_count] - kGatherSlack;
  Offset position = 0;
  for (int64_t i = 0; i < result.view.row_count; ++i) {
    const Offset begin = from[rows[i]], length = from[rows[i] + 1] - begin;
    offsets[i] = position;
    if (length <= kGatherSlack && begin <= last_wide)
      std::memcpy(bytes + position, source.bytes + begin, kGatherSlack);
    else if (length > 0)
      std::memcpy(bytes + position, source.bytes + begin, static_cast<size_t>(length));
    position += length;
  }
  offsets[result.view.row_count] = position;
}

// What take_column reads of a column, if it has a fixed width.
inline ReadAhead read_ahead(const ColumnView& view) {
  if (view.layout != Layout::fixed && view.layout != Layout::dictionary) return ReadAhead();
  return {static_cast<const uint8_t*>(view.values), view.width};
}

// Rows of a column by index (checked by the caller), in that order. Not for opaque columns.
inline Column take_column(Arena& arena, const Column& column, const int32_t* rows, int64_t count,
                          ReadAhead ahead = ReadAhead()) {
  const ColumnView& source = column.view;
  if (source.layout == Layout::none) return null_column(count);
  const bool with_validity = source.validity != nullptr && count > 0;
  Column result;
  if (is_string_layout(source.layout)) {
    int64_t byte_count = 0;
    for (int64_t i = 0; i < count; ++i) byte_count += offset_at(source, rows[i] + 1) - offset_at(source, rows[i]);
    result = allocate_strings(arena, type_of(source), count, byte_count + kGatherSlack, with_validity);
    if (source.layout == Layout::offsets64) gather_strings<int64_t>(source, rows, result);
    else gather_strings<int32_t>(source, rows, result);
  } else {
    result = allocate_fixed(arena, type_of(source), count, with_validity);
    if (source.layout == Layout::bits) {
      const auto* bits = static_cast<const uint8_t*>(source.values);
      auto* target = result.mutable_values<uint8_t>();
      for (int64_t i = 0; i < count; ++i)
        target[i >> 3] = static_cast<uint8_t>(target[i >> 3] | get_bit(bits, source.bits_offset + rows[i]) << (i & 7));
    } else {
      const int64_t width = source.layout == Layout::views ? 16 : source.width;
      gather_fixed(source.values, width, rows, count, result.mutable_values<void>(), ahead);
    }
    result.dictionary = column.dictionary;
    result.view.dictionary = source.dictionary;
    result.view_buffers = column.view_buffers;
    result.view.view_buffers = source.view_buffers;
  }
  if (with_validity) {
    uint8_t* validity = result.mutable_validity();
    std::memset(validity, 0, static_cast<size_t>(bitmap_bytes(count)));
    for (int64_t i = 0; i < count; ++i)
      validity[i >> 3] = static_cast<uint8_t>(validity[i >> 3] |
                                              get_bit(source.validity, source.validity_offset + rows[i]) << (i & 7));
    settle_nulls(result.view);
  }
  if (source.kind == Kind::null) result.view.null_count = count;
  return result;
}

// ---- concatenation --------------------------------------------------------------------------------------------------------

inline bool same_values(const ColumnView& left, const ColumnView& right) {
  if (left.row_count != right.row_count || left.null_count != right.null_count || left.layout != right.layout) return false;
  if (left.validity)
    for (int64_t row = 0; row < left.row_count; ++row)
      if (left.is_valid(row) != right.is_valid(row)) return false;
  if (left.row_count == 0 || left.layout == Layout::none) return true;
  if (left.layout == Layout::fixed)
    return left.width == right.width &&
           (left.width == 0 || std::memcmp(left.values, right.values, static_cast<size_t>(left.row_count * left.width)) == 0);
  if (!is_string_layout(left.layout)) return false;
  const int64_t left_base = offset_at(left, 0), right_base = offset_at(right, 0);
  for (int64_t row = 1; row <= left.row_count; ++row)
    if (offset_at(left, row) - left_base != offset_at(right, row) - right_base) return false;
  const int64_t bytes = offset_at(left, left.row_count) - left_base;
  return bytes == 0 || std::memcmp(left.bytes + left_base, right.bytes + right_base, static_cast<size_t>(bytes)) == 0;
}

inline Column concatenate_columns(Arena& arena, const std::vector<const Column*>& parts, bool* done);

template <typename Code>
inline void copy_codes(const ColumnView& part, int64_t base, void* target) {
  const Code* from = static_cast<const Code*>(part.values);
  Code* to = static_cast<Code*>(target);
  for (int64_t row = 0; row < part.row_count; ++row) to[row] = static_cast<Code>(from[row] + static_cast<Code>(base));
}

// The dictionaries of all parts, one after the other unless they are equal; base[i] is added to the codes of part i.
inline Column concatenate_dictionaries(Arena& arena, const std::vector<const Column*>& parts, std::vector<int64_t>& base,
                                       bool* done) {
  std::vector<const Column*> dictionaries;
  std::vector<int64_t> starts;
  int64_t total = 0;
  for (const Column* part : parts) {
    size_t known = 0;
    while (known < dictionaries.size() && dictionaries[known] != part->dictionary.get() &&
           !same_values(dictionaries[known]->view, part->dictionary->view))
      ++known;
    if (known == dictionaries.size()) {
      dictionaries.push_back(part->dictionary.get());
      starts.push_back(total);
      total += part->dictionary->view.row_count;
    }
    base.push_back(starts[known]);
  }
  const ColumnView& type = parts[0]->view;
  const int bits = type.width * 8 - (type.code_unsigned ? 0 : 1);
  *done = bits >= 62 || total <= int64_t{1} << bits;
  if (!*done) return Column();
  if (dictionaries.size() == 1) return *dictionaries[0];
  return concatenate_columns(arena, dictionaries, done);
}

// All rows of `parts` (same type, at least one). *done = false, with nothing made, where only Arrow can do it: opaque columns, and
// dictionaries that together outgrow their codes.
inline Column concatenate_columns(Arena& arena, const std::vector<const Column*>& parts, bool* done) {
  *done = true;
  const ColumnView& type = parts[0]->view;
  if (type.layout == Layout::opaque) {
    *done = false;
    return Column();
  }
  int64_t row_count = 0, byte_count = 0;
  bool with_validity = false;
  for (const Column* part : parts) {
    row_count += part->view.row_count;
    with_validity |= part->view.validity != nullptr;
    if (is_string_layout(type.layout) && part->view.row_count > 0)
      byte_count += offset_at(part->view, part->view.row_count) - offset_at(part->view, 0);
  }
  if (type.layout == Layout::none) return null_column(row_count);
  Column result;
  if (is_string_layout(type.layout)) {
    result = allocate_strings(arena, type_of(type), row_count, byte_count, with_validity);
    int64_t row = 0, position = 0;
    for (const Column* part : parts) {
      const ColumnView& view = part->view;
      if (view.row_count == 0) continue;
      const int64_t from = offset_at(view, 0), bytes = offset_at(view, view.row_count) - from;
      if (type.layout == Layout::offsets64) {
        for (int64_t i = 0; i < view.row_count; ++i)
          result.mutable_offsets<int64_t>()[row + i] = position + offset_at(view, i) - from;
      } else {
        for (int64_t i = 0; i < view.row_count; ++i)
          result.mutable_offsets<int32_t>()[row + i] = static_cast<int32_t>(position + offset_at(view, i) - from);
      }
      if (bytes > 0) std::memcpy(result.mutable_bytes() + position, view.bytes + from, static_cast<size_t>(bytes));
      row += view.row_count;
      position += bytes;
    }
    if (type.layout == Layout::offsets64) result.mutable_offsets<int64_t>()[row] = position;
    else result.mutable_offsets<int32_t>()[row] = static_cast<int32_t>(position);
  } else {
    std::vector<int64_t> base;
    Column dictionary;
    if (type.layout == Layout::dictionary) {
      dictionary = concatenate_dictionaries(arena, parts, base, done);
      if (!*done) return Column();
    }
    std::shared_ptr<ViewBuffers> buffers;
    if (type.layout == Layout::views) buffers = std::make_shared<ViewBuffers>();
    result = allocate_fixed(arena, type_of(type), row_count, with_validity);
    const int64_t width = type.layout == Layout::views ? 16 : type.width;
    int64_t row = 0;
    for (size_t index = 0; index < parts.size(); ++index) {
      const ColumnView& view = parts[index]->view;
      if (view.row_count == 0) continue;
      uint8_t* target = result.mutable_values<uint8_t>() + row * width;
      switch (type.layout) {
        case Layout::bits:
          copy_bits(static_cast<const uint8_t*>(view.values), view.bits_offset, view.row_count, result.mutable_values<uint8_t>(), row);
          break;
        case Layout::dictionary:
          switch (width) {
            case 1: copy_codes<uint8_t>(view, base[index], target); break;
            case 2: copy_codes<uint16_t>(view, base[index], target); break;
            case 4: copy_codes<uint32_t>(view, base[index], target); break;
            default: copy_codes<uint64_t>(view, base[index], target); break;
          }
          break;
        case Layout::views: {
          const auto first = static_cast<int32_t>(buffers->pointers.size());
          const ViewBuffers& from = *parts[index]->view_buffers;
          buffers->pointers.insert(buffers->pointers.end(), from.pointers.begin(), from.pointers.end());
          buffers->sizes.insert(buffers->sizes.end(), from.sizes.begin(), from.sizes.end());
          buffers->owners.push_back(parts[index]->view_buffers);
          std::memcpy(target, view.values, static_cast<size_t>(view.row_count * 16));
          for (int64_t i = 0; i < view.row_count; ++i) {
            int32_t length, buffer;
            std::memcpy(&length, target + i * 16, 4);
            if (length <= 12 || !view.is_valid(i)) continue;  // a null row holds anything
            std::memcpy(&buffer, target + i * 16 + 8, 4);
            buffer += first;
            std::memcpy(target + i * 16 + 8, &buffer, 4);
          }
          break;
        }
        default:
          if (width > 0) std::memcpy(target, view.values, static_cast<size_t>(view.row_count * width));
      }
      row += view.row_count;
    }
    if (type.layout == Layout::dictionary) {
      result.dictionary = std::make_shared<const Column>(std::move(dictionary));
      result.view.dictionary = &result.dictionary->view;
    }
    if (buffers) {
      result.view.view_buffers = buffers->pointers.data();
      result.view_buffers = std::move(buffers);
    }
  }
  if (with_validity) {
    int64_t row = 0;
    for (const Column* part : parts) {
      const ColumnView& view = part->view;
      if (view.validity) copy_bits(view.validity, view.validity_offset, view.row_count, result.mutable_validity(), row);
      row += view.row_count;
    }
    settle_nulls(result.view);
  }
  if (type.kind == Kind::null) result.view.null_count = row_count;
  return result;
}

}  // namespace jetfast
