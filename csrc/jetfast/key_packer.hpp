// Keys of several columns, or of short strings, in two words: compared and hashed at once instead of byte by byte.
//
// A packed key is 16 bytes: the columns of fixed width, one byte with a bit for each of them that is NULL (all zero then),
// and the strings, each behind a byte that is its length + 1, or 0 for NULL; zeros follow. Where the fixed columns leave no
// room for the byte of NULLs, keys with a NULL in them do not fit; nor do keys whose strings are too long together.
// Equal keys are packed equally, and different ones differently, because the types tell where each part ends.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <vector>

#include "jetfast/column_view.hpp"
#include "jetfast/key_cells.hpp"

namespace jetfast {

using PackedKey = std::array<uint64_t, 2>;  // low and high word

class KeyPacker {
 public:
  static constexpr int32_t kBytes = 16;

  explicit KeyPacker(const std::vector<ColumnView>& types) : types_(types) {
    int32_t fixed_columns = 0, strings = 0;
    for (const ColumnView& type : types_) {
      offsets_.push_back(fixed_bytes_);
      widths_.push_back(type.layout == Layout::bits ? 1 : type.width);
      if (is_variable(type)) {
        ++strings;
        continue;
      }
      const int32_t width = widths_.back();
      const bool is_word = type.layout == Layout::bits || (type.layout == Layout::fixed && type.kind != Kind::fixed_binary);
      if (!is_word || (width != 1 && width != 2 && width != 4 && width != 8)) return;
      fixed_bytes_ += width;
      ++fixed_columns;
    }
    const int32_t string_bytes = 2 * strings;  // at least: a length and a character each
    has_nulls_byte_ = fixed_columns > 0 && fixed_bytes_ + 1 + string_bytes <= kBytes;
    first_string_ = fixed_bytes_ + has_nulls_byte_;
    packs_ = !types_.empty() && fixed_columns <= 8 && first_string_ + string_bytes <= kBytes;
  }

  // Can keys of these types be packed at all?
  bool packs() const { return packs_; }

  // Packs `count` keys: key i is of row rows[i] (row i without `rows`). Returns how many do not fit: fits()[i] is 0 for them
  // (else 1; only valid if there are any), and what is packed of them means nothing.
  int64_t pack(const ColumnView* columns, const int32_t* rows, int64_t count) {
    const auto size = static_cast<size_t>(count);
    all_fit_ = true;
    if (is_two_words(columns, rows)) {
      lows_ = static_cast<const uint64_t*>(columns[0].values);
      highs_ = static_cast<const uint64_t*>(columns[1].values);
      return 0;
    }
    low_words_.assign(size, 0);
    high_words_.assign(size, 0);
    lows_ = low_words_.data();
    highs_ = high_words_.data();
    int32_t nulls_bit = 0;
    string_offsets_.assign(size, first_string_);
    for (size_t index = 0; index < types_.size(); ++index) {
      const Source source = source_of(columns[index], rows, count);
      if (is_variable(types_[index])) pack_strings(source, count);
      else pack_words(source, count, offsets_[index], nulls_bit++);
    }
    return all_fit_ ? 0 : count - std::count(fits_.begin(), fits_.begin() + count, uint8_t{1});
  }

  const uint64_t* lows() const { return lows_; }
  const uint64_t* highs() const { return highs_; }
  const uint8_t* fits() const { return fits_.data(); }

  // Words to change before they are looked up; only after pack found some that do not fit.
  uint64_t* mutable_lows() { return low_words_.data(); }
  uint64_t* mutable_highs() { return high_words_.data(); }

  // What an unpacked key takes at most; up to kBytes behind its end are written, too.
  int64_t unpacked_bytes_max() const { return kBytes + 5 * static_cast<int64_t>(types_.size()); }

  // Writes a packed key as BytesTable keeps keys: per column a tag, 0 for NULL, then the value, lengths before strings.
  // Returns its end.
  uint8_t* unpack(const PackedKey& key, uint8_t* target) const {
    uint8_t bytes[2 * kBytes] = {};
    std::memcpy(bytes, key.data(), kBytes);
    int32_t string_offset = first_string_, nulls_bit = 0;
    for (size_t index = 0; index < types_.size(); ++index) {
      if (is_variable(types_[index])) {
        const uint8_t marked_length = bytes[string_offset++];
        *target++ = marked_length != 0;
        if (marked_length == 0) continue;
        const uint32_t length = marked_length - 1u;
        std::memcpy(target, &length, 4);
        std::memcpy(target + 4, bytes + string_offset, kBytes);
        target += 4 + length;
        string_offset += static_cast<int32_t>(length);
        continue;
      }
      const bool is_null = has_nulls_byte_ && (bytes[fixed_bytes_] >> nulls_bit & 1);
      ++nulls_bit;
      *target++ = !is_null;
      std::memcpy(target, bytes + offsets_[index], 8);
      target += is_null ? 0 : widths_[index];
    }
    return target;
  }

 private:
  // Where the values of a column are: row rows[i] of `values` (row i without `rows`), NULL where valid[i] is 0.
  struct Source {
    const ColumnView* values;
    const int32_t* rows;
    const uint8_t* valid;  // nullptr: no NULLs
  };

  // Two columns whose values are the words already.
  bool is_two_words(const ColumnView* columns, const int32_t* rows) const {
    if (types_.size() != 2 || rows != nullptr) return false;
    for (size_t index = 0; index < 2; ++index)
      if (columns[index].layout != Layout::fixed || columns[index].width != 8 || columns[index].kind == Kind::float64 ||
          columns[index].validity != nullptr || reinterpret_cast<uintptr_t>(columns[index].values) % 8 != 0)
        return false;
    return true;
  }

  Source source_of(const ColumnView& view, const int32_t* rows, int64_t count) {
    if (view.validity == nullptr && view.layout != Layout::dictionary) return {&view, rows, nullptr};
    const ColumnView& values = resolve_rows(view, rows, count, value_rows_);
    rows_.resize(static_cast<size_t>(count));
    valid_.resize(static_cast<size_t>(count));
    bool all_valid = true;
    for (int64_t i = 0; i < count; ++i) {
      valid_[i] = value_rows_[i] >= 0;
      rows_[i] = static_cast<int32_t>(std::max<int64_t>(value_rows_[i], 0));
      all_valid &= value_rows_[i] >= 0;
    }
    return {&values, rows_.data(), all_valid ? nullptr : valid_.data()};
  }

  void drop(int64_t row, int64_t count) {
    if (all_fit_) fits_.assign(static_cast<size_t>(count), 1);
    all_fit_ = false;
    fits_[row] = 0;
  }

  void pack_words(const Source& source, int64_t count, int32_t offset, int32_t nulls_bit) {
    words_.assign(static_cast<size_t>(count), 0);
    if (source.values->row_count > 0) load_words(*source.values, source.rows, count, words_.data());
    if (source.valid != nullptr) {
      keep_valid(source.valid, count, uint64_t{0}, words_.data());
      for (int64_t i = 0; i < count; ++i) {
        if (source.valid[i]) continue;
        if (has_nulls_byte_) add(i, uint64_t{1} << nulls_bit, 0, fixed_bytes_);
        else drop(i, count);
      }
    }
    const int32_t shift = offset % 8 * 8;
    uint64_t* first = offset < 8 ? low_words_.data() : high_words_.data();
    for (int64_t i = 0; i < count; ++i) first[i] |= words_[i] << shift;
    if (offset < 8 && shift != 0)
      for (int64_t i = 0; i < count; ++i) high_words_[i] |= words_[i] >> (64 - shift);
  }

  void pack_strings(const Source& source, int64_t count) {
    const ColumnView& view = *source.values;
    with_strings(view, [&](auto string) {
      const bool views = view.layout == Layout::views;
      const uint8_t* end = nullptr;  // of the bytes of all strings
      if (view.row_count > 0 && view.layout == Layout::offsets32)
        end = view.bytes + static_cast<const int32_t*>(view.offsets)[view.row_count];
      else if (view.row_count > 0 && view.layout == Layout::offsets64)
        end = view.bytes + static_cast<const int64_t*>(view.offsets)[view.row_count];
      for (int64_t i = 0; i < count; ++i) {
        const bool is_null = source.valid != nullptr && !source.valid[i];
        const Cell value = is_null ? Cell{nullptr, 0} : string(source.rows ? source.rows[i] : i);
        const int32_t offset = string_offsets_[i];
        if (value.length >= static_cast<uint32_t>(kBytes - offset)) {
          drop(i, count);
          string_offsets_[i] = kBytes;
          continue;
        }
        if (is_null) {
          ++string_offsets_[i];
          continue;
        }
        const int64_t readable = views ? (value.length <= 12 ? 12 : value.length) : end - value.data;
        const PackedKey text = load_text(value, readable);
        // its length, then its bytes
        add(i, text[0] << 8 | (value.length + 1u), text[1] << 8 | text[0] >> 56, offset);
        string_offsets_[i] = offset + 1 + static_cast<int32_t>(value.length);
      }
    });
  }

  // At most 15 bytes, zeros behind them; `readable` bytes may be read.
  static PackedKey load_text(const Cell& value, int64_t readable) {
    static constexpr uint8_t kMasks[2 * kBytes] = {255, 255, 255, 255, 255, 255, 255, 255,
                                                   255, 255, 255, 255, 255, 255, 255, 255};
    uint8_t copy[kBytes];
    const uint8_t* text = value.data;
    if (readable < kBytes) {
      std::memset(copy, 0, kBytes);
      if (readable >= 12 && value.length <= 12) std::memcpy(copy, text, 12);  // as in string views
      else if (value.length > 0) std::memcpy(copy, text, value.length);
      text = copy;
    }
    const uint8_t* mask = kMasks + kBytes - value.length;
    return {load_unaligned<uint64_t>(text) & load_unaligned<uint64_t>(mask),
            load_unaligned<uint64_t>(text + 8) & load_unaligned<uint64_t>(mask + 8)};
  }

  // Two words enter a key `offset` bytes from its start; what is moved out is zero.
  void add(int64_t row, uint64_t low, uint64_t high, int32_t offset) {
    if (offset == 0) {
      low_words_[row] = low;
      high_words_[row] = high;
      return;
    }
    const auto moved = (static_cast<unsigned __int128>(high) << 64 | low) << (8 * offset);
    low_words_[row] |= static_cast<uint64_t>(moved);
    high_words_[row] |= static_cast<uint64_t>(moved >> 64);
  }

  std::vector<ColumnView> types_;
  std::vector<int32_t> offsets_, widths_;  // of fixed columns
  int32_t fixed_bytes_ = 0, first_string_ = 0;
  bool has_nulls_byte_ = false, packs_ = false;

  // of the last call
  bool all_fit_ = true;
  const uint64_t *lows_ = nullptr, *highs_ = nullptr;
  std::vector<uint64_t> low_words_, high_words_, words_;
  std::vector<uint8_t> fits_, valid_;
  std::vector<int32_t> rows_, string_offsets_;
  std::vector<int64_t> value_rows_;
};

}  // namespace jetfast
