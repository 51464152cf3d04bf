// Keys to dense slots: equal keys of one or several columns get the same small number, which indexes everything else.
//
// Two tables. One column of up to 8 bytes is kept as a 64-bit word, five words and their slots to a cache line, and probed a line at a time.
// Everything else is encoded to bytes (per column: a tag, 0 for NULL, then the value, lengths before strings) and compared
// as such. NULL is a key like others; so are NaN and zero, which are brought to one form first: all NaN are equal, and
// -0.0 is 0.0. Dictionary columns count by value. Slots are reused after release().
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/arena.hpp"
#include "jetfast/assertions.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/bytes_table.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/key_cells.hpp"
#include "jetfast/key_packer.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"
#include "jetfast/slot_pool.hpp"
#include "jetfast/timestamps.hpp"
#include "jetfast/word_table.hpp"

namespace jetfast {

class KeyIndex {
 public:
  // Types of the key columns as they are kept and come out again: a dictionary's is its value type. None: one global key.
  explicit KeyIndex(std::vector<ColumnView> types) : types_(std::move(types)), packer_(types_) {
    for (const ColumnView& type : types_)
      if (type.layout == Layout::dictionary || type.layout == Layout::opaque)
        throw std::invalid_argument("keys are kept by value");
    one_word_ = types_.size() == 1 &&
                (types_[0].layout == Layout::bits ||
                 (types_[0].layout == Layout::fixed && types_[0].kind != Kind::fixed_binary && types_[0].width <= 8));
  }

  // Only for tests: results are the same.
  void set_simd(SimdLevel level) { simd_ = level; }
  const std::vector<ColumnView>& types() const { return types_; }
  uint32_t slot_limit() const { return pool_.limit(); }  // every slot is below
  int64_t live() const { return pool_.live(); }
  const std::vector<uint32_t>& free_slots() const { return pool_.free_slots(); }
  uint64_t releases() const { return releases_; }  // while it stays, a slot that is taken keeps its key
  bool is_full(size_t block) const { return pool_.is_full(block); }  // every slot of the block below slot_limit is taken
  int64_t bytes() const {
    int64_t bytes = pool_.bytes();
    if (one_word_) bytes += words_.bytes();
    else if (!types_.empty()) bytes += packed_.bytes() + bytes_.bytes();
    return bytes;
  }

  // Every slot that is taken has exactly one key, in one of the tables. Reads all keys.
  void check_invariants() const {
    pool_.check_invariants();
    if (one_word_) {
      words_.check_invariants(pool_);
    } else if (!types_.empty()) {
      packed_.check_invariants(pool_);
      bytes_.check_invariants();
    }
    JETFAST_INVARIANT(null_slot_ == kNoSlot || null_slot_ < pool_.limit());
    JETFAST_INVARIANT(pool_.live() >= 0 && pool_.live() <= int64_t{pool_.limit()});
  }

  void reserve(int64_t keys) {
    JETFAST_CHECK(keys >= 0);
    if (one_word_) words_.reserve(keys);
    else if (packer_.packs()) packed_.reserve(keys);
    else if (!types_.empty()) bytes_.reserve(keys);
  }

  // slots[i] = slot of row rows[i] (row i without `rows`). `columns` has one view per key column.
  void find_or_insert(const ColumnView* columns, const int32_t* rows, int64_t count, uint32_t* slots) {
    look_up<true>(columns, rows, count, slots);
  }

  // As find_or_insert, but a key that is not there gets kNoSlot, and nothing changes.
  void find(const ColumnView* columns, const int32_t* rows, int64_t count, uint32_t* slots) {
    look_up<false>(columns, rows, count, slots);
  }

  void release(uint32_t slot) {
    JETFAST_CHECK(slot < pool_.limit());
    if (slot == null_slot_) {
      null_slot_ = kNoSlot;
    } else if (one_word_) {
      words_.erase(slot);
    } else if (bytes_.holds(slot)) {
      bytes_.erase(slot);
    } else {
      packed_.erase(slot);
    }
    pool_.give_back(slot);
    ++releases_;
  }

  // Gives the keys of listed slots new ones, list by list: those of one list follow each other, in any order. Keys in no list are
  // gone. Returns the new slot of each old one; kNoSlot: gone.
  std::vector<uint32_t> renumber(const std::vector<std::vector<uint32_t>>& lists, Arena& arena) {
    constexpr size_t kPart = 65536;  // the copies of keys stay small
    KeyIndex renumbered(types_);
    renumbered.simd_ = simd_;
    renumbered.reserve(live());
    renumbered.releases_ = releases_ + 1;
    std::vector<uint32_t> moved(slot_limit(), kNoSlot), found;
    for (const std::vector<uint32_t>& slots : lists)
      for (size_t start = 0; start < slots.size(); start += kPart) {
        const auto count = static_cast<int64_t>(std::min(kPart, slots.size() - start));
        const std::vector<Column> columns = keys_of(slots.data() + start, count, arena);
        std::vector<ColumnView> views;
        for (const Column& column : columns) views.push_back(column.view);
        found.resize(static_cast<size_t>(count));
        renumbered.find_or_insert(views.data(), nullptr, count, found.data());
        for (size_t i = 0; i < found.size(); ++i) moved[slots[start + i]] = found[i];
      }
    JETFAST_CHECK(renumbered.live() <= live());
    *this = std::move(renumbered);
    return moved;
  }

  // The keys of some slots as columns of `types()`.
  std::vector<Column> keys_of(const uint32_t* slots, int64_t count, Arena& arena) const {
    std::vector<Column> columns;
    if (types_.empty()) return columns;
    if (one_word_) {
      columns.push_back(words_column(slots, count, arena));
      return columns;
    }
    std::vector<const uint8_t*> cursors(static_cast<size_t>(count));
    Block unpacked;
    if (packer_.packs()) unpacked = arena.allocate(count * packer_.unpacked_bytes_max() + KeyPacker::kBytes);
    uint8_t* end = unpacked.get();
    for (int64_t i = 0; i < count; ++i) {
      if (bytes_.holds(slots[i])) {
        cursors[i] = bytes_.key_of(slots[i]);
      } else {
        cursors[i] = end;
        end = packer_.unpack(packed_.key_of(slots[i]), end);
      }
    }
    for (const ColumnView& type : types_) columns.push_back(bytes_column(type, cursors, arena));
    return columns;
  }

 private:
  template <bool inserts>
  void look_up(const ColumnView* columns, const int32_t* rows, int64_t count, uint32_t* slots) {
    if (count == 0) return;
    if (types_.empty()) {
      std::fill_n(slots, count, null_slot<inserts>());
    } else if (types_.size() == 1 && columns[0].layout == Layout::dictionary) {
      find_by_code<inserts>(columns[0], rows, count, slots);
    } else if (one_word_) {
      find_words<inserts>(columns[0], rows, count, slots);
    } else if (packer_.packs()) {
      find_packed<inserts>(columns, rows, count, slots);
    } else {
      find_bytes<inserts>(columns, rows, count, slots);
    }
  }

  // Words of keys in either table of words.
  template <bool inserts, int kWords>
  void find_in(WordTable<kWords>& table, const typename WordTable<kWords>::Words& words, int64_t count, uint32_t* slots) {
    if constexpr (inserts) table.find_or_insert(words, count, slots, pool_, simd_);
    else table.find(words, count, slots, simd_);
  }

  // ---- one word a key

  template <bool inserts>
  void find_words(const ColumnView& view, const int32_t* rows, int64_t count, uint32_t* slots) {
    if (view.validity == nullptr) return find_valid_words<inserts>(view, rows, count, slots);
    valid_.resize(static_cast<size_t>(count));
    if (rows == nullptr) expand_validity(view, valid_.data());
    else
      for (int64_t i = 0; i < count; ++i) valid_[i] = view.is_valid(rows[i]);
    const auto* first_valid = static_cast<const uint8_t*>(std::memchr(valid_.data(), 1, static_cast<size_t>(count)));
    if (first_valid == nullptr) {
      std::fill_n(slots, count, null_slot<inserts>());
      return;
    }
    if (std::memchr(valid_.data(), 0, static_cast<size_t>(count)) == nullptr)
      return find_valid_words<inserts>(view, rows, count, slots);
    words_scratch_.resize(static_cast<size_t>(count));
    load_words(view, rows, count, words_scratch_.data());
    // Rows without a key look for one that is there, and get their own slot afterwards: no branches, no lists of rows.
    const uint64_t present = words_scratch_[static_cast<size_t>(first_valid - valid_.data())];
    keep_valid(valid_.data(), count, present, words_scratch_.data());
    find_in<inserts>(words_, {words_scratch_.data()}, count, slots);
    keep_valid(valid_.data(), count, null_slot<inserts>(), slots);
  }

  template <bool inserts>
  void find_valid_words(const ColumnView& view, const int32_t* rows, int64_t count, uint32_t* slots) {
    if (count == 0) return;
    const uint64_t* words = static_cast<const uint64_t*>(view.values);
    const bool aligned = reinterpret_cast<uintptr_t>(view.values) % 8 == 0;
    if (rows != nullptr || view.width != 8 || view.layout != Layout::fixed || view.kind == Kind::float64 || !aligned) {
      words_scratch_.resize(static_cast<size_t>(count));
      load_words(view, rows, count, words_scratch_.data());
      words = words_scratch_.data();
    }
    find_in<inserts>(words_, {words}, count, slots);
  }

  template <bool inserts>
  uint32_t null_slot() {
    if (inserts && null_slot_ == kNoSlot) null_slot_ = pool_.take();
    return null_slot_;
  }

  Column words_column(const uint32_t* slots, int64_t count, Arena& arena) const {
    bool has_null = false;
    if (null_slot_ != kNoSlot)
      for (int64_t i = 0; i < count; ++i) has_null |= slots[i] == null_slot_;
    const ColumnView& type = types_[0];
    Column column = allocate_fixed(arena, type, count, has_null);
    const auto word_of = [&](int64_t i) { return slots[i] == null_slot_ ? 0 : words_.key_of(slots[i])[0]; };
    const auto write = [&](auto* values) {
      using Word = std::remove_pointer_t<decltype(values)>;
      for (int64_t i = 0; i < count; ++i) values[i] = static_cast<Word>(word_of(i));
    };
    if (type.layout == Layout::bits) {
      auto* bits = column.mutable_values<uint8_t>();
      for (int64_t i = 0; i < count; ++i) set_bit_to(bits, i, word_of(i) & 1);
    } else {
      switch (type.width) {
        case 1: write(column.mutable_values<uint8_t>()); break;
        case 2: write(column.mutable_values<uint16_t>()); break;
        case 4: write(column.mutable_values<uint32_t>()); break;
        default: write(column.mutable_values<uint64_t>()); break;
      }
    }
    if (has_null) {
      for (int64_t i = 0; i < count; ++i)
        if (slots[i] == null_slot_) set_bit_to(column.mutable_validity(), i, false);
      settle_nulls(column.view);
    }
    return column;
  }

  // ---- one dictionary column: each value that occurs is looked up once a batch

  template <bool inserts>
  void find_by_code(const ColumnView& view, const int32_t* rows, int64_t count, uint32_t* slots) {
    const ColumnView& values = resolve_rows(view, rows, count, code_rows_);
    if (values.row_count > 4 * count + 256) {  // a large dictionary, few rows: no list of all its codes
      std::vector<int32_t> chosen, places;
      for (int64_t i = 0; i < count; ++i) {
        if (code_rows_[i] < 0) {
          slots[i] = find_null<inserts>();
        } else {
          chosen.push_back(static_cast<int32_t>(code_rows_[i]));
          places.push_back(static_cast<int32_t>(i));
        }
      }
      std::vector<uint32_t> found(chosen.size());
      find_plain<inserts>(values, chosen.data(), static_cast<int64_t>(chosen.size()), found.data());
      for (size_t i = 0; i < places.size(); ++i) slots[places[i]] = found[i];
      return;
    }
    slot_of_code_.assign(static_cast<size_t>(values.row_count), kNoSlot);
    std::vector<int32_t> codes;
    for (int64_t i = 0; i < count; ++i) {
      const int64_t code = code_rows_[i];
      if (code >= 0 && slot_of_code_[static_cast<size_t>(code)] == kNoSlot) {
        slot_of_code_[static_cast<size_t>(code)] = 0;
        codes.push_back(static_cast<int32_t>(code));
      }
    }
    std::vector<uint32_t> found(codes.size());
    find_plain<inserts>(values, codes.data(), static_cast<int64_t>(codes.size()), found.data());
    for (size_t i = 0; i < codes.size(); ++i) slot_of_code_[static_cast<size_t>(codes[i])] = found[i];
    for (int64_t i = 0; i < count; ++i)
      slots[i] = code_rows_[i] < 0 ? find_null<inserts>() : slot_of_code_[static_cast<size_t>(code_rows_[i])];
  }

  template <bool inserts>
  void find_plain(const ColumnView& values, const int32_t* rows, int64_t count, uint32_t* slots) {
    if (count == 0) return;
    if (one_word_) find_words<inserts>(values, rows, count, slots);
    else if (packer_.packs()) find_packed<inserts>(&values, rows, count, slots);
    else find_bytes<inserts>(&values, rows, count, slots);
  }

  template <bool inserts>
  uint32_t find_null() {
    if (one_word_) return null_slot<inserts>();
    if (packer_.packs()) {
      const uint64_t zero = 0;
      uint32_t slot;
      find_in<inserts>(packed_, {&zero, &zero}, 1, &slot);
      return slot;
    }
    const uint8_t key[16] = {0};
    return find_in_bytes<inserts>(key, 1, hash_padded_bytes(key, 1));
  }

  // ---- two words a key

  template <bool inserts>
  void find_packed(const ColumnView* columns, const int32_t* rows, int64_t count, uint32_t* slots) {
    const int64_t long_count = packer_.pack(columns, rows, count);
    if (long_count == count) return find_bytes<inserts>(columns, rows, count, slots);
    if (long_count > 0) {  // keys that do not fit look for one that does, and get their own slot afterwards
      const uint8_t* fits = packer_.fits();
      const auto first = static_cast<const uint8_t*>(std::memchr(fits, 1, static_cast<size_t>(count))) - fits;
      keep_valid(fits, count, packer_.lows()[first], packer_.mutable_lows());
      keep_valid(fits, count, packer_.highs()[first], packer_.mutable_highs());
    }
    find_in<inserts>(packed_, {packer_.lows(), packer_.highs()}, count, slots);
    if (long_count == 0) return;
    long_rows_.clear();
    for (int64_t i = 0; i < count; ++i)
      if (!packer_.fits()[i]) long_rows_.push_back(rows ? rows[i] : static_cast<int32_t>(i));
    found_.resize(long_rows_.size());
    find_bytes<inserts>(columns, long_rows_.data(), long_count, found_.data());
    size_t next = 0;
    for (int64_t i = 0; i < count; ++i)
      if (!packer_.fits()[i]) slots[i] = found_[next++];
  }

  // ---- many bytes a key

  template <bool inserts>
  uint32_t find_in_bytes(const uint8_t* bytes, uint32_t length, uint64_t hash) {
    return inserts ? bytes_.find_or_insert(bytes, length, hash, pool_) : bytes_.find(bytes, length, hash);
  }

  template <bool inserts>
  void find_bytes(const ColumnView* columns, const int32_t* rows, int64_t count, uint32_t* slots) {
    const size_t column_count = types_.size();
    if (value_rows_.size() < column_count) value_rows_.resize(column_count);
    starts_.assign(static_cast<size_t>(count) + 1, 0);
    // starts_[i + 1] first takes the length of key i
    for (size_t index = 0; index < column_count; ++index) {
      std::vector<int64_t>& value_rows = value_rows_[index];
      const ColumnView& values = resolve_rows(columns[index], rows, count, value_rows);
      with_cells(values, [&](auto cell) {
        const bool variable = is_variable(types_[index]);
        uint8_t room[8];
        for (int64_t i = 0; i < count; ++i) {
          int64_t length = 1;
          if (value_rows[i] >= 0) length += (variable ? 4 : 0) + cell(value_rows[i], room).length;
          starts_[i + 1] += length;
        }
      });
    }
    for (int64_t i = 0; i < count; ++i) starts_[i + 1] += starts_[i];
    encoded_.resize(static_cast<size_t>(starts_[count]) + 8);
    ends_.assign(starts_.begin(), starts_.end() - 1);
    for (size_t index = 0; index < column_count; ++index) {
      const std::vector<int64_t>& value_rows = value_rows_[index];
      const ColumnView& values =
          columns[index].layout == Layout::dictionary ? *columns[index].dictionary : columns[index];
      with_cells(values, [&](auto cell) {
        const bool variable = is_variable(types_[index]);
        uint8_t room[8];
        for (int64_t i = 0; i < count; ++i) {
          uint8_t* target = encoded_.data() + ends_[i];
          if (value_rows[i] < 0) {
            *target = 0;
            ++ends_[i];
            continue;
          }
          const Cell value = cell(value_rows[i], room);
          *target++ = 1;
          if (variable) {
            std::memcpy(target, &value.length, 4);
            target += 4;
          }
          if (value.length > 0) std::memcpy(target, value.data, value.length);
          ends_[i] += 1 + (variable ? 4 : 0) + value.length;
        }
      });
    }
    hashes_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i)
      hashes_[i] = hash_padded_bytes(encoded_.data() + starts_[i], static_cast<uint32_t>(starts_[i + 1] - starts_[i]));
    for (int64_t i = 0; i < count; ++i) {
      if (i + 16 < count) bytes_.prefetch_cell(hashes_[i + 16]);
      slots[i] = find_in_bytes<inserts>(encoded_.data() + starts_[i],
                                        static_cast<uint32_t>(starts_[i + 1] - starts_[i]), hashes_[i]);
    }
  }

  // Reads one column at the cursors and moves them on to the next.
  static Column bytes_column(const ColumnView& type, std::vector<const uint8_t*>& cursors, Arena& arena) {
    const auto count = static_cast<int64_t>(cursors.size());
    if (type.kind == Kind::null) {
      for (const uint8_t*& cursor : cursors) ++cursor;
      return null_column(count);
    }
    bool has_null = false;
    int64_t byte_count = 0;
    const bool variable = is_variable(type);
    for (const uint8_t* cursor : cursors) {
      has_null |= *cursor == 0;
      if (variable && *cursor != 0) byte_count += load_unaligned<uint32_t>(cursor + 1);
    }
    Column column;
    if (!variable) {
      column = allocate_fixed(arena, type, count, has_null);
      const int64_t width = type.layout == Layout::bits ? 1 : type.width;
      auto* values = column.mutable_values<uint8_t>();
      for (int64_t i = 0; i < count; ++i) {
        const bool valid = *cursors[i]++ != 0;
        if (type.layout == Layout::bits) {
          if (valid) set_bit_to(values, i, *cursors[i] != 0);
        } else if (valid) {
          std::memcpy(values + i * width, cursors[i], static_cast<size_t>(width));
        } else {
          std::memset(values + i * width, 0, static_cast<size_t>(width));
        }
        if (valid) cursors[i] += width;
        else set_bit_to(column.mutable_validity(), i, false);
      }
    } else if (type.layout == Layout::views) {
      if (byte_count > INT32_MAX) throw std::length_error("keys of more than 2 GiB in one batch");
      column = allocate_fixed(arena, type, count, has_null);
      Block block = arena.allocate(byte_count);
      auto* values = column.mutable_values<uint8_t>();
      int32_t offset = 0;
      for (int64_t i = 0; i < count; ++i) {
        uint8_t* view = values + i * 16;
        std::memset(view, 0, 16);
        if (*cursors[i]++ == 0) {
          set_bit_to(column.mutable_validity(), i, false);
          continue;
        }
        const auto length = load_unaligned<uint32_t>(cursors[i]);
        const uint8_t* bytes = cursors[i] + 4;
        std::memcpy(view, &length, 4);
        if (length <= 12) {
          std::memcpy(view + 4, bytes, length);
        } else {
          std::memcpy(view + 4, bytes, 4);
          std::memcpy(view + 12, &offset, 4);
          std::memcpy(block.get() + offset, bytes, length);
          offset += static_cast<int32_t>(length);
        }
        cursors[i] += 4 + length;
      }
      auto buffers = std::make_shared<ViewBuffers>();
      buffers->pointers.push_back(block.get());
      buffers->sizes.push_back(byte_count);
      buffers->owners.push_back(std::move(block));
      column.view.view_buffers = buffers->pointers.data();
      column.view_buffers = std::move(buffers);
    } else {
      column = allocate_strings(arena, type, count, byte_count, has_null);
      const auto write = [&](auto* offsets) {
        using Offset = std::remove_pointer_t<decltype(offsets)>;
        uint8_t* bytes = column.mutable_bytes();
        int64_t offset = 0;
        for (int64_t i = 0; i < count; ++i) {
          if (*cursors[i]++ == 0) {
            set_bit_to(column.mutable_validity(), i, false);
          } else {
            const auto length = load_unaligned<uint32_t>(cursors[i]);
            std::memcpy(bytes + offset, cursors[i] + 4, length);
            cursors[i] += 4 + length;
            offset += length;
          }
          offsets[i + 1] = static_cast<Offset>(offset);
        }
      };
      if (type.layout == Layout::offsets32) write(column.mutable_offsets<int32_t>());
      else write(column.mutable_offsets<int64_t>());
    }
    if (has_null) settle_nulls(column.view);
    return column;
  }

  std::vector<ColumnView> types_;
  bool one_word_ = false;
  SimdLevel simd_ = simd_level();
  SlotPool pool_;
  KeyPacker packer_;
  WordTable<1> words_;
  WordTable<2> packed_;
  BytesTable bytes_;
  uint64_t releases_ = 0;
  uint32_t null_slot_ = kNoSlot;  // of NULL (one word), or of the global key

  // scratch, kept between batches
  std::vector<uint64_t> words_scratch_, hashes_;
  std::vector<uint8_t> valid_;
  std::vector<int32_t> long_rows_;
  std::vector<uint32_t> found_, slot_of_code_;
  std::vector<int64_t> code_rows_, starts_, ends_;
  std::vector<std::vector<int64_t>> value_rows_;
  std::vector<uint8_t> encoded_;
};

}  // namespace jetfast
