// First stage of two: partial results per key and frame, near the source. Judges nothing.
//
// With owners (processors of the second stage) partials leave by owner, so that nobody has to hash and divide them. Mostly a
// frame has rows of a fourth of the keys at least: then it leaves whole, with a row count of 0 for those without. So each owner's keys, and
// their order, are the same from frame to frame, and their columns lie in the same memory, by which the second stage knows
// their slots (known_keys.hpp): nothing is looked up there either. Other frames leave as lists of the keys that have rows.
//
// Where all owners read the same memory, a whole frame may leave as it lies, its own arrays as columns of all keys: each owner gets
// it and takes what is his (WindowTable::accumulate_frame). Nothing is copied then, and own keys go nowhere.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/slot_frames.hpp"
#include "jetfast/window_rows.hpp"

namespace jetfast {

// The partials of one owner, or a frame as it lies. `places`: of each row, if they are told.
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

  // All owners read the same memory: whole frames leave as they lie. Before the first row.
  void share_frames() { shares_frames_ = true; }

  int64_t partials = 0;      // pairs of a key and a frame that it has rows in, of all frames that have left
  int64_t partial_rows = 0;  // of them
  int64_t frames_left = 0;   // those frames
  int32_t owner = 0;         // of the partials that were emitted last
  bool is_frame = false;     // they are a frame as it lies: keys of all owners, frame end, and one column for each of fields()

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
  // The keys of one owner.
  struct Owned {
    std::vector<uint32_t> slots;
    std::vector<Column> columns;  // none: not made since the last change
  };

  // While no key goes, those of whole frames stay the same: most come back, the rare ones of a Zipf distribution too.
  static constexpr int64_t kKeysKept = 65536;

  // A partial of a whole frame costs a fourth of one in a list, which is found, hashed and looked up by itself.
  static constexpr int64_t kKeysPerPresent = 4;

  // The partials of the next due frames leave: of one, or of several with few rows.
  void take_frames(int64_t rows_max) {
    list_keys();
    std::vector<const Frame*> chosen;
    int64_t count = 0;
    bool is_shared = false;
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
        cover(frame);
        is_shared = shares_frames_ && frame.settled.empty() && keys_.live() == int64_t{keys_.slot_limit()};
        if (is_shared) share_frame(frame);
        else take_whole(frame);
        break;
      }
    }
    partials += count;
    frames_left += static_cast<int64_t>(chosen.size());
    if (leaving_partials_.empty()) take_entries(chosen);
    collect_keys();  // their keys still have frames: those that often come back keep their slots
    for (size_t left = chosen.size(); left > 0; --left) {
      if (!is_shared) recycle(std::move(frames_.begin()->second));
      frames_.erase(frames_.begin());
    }
  }

  bool leaves_whole(const Frame& frame, int64_t present) const {
    return frame.dense && !owner_of_partition_.empty() && !places && present >= kWholeRows && kKeysPerPresent * present >= keys_.live();
  }

  // The arrays of a frame, which is not used any more, go to every owner.
  void share_frame(const Frame& frame) {
    if (all_keys_.empty()) {
      std::vector<uint32_t> slots(frame.count);
      std::iota(slots.begin(), slots.end(), 0u);
      all_keys_ = keys_.keys_of(slots.data(), frame.count, arena_);
    }
    Rows result;
    result.row_count = frame.count;
    result.columns = all_keys_;
    result.columns.push_back(repeated(frame.end, frame.count));
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!frame.states[field]) {
        result.columns.push_back(zeros_for(frame.count));
        continue;
      }
      Column column;
      column.view = frame_type(fields_[field]);
      column.view.row_count = frame.count;
      column.view.values = frame.state(field);
      column.owner = frame.states[field];
      result.columns.push_back(std::move(column));
    }
    for (size_t index = 0; index < owned_.size(); ++index)
      if (!owned_[index].slots.empty()) leaving_partials_.push_back({static_cast<int32_t>(index), true, result, {}});
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

  // A partial for every key that there is.
  void take_whole(Frame& frame) {
    const Column ends = constant_column(frame.end);
    for (size_t index = 0; index < owned_.size(); ++index) {
      Owned& owned = owned_[index];
      const auto count = static_cast<int64_t>(owned.slots.size());
      if (count == 0) continue;
      if (owned.columns.empty()) owned.columns = keys_.keys_of(owned.slots.data(), count, arena_);
      Rows result;
      result.row_count = count;
      result.columns = owned.columns;
      result.columns.push_back(slice_column(ends, 0, count));
      for (size_t field = 0; field < fields_.size(); ++field) {
        if (!frame.states[field]) {
          result.columns.push_back(zeros_for(count));
          continue;
        }
        result.columns.push_back(allocate_fixed(arena_, partial_type(partial_fields_[field]), count));
        copy_field({&frame, owned.slots.data(), 0, count}, field, result.columns.back().mutable_values<uint8_t>());
      }
      leaving_partials_.push_back({static_cast<int32_t>(index), false, std::move(result), {}});
    }
  }

  Column zeros_for(int64_t count) {
    if (zeros_.view.row_count < count) zeros_ = constant_column(0);
    return slice_column(zeros_, 0, count);
  }

  // As many times `value` as there are slots.
  Column constant_column(int64_t value) const {
    Column column = allocate_fixed(arena_, fixed_type(Kind::int64, 8), keys_.slot_limit());
    std::fill_n(column.mutable_values<int64_t>(), keys_.slot_limit(), value);
    return column;
  }

  // A partial for every key and frame that has rows.
  void take_entries(const std::vector<const Frame*>& frames) {
    std::vector<std::vector<uint32_t>> slots(owned_.size()), entries(owned_.size());
    std::vector<std::vector<FrameRows>> parts(owned_.size());
    for (const Frame* frame : frames) {
      present_.resize(frame->count);
      if (frame->dense) present_.resize(static_cast<size_t>(list_present(frame->rows(), 0, frame->count, present_.data())));
      else std::iota(present_.begin(), present_.end(), 0u);
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

  // owned_ and owner_of_slot_ learn the keys that have come, or, if any has gone, all.
  void list_keys() {
    if (listed_releases_ == keys_.releases() && listed_live_ == keys_.live()) return;
    std::vector<uint8_t> is_new(keys_.slot_limit(), 1);
    if (listed_releases_ == keys_.releases() && listed_live_ == static_cast<int64_t>(owner_of_slot_.size())) {
      std::fill_n(is_new.begin(), owner_of_slot_.size(), uint8_t{0});
    } else {
      for (Owned& owned : owned_) owned = Owned();
      for (const uint32_t slot : keys_.free_slots()) is_new[slot] = 0;
    }
    const bool divided = owned_.size() > 1;
    if (divided) assign_slot_partitions(is_new);
    owner_of_slot_.resize(keys_.slot_limit(), 0);
    for (uint32_t slot = 0; slot < keys_.slot_limit(); ++slot) {
      if (!is_new[slot]) continue;
      if (divided) owner_of_slot_[slot] = owner_of_partition_[static_cast<size_t>(partition_of_slot_[slot])];
      Owned& owned = owned_[static_cast<size_t>(owner_of_slot_[slot])];
      owned.slots.push_back(slot);
      owned.columns.clear();
    }
    all_keys_.clear();
    listed_releases_ = keys_.releases();
    listed_live_ = keys_.live();
  }

  std::vector<int32_t> owner_of_partition_, owner_of_slot_;
  std::vector<Owned> owned_;
  uint64_t listed_releases_ = 0;
  int64_t listed_live_ = 0;
  std::vector<uint32_t> present_;  // scratch: entries of one frame
  bool shares_frames_ = false;
  std::vector<Column> all_keys_;   // of every slot; none: not made since the last change
  Column zeros_;
  std::deque<OwnedPartials> leaving_partials_;
  int64_t given_ = 0;  // rows of the first of them
  int64_t due_ = kMinTime;
};

}  // namespace jetfast
