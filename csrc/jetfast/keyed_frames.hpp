// Frames by time and keys by slot: what both stages of a window share.
//
// Frames lie in a sorted map (a far-future row costs one more frame), each a packed list of the keys that have rows in it, so
// that memory grows with the pairs of key and frame that exist. Keys that left every frame give their slot back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/arena.hpp"
#include "jetfast/assertions.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/grouped_rows.hpp"
#include "jetfast/key_index.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/value_column.hpp"

namespace jetfast {

enum class AggregateKind : uint8_t {
  count, count_values, sum, mean, minimum, maximum, var_samp, var_pop, stddev_samp, stddev_pop,
};

struct AggregateSpec {
  AggregateKind kind;
  int column;              // index of the value column, -1 for count
  ColumnView result_type;  // layout fixed or bits
};

struct TableSpec {
  WindowShape shape{1, 1, 0};
  std::vector<ColumnView> key_types;    // as kept: never a dictionary
  std::vector<ColumnView> value_types;  // of the values: never a dictionary
  std::vector<AggregateSpec> aggregates;
  int32_t partition_count = 271;
};

// Where the fields of one value column are, -1 for those that no aggregate needs.
struct ColumnFields {
  int nulls = -1, sum = -1, minimum = -1, maximum = -1, moments = -1;
};

constexpr uint32_t kNoEntry = 0xffffffffu;

// The keys that have rows in one frame (or in the running window), and the fields of each, packed in order of arrival.
//
// A dense frame (WindowTable has them) has an entry for every slot below `count` instead, with a row count of 0 where the key
// has no rows: no lists of slots and entries.
struct Frame {
  int64_t end = 0;
  uint32_t count = 0, capacity = 0;
  bool dense = false;
  bool is_log = false;                  // packed, and a key may have several entries (SlotFrames)
  std::vector<uint32_t> slots;          // by entry
  std::vector<uint32_t> block_starts;   // first entry of each block of slots, if entries are ordered by blocks (SlotFrames)
  HugeVector<uint32_t> entry_of_slot;  // kNoEntry where the key has none; empty while nothing is looked up (need_index)
  std::vector<Block> states;            // by field; an absent block of nulls means that there is none
  std::vector<Block> after;             // by field that is not exact, in frames of the front and in the running window
  std::vector<std::vector<FloatSum>> settled;  // by field and entry: what sum_double fields of many rows put aside
  int64_t unsettled_rows = 0;           // rows since then

  uint8_t* state(size_t field) const { return states[field].get(); }
  const uint64_t* rows() const { return reinterpret_cast<const uint64_t*>(states[0].get()); }
  uint32_t find(uint32_t slot) const {
    if (dense) return slot < count ? slot : kNoEntry;
    return slot < entry_of_slot.size() ? entry_of_slot[slot] : kNoEntry;
  }
  uint32_t slot_of(uint32_t entry) const { return dense ? entry : slots[entry]; }
};

struct BatchColumns {
  int64_t row_count = 0;
  std::vector<ColumnView> keys;
  ColumnView time;
  std::vector<ColumnView> values;
};

// A batch of partial results: one row per key and frame.
struct PartialColumns {
  int64_t row_count = 0;
  const Rows* columns = nullptr;   // all of them with their owners, if the keys may be known by their memory
  std::vector<ColumnView> keys;
  ColumnView frame;                // int64, no nulls
  std::vector<ColumnView> fields;  // fixed, no nulls
};

struct MemoryUse {
  int64_t keys, frames, entries, key_bytes, frame_bytes;
};

// Where the rows of the last call went, for whoever keeps states of his own beside the table. A place is a slot, of sessions
// an entry; it means another key only when everything that it held has left.
struct Places {
  std::vector<int32_t> rows;      // of the batch, those that were taken in
  std::vector<uint32_t> places;   // of each; of each row that was emitted or saved
  std::vector<int64_t> frames;    // of each (not of sessions)
  std::vector<uint32_t> merged_from, merged_to;  // sessions that joined, in this order; `places` name what is left

  void clear() {
    rows.clear();
    places.clear();
    frames.clear();
    merged_from.clear();
    merged_to.clear();
  }
};

class KeyedFrames {
 public:
  KeyedFrames(TableSpec spec, Arena& arena)
      : shape_(spec.shape), aggregates_(std::move(spec.aggregates)), value_types_(std::move(spec.value_types)),
        keys_(std::move(spec.key_types)), arena_(arena), grouped_(spec.shape) {
    if (shape_.slide <= 0 || shape_.size <= 0 || shape_.size % shape_.slide != 0)
      throw std::invalid_argument("window size must be a positive multiple of the slide");
    if (shape_.offset < 0 || shape_.offset >= shape_.slide)
      throw std::invalid_argument("window offset must be in [0, slide)");
    fields_.emplace_back(FieldKind::rows, ValueClass::u64, -1);
    columns_.resize(value_types_.size());
    widened_.resize(value_types_.size());
    const auto add = [this](int& index, FieldKind kind, int column) {
      if (index >= 0) return;
      index = static_cast<int>(fields_.size());
      fields_.emplace_back(kind, value_class_of(value_types_[column]), column);
    };
    for (const AggregateSpec& aggregate : aggregates_) {
      if (aggregate.column < 0) continue;
      ColumnFields& column = columns_[aggregate.column];
      add(column.nulls, FieldKind::nulls, aggregate.column);
      switch (aggregate.kind) {
        case AggregateKind::count:
        case AggregateKind::count_values: break;
        case AggregateKind::sum:
        case AggregateKind::mean: {
          const ValueClass value_class = value_class_of(value_types_[aggregate.column]);
          add(column.sum,
              value_class == ValueClass::f64    ? FieldKind::sum_float
              : value_class == ValueClass::i128 ? FieldKind::sum192
                                                : FieldKind::sum128,
              aggregate.column);
          break;
        }
        case AggregateKind::minimum: add(column.minimum, FieldKind::minimum, aggregate.column); break;
        case AggregateKind::maximum: add(column.maximum, FieldKind::maximum, aggregate.column); break;
        default: add(column.moments, FieldKind::moments, aggregate.column); break;
      }
    }
    delta_ = new_frame();
  }
  KeyedFrames(const KeyedFrames&) = delete;
  KeyedFrames& operator=(const KeyedFrames&) = delete;

  int64_t rows = 0;           // all rows taken in
  int64_t rejected_rows = 0;  // of them, without a time
  Places* places = nullptr;   // told after each call, if it is given

  // Frames are named by their ends, their entries belong to keys that there are, and an index finds each entry. Reads all.
  void check_invariants() const {
    keys_.check_invariants();
    JETFAST_INVARIANT(rejected_rows >= 0 && rejected_rows <= rows);
    for (const auto& [end, frame] : frames_) {
      JETFAST_INVARIANT(frame != nullptr && frame->end == end);
      check_frame(*frame);
    }
    JETFAST_INVARIANT(delta_->count == 0);
    for (const auto& frame : spare_frames_) JETFAST_INVARIANT(frame->count == 0);
    int64_t idle = 0;
    for (uint32_t slot = 0; slot < is_listed_.size(); ++slot) idle += is_listed_[slot] && frames_of_slot_[slot] == 0;
    JETFAST_INVARIANT(idle == idle_keys_);
    JETFAST_INVARIANT(idle_keys_ <= static_cast<int64_t>(idle_slots_.size()));
  }

  const std::vector<Field>& fields() const { return fields_; }
  const WindowShape& shape() const { return shape_; }
  KeyIndex& keys() { return keys_; }

  MemoryUse memory() const {
    MemoryUse use{keys_in_frames(), static_cast<int64_t>(frames_.size()), 0, 0, 0};
    use.key_bytes = keys_.bytes() + static_cast<int64_t>(frames_of_slot_.capacity() * sizeof(uint32_t));
    const auto add = [&](const Frame& frame) {
      use.frame_bytes += static_cast<int64_t>((frame.slots.capacity() + frame.entry_of_slot.capacity()) * sizeof(uint32_t));
      for (size_t field = 0; field < fields_.size(); ++field) {
        const int64_t bytes = Arena::block_bytes(int64_t{frame.capacity} * fields_[field].width);
        if (frame.states[field]) use.frame_bytes += bytes;
        if (frame.after[field]) use.frame_bytes += bytes;
      }
    };
    for (const auto& item : frames_) {
      add(*item.second);
      use.entries += item.second->count;
    }
    for (const auto& frame : spare_frames_) add(*frame);
    add(*delta_);
    for (const auto& index : spare_indexes_) use.frame_bytes += static_cast<int64_t>(index.capacity() * sizeof(uint32_t));
    return use;
  }

  // The column type of a field as it lies in a frame.
  static ColumnView frame_type(const Field& field) {
    return field.kind == FieldKind::sum_double ? fixed_type(Kind::float64, 8) : partial_type(field);
  }

  // The column type of a field of partial results.
  static ColumnView partial_type(const Field& field) {
    if (field.kind == FieldKind::rows || field.kind == FieldKind::nulls) return fixed_type(Kind::int64, 8);
    if (field.kind == FieldKind::minimum || field.kind == FieldKind::maximum) {
      if (field.value_class == ValueClass::i64) return fixed_type(Kind::int64, 8);
      if (field.value_class == ValueClass::u64) return fixed_type(Kind::uint64, 8);
      if (field.value_class == ValueClass::f64) return fixed_type(Kind::float64, 8);
    }
    return fixed_type(Kind::fixed_binary, field.width);
  }

 protected:
  void check_frame(const Frame& frame) const {
    JETFAST_INVARIANT(frame.count <= frame.capacity);
    JETFAST_INVARIANT(frame.states.size() == fields_.size() && frame.after.size() == fields_.size());
    for (size_t field = 0; field < fields_.size(); ++field)
      JETFAST_INVARIANT(frame.states[field] || fields_[field].kind == FieldKind::nulls);
    if (frame.dense) {
      JETFAST_INVARIANT(frame.count <= keys_.slot_limit());
      JETFAST_INVARIANT(frame.entry_of_slot.empty());
      return;
    }
    std::vector<uint8_t> is_seen(keys_.slot_limit(), 0);
    for (uint32_t entry = 0; entry < frame.count; ++entry) {
      const uint32_t slot = frame.slots[entry];
      JETFAST_INVARIANT(slot < keys_.slot_limit());
      JETFAST_INVARIANT(frame.is_log || !is_seen[slot]);
      JETFAST_INVARIANT(frame.rows()[entry] > 0);
      JETFAST_INVARIANT(frame.is_log || frame.entry_of_slot.empty() || frame.entry_of_slot[slot] == entry);
      is_seen[slot] = 1;
    }
  }

  // Rows of grouped_ from the place `first` on went to slots_.
  void tell_places(int64_t first) const {
    if (!places) return;
    places->clear();
    const int64_t count = grouped_.count - first;
    if (count == 0) return;
    places->places.assign(slots_.begin(), slots_.begin() + count);
    places->rows.reserve(static_cast<size_t>(count));
    places->frames.reserve(static_cast<size_t>(count));
    for (int64_t place = first; place < grouped_.count; ++place) places->rows.push_back(grouped_.row_at(place));
    for (const FrameGroup& group : grouped_.groups) places->frames.insert(places->frames.end(), static_cast<size_t>(group.count), group.frame);
  }

  // ---- rows by frame

  // The times of a batch in microseconds; grouped_ has the rows that have one, not grouped yet. Others are rejected.
  const int64_t* read_times(const ColumnView& time, int64_t row_count) {
    const int64_t* times = grouped_.read_times(time, row_count);
    rejected_rows += row_count - grouped_.count;
    return times;
  }

  void group_rows(const ColumnView& time, int64_t row_count) { grouped_.group_by_frame(read_times(time, row_count)); }

  // ---- frames

  std::unique_ptr<Frame> new_frame() {
    if (!spare_frames_.empty()) {
      std::unique_ptr<Frame> frame = std::move(spare_frames_.back());
      spare_frames_.pop_back();
      return frame;
    }
    auto frame = std::make_unique<Frame>();
    frame->states.resize(fields_.size());
    frame->after.resize(fields_.size());
    grow(*frame, 64);
    return frame;
  }

  // Empty a frame, keeping its memory.
  void clear(Frame& frame) {
    if (!frame.entry_of_slot.empty())
      for (uint32_t entry = 0; entry < frame.count; ++entry) frame.entry_of_slot[frame.slots[entry]] = kNoEntry;
    frame.count = 0;
    frame.is_log = false;
    frame.block_starts.clear();
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (fields_[field].kind == FieldKind::nulls) frame.states[field].reset();
      frame.after[field].reset();
    }
  }

  // The index from slots to entries, which a frame only has while rows come in for it: most frames of a window wait to leave.
  void need_index(Frame& frame) {
    if (frame.entry_of_slot.empty()) {
      if (!spare_indexes_.empty()) {
        frame.entry_of_slot.swap(spare_indexes_.back());
        spare_indexes_.pop_back();
      }
      index_entries(frame);
    }
    // Grow ahead of the slots, so that the arrays of many frames do not grow with each new key.
    if (frame.entry_of_slot.size() < keys_.slot_limit())
      frame.entry_of_slot.resize(std::max<size_t>(keys_.slot_limit() + keys_.slot_limit() / 4, 64), kNoEntry);
  }

  void index_entries(Frame& frame) {
    if (frame.entry_of_slot.size() < keys_.slot_limit()) frame.entry_of_slot.resize(keys_.slot_limit(), kNoEntry);
    for (uint32_t entry = 0; entry < frame.count; ++entry) frame.entry_of_slot[frame.slots[entry]] = entry;
  }

  void drop_index(Frame& frame) {
    if (frame.entry_of_slot.empty()) return;
    for (uint32_t entry = 0; entry < frame.count; ++entry) frame.entry_of_slot[frame.slots[entry]] = kNoEntry;
    if (spare_indexes_.size() < 4) spare_indexes_.push_back(std::move(frame.entry_of_slot));
    frame.entry_of_slot = HugeVector<uint32_t>();
  }

  // The key of a slot has one more frame. `frames_of_slot_` and `is_listed_` reach up to it (cover_slots).
  void hold_key(uint32_t slot) {
    JETFAST_CHECK(slot < frames_of_slot_.size());
    idle_keys_ -= frames_of_slot_[slot]++ == 0 && is_listed_[slot];
    JETFAST_CHECK(idle_keys_ >= 0);
  }

  void drop_key(uint32_t slot) {
    JETFAST_CHECK(slot < frames_of_slot_.size());
    JETFAST_CHECK(frames_of_slot_[slot] > 0);
    if (--frames_of_slot_[slot] > 0) return;
    ++idle_keys_;
    if (is_listed_[slot]) return;
    is_listed_[slot] = 1;
    idle_slots_.push_back(slot);
  }

  void cover_slots() {
    if (frames_of_slot_.size() >= keys_.slot_limit()) return;
    frames_of_slot_.resize(keys_.slot_limit(), 0);
    is_listed_.resize(keys_.slot_limit(), 0);
  }

  // Keys that left every frame often come back at once (always, in a tumbling window): they give up their slots when there
  // are more of them than of the others, so that memory still is bounded by the keys that are in the frames.
  void free_slots() {
    if (idle_keys_ <= 1024 + keys_in_frames()) return;
    for (const uint32_t slot : idle_slots_) {
      is_listed_[slot] = 0;
      if (frames_of_slot_[slot] == 0) keys_.release(slot);
    }
    idle_slots_.clear();
    idle_keys_ = 0;
  }

  int64_t keys_in_frames() const { return keys_.live() - idle_keys_; }

  void grow(Frame& frame, uint32_t capacity) {
    JETFAST_CHECK(capacity >= frame.count);
    for (size_t field = 0; field < fields_.size(); ++field) {
      const int64_t width = fields_[field].width;
      const auto widen = [&](Block& block) {
        Block larger = arena_.allocate(capacity * width);
        if (block) std::memcpy(larger.get(), block.get(), static_cast<size_t>(frame.count * width));
        block = std::move(larger);
      };
      if (frame.states[field] || fields_[field].kind != FieldKind::nulls) widen(frame.states[field]);
      if (frame.after[field]) widen(frame.after[field]);
    }
    frame.slots.resize(capacity);
    frame.capacity = capacity;
  }

  void need_nulls(Frame& frame, size_t field) {
    if (frame.states[field]) return;
    frame.states[field] = arena_.allocate(int64_t{frame.capacity} * 8);
    std::memset(frame.states[field].get(), 0, size_t{frame.count} * 8);
  }

  // The same if a partial has any: counts of row rows[i] (row i without `rows`). False: neither has any.
  bool need_nulls_of(Frame& frame, size_t field, const uint8_t* counts, const int32_t* rows, int64_t count) {
    if (frame.states[field]) return true;
    int64_t any = 0;
    for (int64_t i = 0; i < count; ++i) any |= load_unaligned<int64_t>(counts + (rows ? rows[i] : i) * 8);
    if (any != 0) need_nulls(frame, field);
    return any != 0;
  }

  // entries[i] = entry of slots[i], made if there is none yet (its fields then are the identity).
  // With `count_rows`, each i also is one row of its entry.
  template <bool count_rows = false>
  void enter(Frame& frame, const uint32_t* slots, int64_t count, uint32_t* entries) {
    JETFAST_CHECK(!frame.dense);
    need_index(frame);
    const uint32_t old_count = frame.count;
    uint32_t* entry_of_slot = frame.entry_of_slot.data();
    auto* row_counts = reinterpret_cast<uint64_t*>(frame.state(0));
    const bool far = frame.entry_of_slot.size() * sizeof(uint32_t) > kPrefetchBytes;
    for (int64_t i = 0; i < count; ++i) {
      if (far && i + kPrefetchRows < count) prefetch_line(&entry_of_slot[slots[i + kPrefetchRows]]);
      JETFAST_CHECK(slots[i] < frame.entry_of_slot.size());
      uint32_t entry = entry_of_slot[slots[i]];
      if (entry == kNoEntry) {
        if (frame.count == frame.capacity) {
          grow(frame, frame.capacity * 2);
          row_counts = reinterpret_cast<uint64_t*>(frame.state(0));
        }
        entry = frame.count++;
        frame.slots[entry] = slots[i];
        entry_of_slot[slots[i]] = entry;
        row_counts[entry] = 0;
      }
      entries[i] = entry;
      if constexpr (count_rows) ++row_counts[entry];
    }
    if (frame.count == old_count) return;
    frame.block_starts.clear();
    for (size_t field = 1; field < fields_.size(); ++field) {
      if (frame.states[field]) fill_identity(fields_[field], frame.state(field), old_count, frame.count);
      if (frame.after[field]) fill_identity(fields_[field], frame.after[field].get(), old_count, frame.count);
    }
  }

  // Rows enter a frame: slots[i] is the key of row rows[i] (row i without `rows`).
  void add_rows(Frame& frame, const uint32_t* slots, const int32_t* rows, int64_t count) {
    entries_.resize(static_cast<size_t>(count));
    enter<true>(frame, slots, count, entries_.data());
    add_values(frame, rows, count);
  }

  // The values of rows that have their entries (entries_) and are counted there.
  void add_values(Frame& frame, const int32_t* rows, int64_t count) {
    for (size_t index = 0; index < columns_.size(); ++index) {
      const ColumnFields& column = columns_[index];
      const WidenedColumn& widened = widened_[index];
      const uint32_t* entries = entries_.data();
      const int32_t* value_rows = rows;
      int64_t value_count = count;
      if (widened.has_nulls) {
        split_nulls(widened, rows, count);
        if (!null_places_.empty()) {
          need_nulls(frame, column.nulls);
          accumulate_values(fields_[column.nulls], frame.state(column.nulls), pick_entries(null_places_), nullptr,
                            static_cast<int64_t>(null_places_.size()), nullptr, false);
        }
        entries = pick_entries(valid_places_);
        value_rows = valid_places_.data();
        value_count = static_cast<int64_t>(valid_places_.size());
        if (rows != nullptr) {
          for (int32_t& place : valid_places_) place = rows[place];
        }
      }
      for (const int field : {column.sum, column.minimum, column.maximum, column.moments})
        if (field >= 0)
          accumulate_values(fields_[field], frame.state(field), entries, value_rows, value_count, widened.values,
                            static_cast<size_t>(frame.count) * static_cast<size_t>(fields_[field].width) > kPrefetchBytes);
    }
  }

  // Lists the places of rows (rows[place], or place without `rows`) that have a value, and of those that have none.
  void split_nulls(const WidenedColumn& widened, const int32_t* rows, int64_t count) {
    valid_places_.resize(static_cast<size_t>(count));
    null_places_.resize(static_cast<size_t>(count));
    int64_t valid_count = 0;  // without branches: each place is written to both lists, and counts in one
    for (int64_t place = 0; place < count; ++place) {
      valid_places_[valid_count] = null_places_[place - valid_count] = static_cast<int32_t>(place);
      valid_count += widened.valid[rows ? rows[place] : place];
    }
    valid_places_.resize(static_cast<size_t>(valid_count));
    null_places_.resize(static_cast<size_t>(count - valid_count));
  }

  // The entries (entries_) of some places; valid until the next call.
  const uint32_t* pick_entries(const std::vector<int32_t>& places) {
    picked_entries_.resize(places.size());
    for (size_t i = 0; i < places.size(); ++i) picked_entries_[i] = entries_[places[i]];
    return picked_entries_.data();
  }

  // Fields of rows that have their entries (entries_).
  void add_fields(Frame& frame, const int32_t* rows, int64_t count, const std::vector<ColumnView>& sources) {
    for (size_t field = 0; field < fields_.size(); ++field) {
      const auto* source = static_cast<const uint8_t*>(sources[field].values);
      if (fields_[field].kind == FieldKind::nulls && !need_nulls_of(frame, field, source, rows, count)) continue;
      combine_states(fields_[field], frame.state(field), entries_.data(), source, rows, count);
    }
  }

  // Everything in `source` enters `target`.
  void add_frame(Frame& target, const Frame& source) {
    entries_.resize(source.count);
    enter(target, source.slots.data(), source.count, entries_.data());
    for (size_t field = 0; field < fields_.size(); ++field) combine_field(target, source, field);
  }

  // After `enter`: one field of `source`, whose keys are entries_ of `target`.
  void combine_field(Frame& target, const Frame& source, size_t field) {
    if (!source.states[field]) return;
    if (fields_[field].kind == FieldKind::nulls) need_nulls(target, field);
    combine_states(fields_[field], target.state(field), entries_.data(), source.state(field), nullptr, source.count);
  }

  void widen_values(const std::vector<ColumnView>& values) {
    for (size_t index = 0; index < columns_.size(); ++index) {
      const ColumnFields& column = columns_[index];
      const bool needs_values = column.sum >= 0 || column.minimum >= 0 || column.maximum >= 0 || column.moments >= 0;
      widened_[index].widen(values[index], value_class_of(value_types_[index]), needs_values);
    }
  }

  WindowShape shape_;
  std::vector<AggregateSpec> aggregates_;
  std::vector<ColumnView> value_types_;
  std::vector<Field> fields_;
  std::vector<ColumnFields> columns_;
  KeyIndex keys_;
  Arena& arena_;
  std::map<int64_t, std::unique_ptr<Frame>> frames_;  // by end
  std::vector<std::unique_ptr<Frame>> spare_frames_;
  std::vector<HugeVector<uint32_t>> spare_indexes_;  // all kNoEntry
  std::unique_ptr<Frame> delta_;                      // rows on their way into a frame that the running window holds
  std::vector<uint32_t> frames_of_slot_;              // frames that hold the key
  std::vector<uint8_t> is_listed_;                    // the key is in idle_slots_, idle or not
  std::vector<uint32_t> idle_slots_;
  int64_t idle_keys_ = 0;                             // keys with a slot and without a frame

  // scratch, kept between batches
  GroupedRows grouped_;
  std::vector<WidenedColumn> widened_;
  std::vector<uint32_t> slots_, entries_, picked_entries_;
  std::vector<int32_t> valid_places_, null_places_;
};

}  // namespace jetfast
