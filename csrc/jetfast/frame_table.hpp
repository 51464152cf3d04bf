// First stage of two: partial results per key and frame, near the source. Judges nothing.
//
// With owners (processors of the second stage) partials leave by owner, so that nobody has to hash and divide them. Mostly a
// frame has rows of a fourth of the keys at least: then it leaves whole, with a row count of 0 for those without. Keys get new slots
// now and then, so that those of each owner follow each other: what he gets of a frame are stretches of its arrays, which no
// other owner reads. His keys, and their order, are the same from frame to frame, and their columns lie in the same memory, by
// which the second stage knows their slots (known_keys.hpp): nothing is looked up there either. All first stages order them by
// their hashes, so that the second finds them in nearly the order of its own slots. Other frames leave as lists of the
// keys that have rows, and so do the keys that have come since.
//
// A whole frame may leave as it lies: the stretches are columns, nothing is copied (WindowTable::accumulate_frame). To another process
// go the numbers of the stretch and the frame's end, since keys and zeros come again (sent_columns.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/assertions.hpp"
#include "jetfast/slot_frames.hpp"
#include "jetfast/window_rows.hpp"

namespace jetfast {

// The partials of one owner, or his part of a frame as it lies. `places`: of each row, if they are told.
struct OwnedPartials {
  int32_t owner;
  bool is_frame;
  Rows rows;
  std::vector<uint32_t> places;
};

class FrameTable : public SlotFrames {
 public:
  FrameTable(const TableSpec& spec, Arena& arena) : SlotFrames(spec, arena), owned_(1) {
    logs_pay_ = false;  // one partial a key and frame
    collect_above_ = keys_kept_ = kKeysKept;
  }

  // Partials leave by owner: `owners` has that of each partition, in [0, owner_count). Before the first row.
  void set_owners(std::vector<int32_t> owners, int32_t owner_count) {
    partition_count_ = static_cast<int32_t>(owners.size());
    owner_of_partition_ = std::move(owners);
    owned_.resize(static_cast<size_t>(owner_count));
  }

  // Whole frames leave as they lie. Before the first row.
  void share_frames() { shares_frames_ = true; }

  // Keys, frames and owners fit each other. Reads the whole table.
  void check_invariants() const override {
    KeyedResults::check_invariants();
    for (const int32_t index : owner_of_partition_)
      JETFAST_INVARIANT(index >= 0 && static_cast<size_t>(index) < owned_.size());
    for (const int32_t index : owner_of_slot_) JETFAST_INVARIANT(index >= 0 && static_cast<size_t>(index) < owned_.size());
    JETFAST_INVARIANT(ordered_ <= keys_.slot_limit());
    uint32_t start = 0;
    for (const Owned& owned : owned_) {
      JETFAST_INVARIANT(owned.start <= owned.end);
      JETFAST_INVARIANT(ordered_ == 0 || owned.start == start);
      start = owned.end;
    }
    JETFAST_INVARIANT(partials <= partial_rows);
  }

  int64_t partials = 0;      // pairs of a key and a frame that it has rows in, of all frames that have left
  int64_t partial_rows = 0;  // of them
  int64_t frames_left = 0;   // those frames
  int32_t owner = 0;         // of the partials that were emitted last
  bool is_frame = false;     // they are part of a frame as it lies: keys, frame end, and one column for each of fields()

  void accumulate(const BatchColumns& batch, LateRows*) override {
    if (has_due()) throw std::invalid_argument("take all partials that are due (until None) before more rows come in");
    due_ = kMinTime;
    rows += batch.row_count;
    if (!places && add_in_order(batch, kMinTime)) return;
    group_rows(batch.time, batch.row_count);
    if (places) places->clear();
    if (grouped_.count == 0) return;
    widen_values(batch.values);
    slots_.resize(static_cast<size_t>(grouped_.count));
    keys_.find_or_insert(batch.keys.data(), grouped_.rows_at(0), grouped_.count, slots_.data());
    for (const FrameGroup& group : grouped_.groups)
      add_group(open_frame(group.frame), slots_.data() + group.start, grouped_.rows_at(group.start), group.count);
    tell_places(0);
  }

  // Frames that are there now and end at or before the watermark become due. A row that comes later for such a frame opens
  // it again, and it is due at the next watermark or flush.
  void advance(int64_t watermark) {
    watermark_ = std::max(watermark_, watermark);
    due_ = shape_.last_due(watermark_);
  }
  void flush() { due_ = kMaxTime; }
  bool has_due() const { return !leaving_partials_.empty() || (!frames_.empty() && frames_.begin()->first <= due_); }
  bool is_emitting() const override { return has_due(); }

  // The next partials, at most rows_max, all of one owner; no rows: nothing is due any more. Frames ascend for each owner.
  Rows emit(int64_t rows_max) override {
    if (leaving_partials_.empty() && has_due()) take_frames(rows_max);
    Rows result;
    if (!leaving_partials_.empty()) {
      OwnedPartials& next = leaving_partials_.front();
      const int64_t count = std::min(rows_max, next.rows.row_count - given_);
      result = slice_rows(next.rows, given_, count);
      if (places) places->places.assign(next.places.begin() + given_, next.places.begin() + given_ + count);
      owner = next.owner;
      is_frame = next.is_frame;
      given_ += count;
      if (given_ == next.rows.row_count) {
        leaving_partials_.pop_front();
        given_ = 0;
      }
    }
    return result;
  }

  // The keys of all frames that have left give up their slots.
  void forget_keys() {
    collect_above_ = 0;
    collect_keys();
  }

  // There is no state: what is held leaves ahead of a snapshot, and nothing is judged.
  Rows save(int64_t&, int64_t) override { return Rows(); }
  void restore_bound(int32_t, int64_t) override {}

 private:
  // The keys of one owner that have slots from `start` to `end`.
  struct Owned {
    uint32_t start = 0, end = 0;
    std::vector<Column> columns;
  };

  // While no key goes, those of whole frames stay the same: most come back, the rare ones of a Zipf distribution too.
  static constexpr int64_t kKeysKept = 65536;

  // A partial of a whole frame costs a fourth of one in a list, which is found, hashed and looked up by itself.
  static constexpr int64_t kKeysPerPresent = 4;

  // Keys that have come since slots were ordered leave in lists; when so many partials have as one in so many keys, slots are
  // ordered again, which costs as much.
  static constexpr int64_t kKeysPerListed = 2;

  // The partials of the next due frames leave: of one, or of several with few rows.
  void take_frames(int64_t rows_max) {
    list_keys();
    std::vector<const Frame*> chosen;
    int64_t count = 0;
    bool is_given = false;
    for (auto item = frames_.begin(); item != frames_.end() && item->first <= due_; ++item) {
      Frame& frame = *item->second;
      drop_index(frame);
      const int64_t present = frame.count - (frame.dense ? zeros_among(frame.rows(), frame.count) : 0);
      const bool whole = leaves_whole(frame, present);
      if (!chosen.empty() && (whole || count + present > rows_max)) break;
      chosen.push_back(&frame);
      count += present;
      for (uint32_t entry = 0; entry < frame.count; ++entry) partial_rows += static_cast<int64_t>(frame.rows()[entry]);
      if (whole) {
        if (!is_ordered()) order_slots();
        cover(frame);
        is_given = shares_frames_ && frame.settled.empty();
        take_whole(frame, is_given);
        break;
      }
    }
    partials += count;
    frames_left += static_cast<int64_t>(chosen.size());
    if (leaving_partials_.empty()) take_entries(chosen, 0);
    collect_keys();  // their keys still have frames: those that often come back keep their slots
    for (size_t left = chosen.size(); left > 0; --left) {
      if (!is_given) recycle(std::move(frames_.begin()->second));
      frames_.erase(frames_.begin());
    }
  }

  bool leaves_whole(const Frame& frame, int64_t present) const {
    return frame.dense && !owner_of_partition_.empty() && !places && present >= kWholeRows && kKeysPerPresent * present >= keys_.live();
  }

  // A partial for every key that there is. `gives`: the arrays of the frame themselves, which is not used any more.
  void take_whole(const Frame& frame, bool gives) {
    const Column ends = gives ? repeated(frame.end, frame.count) : constant_column(frame.end);
    for (size_t index = 0; index < owned_.size(); ++index) {
      const Owned& owned = owned_[index];
      const int64_t count = int64_t{owned.end} - owned.start;
      if (count == 0) continue;
      Rows result;
      result.row_count = count;
      result.columns = owned.columns;
      result.columns.push_back(slice_column(ends, 0, count));
      for (size_t field = 0; field < fields_.size(); ++field) {
        if (!frame.states[field]) {
          result.columns.push_back(zeros_for(count));
        } else if (gives) {
          Column column;
          column.view = frame_type(fields_[field]);
          column.view.row_count = count;
          column.view.values = frame.state(field) + int64_t{owned.start} * fields_[field].width;
          column.owner = frame.states[field];
          result.columns.push_back(std::move(column));
        } else {
          result.columns.push_back(allocate_fixed(arena_, partial_type(partial_fields_[field]), count));
          copy_field({&frame, nullptr, 0, count, owned.start}, field, result.columns.back().mutable_values<uint8_t>());
        }
      }
      leaving_partials_.push_back({static_cast<int32_t>(index), gives, std::move(result), {}});
    }
    listed_since_ += new_keys();
    if (new_keys() > 0) take_entries({&frame}, ordered_);
  }

  // A column of one value, as a dictionary: nothing is written but the value.
  Column repeated(int64_t value, int64_t count) {
    auto dictionary = std::make_shared<Column>(allocate_fixed(arena_, fixed_type(Kind::int64, 8), 1));
    *dictionary->mutable_values<int64_t>() = value;
    Column column = zeros_for(count);
    column.view.layout = Layout::dictionary;
    column.view.dictionary = &dictionary->view;
    column.dictionary = std::move(dictionary);
    return column;
  }

  Column zeros_for(int64_t count) {
    if (zeros_.view.row_count < count) {
      zeros_ = constant_column(0);
      zeros_.comes_again = true;
    }
    return slice_column(zeros_, 0, count);
  }

  // As many times `value` as there are slots.
  Column constant_column(int64_t value) const {
    Column column = allocate_fixed(arena_, fixed_type(Kind::int64, 8), keys_.slot_limit());
    std::fill_n(column.mutable_values<int64_t>(), keys_.slot_limit(), value);
    return column;
  }

  // A partial for every key and frame that has rows, of entries from `first_entry` on.
  void take_entries(const std::vector<const Frame*>& frames, uint32_t first_entry) {
    std::vector<std::vector<uint32_t>> slots(owned_.size()), entries(owned_.size());
    std::vector<std::vector<FrameRows>> parts(owned_.size());
    for (const Frame* frame : frames) {
      const uint32_t entry_count = frame->count - first_entry;
      present_.resize(entry_count);
      if (frame->dense)
        present_.resize(static_cast<size_t>(list_present(frame->rows() + first_entry, first_entry, entry_count, present_.data())));
      else
        std::iota(present_.begin(), present_.end(), first_entry);
      for (const uint32_t entry : present_) {
        const uint32_t slot = frame->slot_of(entry);
        const auto index = static_cast<size_t>(owner_of_slot_[slot]);
        entries[index].push_back(entry);
        slots[index].push_back(slot);
      }
      for (size_t index = 0; index < owned_.size(); ++index) {
        const int64_t start = parts[index].empty() ? 0 : parts[index].back().start + parts[index].back().count;
        parts[index].push_back({frame, nullptr, start, static_cast<int64_t>(entries[index].size()) - start});
      }
    }
    for (size_t index = 0; index < owned_.size(); ++index) {
      if (slots[index].empty()) continue;
      for (FrameRows& part : parts[index]) part.entries = entries[index].data() + part.start;
      const auto count = static_cast<int64_t>(slots[index].size());
      Rows rows_of_owner = partials_of(parts[index], slots[index].data(), count);
      leaving_partials_.push_back({static_cast<int32_t>(index), false, std::move(rows_of_owner), {}});
      if (places) leaving_partials_.back().places = std::move(slots[index]);
    }
  }

  // owner_of_slot_ learns the keys that have come, or, if any has gone, all.
  void list_keys() {
    if (listed_releases_ == keys_.releases() && listed_live_ == keys_.live()) return;
    std::vector<uint8_t> is_new(keys_.slot_limit(), 1);
    if (listed_releases_ == keys_.releases() && listed_live_ == static_cast<int64_t>(owner_of_slot_.size()))
      std::fill_n(is_new.begin(), owner_of_slot_.size(), uint8_t{0});
    else
      for (const uint32_t slot : keys_.free_slots()) is_new[slot] = 0;
    owner_of_slot_.resize(keys_.slot_limit(), 0);
    if (owned_.size() > 1) {
      assign_slot_partitions(is_new);
      for (uint32_t slot = 0; slot < keys_.slot_limit(); ++slot)
        if (is_new[slot]) owner_of_slot_[slot] = owner_of_partition_[static_cast<size_t>(partition_of_slot_[slot])];
    }
    listed_releases_ = keys_.releases();
    listed_live_ = keys_.live();
  }

  // ---- the order of slots

  // Does it still pay to leave slots as they are?
  bool is_ordered() const {
    return ordered_releases_ == keys_.releases() && listed_since_ + new_keys() <= ordered_ / kKeysPerListed;
  }

  int64_t new_keys() const { return int64_t{keys_.slot_limit()} - ordered_; }

  // Keys get new slots by owner and hash, and the entries of all frames go with them.
  void order_slots() {
    std::vector<uint8_t> is_taken(keys_.slot_limit(), 1);
    for (const uint32_t slot : keys_.free_slots()) is_taken[slot] = 0;
    std::vector<std::vector<std::pair<uint32_t, uint32_t>>> hashed(owned_.size());  // hash, slot
    std::vector<uint32_t> hashes;
    each_part_of_keys(is_taken, [&](const std::vector<ColumnView>& keys, const std::vector<uint32_t>& part) {
      hashes.resize(part.size());
      hash_rows(keys, static_cast<int64_t>(part.size()), hashes.data());
      for (size_t i = 0; i < part.size(); ++i) hashed[static_cast<size_t>(owner_of_slot_[part[i]])].emplace_back(hashes[i], part[i]);
    });
    std::vector<std::vector<uint32_t>> slots(owned_.size());
    for (size_t index = 0; index < owned_.size(); ++index) {
      std::sort(hashed[index].begin(), hashed[index].end());
      for (const auto& [hash, slot] : hashed[index]) slots[index].push_back(slot);
    }
    for (auto& item : frames_) drop_index(*item.second);
    const std::vector<uint32_t> moved = keys_.renumber(slots, arena_);
    for (auto& item : frames_) move_entries(*item.second, moved);
    ordered_ = keys_.slot_limit();
    owner_of_slot_.resize(ordered_);
    uint32_t start = 0;
    for (size_t index = 0; index < owned_.size(); ++index) {
      Owned& owned = owned_[index];
      owned.start = start;
      owned.end = start += static_cast<uint32_t>(slots[index].size());
      std::fill(owner_of_slot_.begin() + owned.start, owner_of_slot_.begin() + owned.end, static_cast<int32_t>(index));
      present_.resize(owned.end - owned.start);
      std::iota(present_.begin(), present_.end(), owned.start);
      owned.columns = keys_.keys_of(present_.data(), static_cast<int64_t>(present_.size()), arena_);
      for (Column& column : owned.columns) column.comes_again = true;
    }
    listed_since_ = 0;
    ordered_releases_ = listed_releases_ = keys_.releases();
    listed_live_ = keys_.live();
  }

  // The entry of each slot becomes that of moved[slot]. A frame has no rows of a key that is gone.
  void move_entries(Frame& frame, const std::vector<uint32_t>& moved) {
    if (!frame.dense) {
      for (uint32_t entry = 0; entry < frame.count; ++entry) frame.slots[entry] = moved[frame.slots[entry]];
      frame.block_starts.clear();
      return;
    }
    std::vector<uint32_t> from, to;
    for (uint32_t slot = 0; slot < frame.count; ++slot)
      if (moved[slot] != kNoSlot) {
        from.push_back(slot);
        to.push_back(moved[slot]);
      }
    const auto count = static_cast<int64_t>(from.size());
    const uint32_t limit = keys_.slot_limit();
    frame.capacity = std::max(frame.capacity, limit);
    for (size_t field = 0; field < fields_.size(); ++field) {
      const int32_t width = fields_[field].width;
      if (frame.states[field]) {
        Block states = arena_.allocate(int64_t{frame.capacity} * width);
        fill_identity(fields_[field], states.get(), 0, limit);
        copy_states(width, states.get(), to.data(), frame.state(field), from.data(), count);
        frame.states[field] = std::move(states);
      }
      if (field >= frame.settled.size() || frame.settled[field].empty()) continue;
      std::vector<FloatSum> settled(limit);
      for (size_t i = 0; i < from.size() && from[i] < frame.settled[field].size(); ++i)
        settled[to[i]] = frame.settled[field][from[i]];
      frame.settled[field] = std::move(settled);
    }
    frame.count = limit;
  }

  std::vector<int32_t> owner_of_partition_, owner_of_slot_;
  std::vector<Owned> owned_;
  uint64_t listed_releases_ = 0;
  int64_t listed_live_ = 0;
  uint32_t ordered_ = 0;           // slots below lie in the order of owners
  uint64_t ordered_releases_ = 0;  // of keys_ then: while it stays, they still do
  int64_t listed_since_ = 0;       // partials that left in lists since, for lack of order
  std::vector<uint32_t> present_;  // scratch
  bool shares_frames_ = false;
  Column zeros_;
  std::deque<OwnedPartials> leaving_partials_;
  int64_t given_ = 0;  // rows of the first of them
  int64_t due_ = kMinTime;
};

}  // namespace jetfast
