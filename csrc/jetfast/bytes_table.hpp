// Keys of any number of bytes to slots: a table of hashes and slots with linear probing, and the keys beside it by slot.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/assertions.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/slot_pool.hpp"

namespace jetfast {

class BytesTable {
 public:
  BytesTable() { resize(64); }
  BytesTable(const BytesTable&) = delete;
  BytesTable& operator=(const BytesTable&) = delete;
  BytesTable& operator=(BytesTable&& other) noexcept {
    cells_.swap(other.cells_);
    records_.swap(other.records_);  // their long keys go with the other
    std::swap(mask_, other.mask_);
    std::swap(live_, other.live_);
    std::swap(used_, other.used_);
    std::swap(heap_bytes_, other.heap_bytes_);
    return *this;
  }
  ~BytesTable() {
    for (Record& record : records_)
      if (record.length > kInline) delete[] record.heap;
  }

  void reserve(int64_t keys) {
    size_t cells = cells_.size();
    while (static_cast<int64_t>(cells / 4 * 3) < keys) cells *= 2;
    if (cells != cells_.size()) resize(cells);
  }

  uint32_t find_or_insert(const uint8_t* bytes, uint32_t length, uint64_t hash64, SlotPool& pool) {
    const uint32_t slot = find(bytes, length, hash64);
    return slot == kNoSlot ? insert(bytes, length, static_cast<uint32_t>(hash64), pool) : slot;
  }

  // The slot of a key, kNoSlot if it is not there.
  uint32_t find(const uint8_t* bytes, uint32_t length, uint64_t hash64) const {
    const auto hash = static_cast<uint32_t>(hash64);
    for (size_t cell = hash & mask_;; cell = (cell + 1) & mask_) {
      const Entry entry = cells_[cell];
      if (entry.slot == kNoSlot) return kNoSlot;
      if (entry.hash == hash && entry.slot != kDeletedSlot) {
        const Record& record = records_[entry.slot];
        if (record.length == length && std::memcmp(record.data(), bytes, length) == 0) return entry.slot;
      }
    }
  }

  void prefetch_cell(uint64_t hash64) const { prefetch_line(&cells_[static_cast<uint32_t>(hash64) & mask_]); }

  // Is the key of a slot kept here (and not in another table that shares the slots)?
  bool holds(uint32_t slot) const { return slot < records_.size() && records_[slot].length > 0; }

  const uint8_t* key_of(uint32_t slot) const {
    JETFAST_CHECK(holds(slot));
    return records_[slot].data();
  }

  void erase(uint32_t slot) {
    JETFAST_CHECK(holds(slot));
    Record& record = records_[slot];
    for (size_t cell = record.hash & mask_;; cell = (cell + 1) & mask_) {
      if (cells_[cell].slot == kNoSlot) throw std::logic_error("erased a key that is not there");
      if (cells_[cell].slot == slot) {
        const bool last = cells_[(cell + 1) & mask_].slot == kNoSlot;
        cells_[cell].slot = last ? kNoSlot : kDeletedSlot;
        used_ -= last;
        --live_;
        break;
      }
    }
    if (record.length > kInline) {
      heap_bytes_ -= record.length;
      delete[] record.heap;
    }
    record.length = 0;
  }

  // Every key is found from the cell of its hash on, each slot has one cell, and some cells are free. Reads all cells.
  void check_invariants() const {
    std::vector<uint8_t> is_seen(records_.size(), 0);
    int64_t live = 0, used = 0, heap_bytes = 0;
    for (const Entry& entry : cells_) {
      used += entry.slot != kNoSlot;
      if (entry.slot == kNoSlot || entry.slot == kDeletedSlot) continue;
      ++live;
      JETFAST_INVARIANT(entry.slot < records_.size());
      JETFAST_INVARIANT(!is_seen[entry.slot]);
      is_seen[entry.slot] = 1;
      const Record& record = records_[entry.slot];
      JETFAST_INVARIANT(record.length > 0);
      JETFAST_INVARIANT(record.hash == entry.hash);
      JETFAST_INVARIANT(find(record.data(), record.length, record.hash) == entry.slot);
      if (record.length > kInline) heap_bytes += record.length;
    }
    JETFAST_INVARIANT(live == live_);
    JETFAST_INVARIANT(used == used_);
    JETFAST_INVARIANT(used_ < static_cast<int64_t>(cells_.size()));
    JETFAST_INVARIANT(heap_bytes == heap_bytes_);
    JETFAST_INVARIANT((cells_.size() & mask_) == 0);
  }

  int64_t bytes() const {
    return static_cast<int64_t>(cells_.capacity() * sizeof(Entry) + records_.capacity() * sizeof(Record)) + heap_bytes_;
  }

 private:
  static constexpr uint32_t kInline = 24;
  static constexpr uint32_t kDeletedSlot = kNoSlot - 1;

  struct Entry {
    uint32_t hash = 0;
    uint32_t slot = kNoSlot;
  };
  struct Record {
    uint32_t length = 0;
    uint32_t hash = 0;
    union {
      uint8_t bytes[kInline];
      uint8_t* heap;
    };
    Record() : heap(nullptr) {}
    const uint8_t* data() const { return length > kInline ? heap : bytes; }
  };

  uint32_t insert(const uint8_t* bytes, uint32_t length, uint32_t hash, SlotPool& pool) {
    if (used_ + 1 > static_cast<int64_t>(cells_.size() / 4 * 3))
      resize(live_ + 1 > static_cast<int64_t>(cells_.size() / 8 * 3) ? cells_.size() * 2 : cells_.size());
    std::unique_ptr<uint8_t[]> heap;
    if (length > kInline) heap.reset(new uint8_t[length]);
    const uint32_t slot = pool.take();
    if (slot >= records_.size()) records_.resize(static_cast<size_t>(slot) + 1);
    Record& record = records_[slot];
    JETFAST_CHECK(length > 0);
    JETFAST_CHECK(record.length == 0);
    record.length = length;
    record.hash = hash;
    if (length > kInline) {
      record.heap = heap.release();
      std::memcpy(record.heap, bytes, length);
      heap_bytes_ += length;
    } else {
      std::memcpy(record.bytes, bytes, length);
    }
    place(hash, slot);
    ++used_;
    ++live_;
    return slot;
  }

  void place(uint32_t hash, uint32_t slot) {
    JETFAST_CHECK(used_ < static_cast<int64_t>(cells_.size()));
    size_t cell = hash & mask_;
    while (cells_[cell].slot != kNoSlot) cell = (cell + 1) & mask_;
    cells_[cell] = {hash, slot};
  }

  void resize(size_t cell_count) {
    std::vector<Entry> old(cell_count);
    old.swap(cells_);
    mask_ = cell_count - 1;
    used_ = live_;
    for (const Entry& entry : old)
      if (entry.slot != kNoSlot && entry.slot != kDeletedSlot) place(entry.hash, entry.slot);
  }

  std::vector<Entry> cells_;  // a power of two
  size_t mask_ = 0;
  int64_t live_ = 0;
  int64_t used_ = 0;  // cells that are not kNoSlot
  std::vector<Record> records_;  // by slot; growing moves them, not the long keys
  int64_t heap_bytes_ = 0;
};

}  // namespace jetfast
