// Slots of key columns that come again and again: a first stage sends the same columns with each frame (frame_table.hpp).
//
// Columns are known by their memory, which cannot be used for anything else as long as a reference to it is kept here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "jetfast/batch.hpp"
#include "jetfast/key_index.hpp"

namespace jetfast {

// The slots of the keys of a batch: a list, or without `slots` those from `first` on.
struct SlotList {
  const uint32_t* slots;
  uint32_t first;
};

class KnownKeys {
 public:
  // Of the first columns of a batch, as many as there are key columns.
  SlotList find_or_insert(const Rows& batch, KeyIndex& keys) {
    if (const Entry* known = find(batch, keys)) return known->list();
    Entry& entry = new_entry(batch, keys);
    entry.slots.resize(static_cast<size_t>(batch.row_count));
    keys.find_or_insert(entry.views().data(), nullptr, batch.row_count, entry.slots.data());
    entry.releases = keys.releases();
    entry.in_row = true;
    for (size_t row = 0; row < entry.slots.size(); ++row)
      entry.in_row = entry.in_row && entry.slots[row] == entry.slots[0] + static_cast<uint32_t>(row);
    return entry.list();
  }

 private:
  struct Entry {
    int64_t row_count = 0;
    std::vector<Column> columns;
    std::vector<uint32_t> slots;
    uint64_t releases = 0;  // of the index when the slots were found: a slot that is given back may get another key
    bool in_row = false;

    SlotList list() const { return in_row ? SlotList{nullptr, slots[0]} : SlotList{slots.data(), 0}; }

    std::vector<ColumnView> views() const {
      std::vector<ColumnView> result;
      for (const Column& column : columns) result.push_back(column.view);
      return result;
    }

    bool is_of(const Rows& batch) const {
      if (row_count != batch.row_count) return false;
      for (size_t column = 0; column < columns.size(); ++column)
        if (!is_same_memory(columns[column].view, batch.columns[column].view)) return false;
      return true;
    }
  };

  const Entry* find(const Rows& batch, const KeyIndex& keys) const {
    for (const Entry& entry : entries_)
      if (entry.releases == keys.releases() && entry.is_of(batch)) return &entry;
    return nullptr;
  }

  Entry& new_entry(const Rows& batch, const KeyIndex& keys) {
    if (entries_.size() < kEntries) entries_.emplace_back();
    else next_ = (next_ + 1) % kEntries;
    Entry& entry = entries_.size() < kEntries ? entries_.back() : entries_[next_];
    entry.row_count = batch.row_count;
    entry.columns.assign(batch.columns.begin(), batch.columns.begin() + static_cast<std::ptrdiff_t>(keys.types().size()));
    return entry;
  }

  // More than there are first stages: each sends the same columns until it gets many new keys.
  static constexpr size_t kEntries = 64;

  std::vector<Entry> entries_;
  size_t next_ = 0;
};

}  // namespace jetfast
