// Windowed aggregation by key: rows enter frames, frames enter and leave a running window, windows are emitted by a watermark.
//
// Invariants, with B = `emitted_`, the last window end that counts as emitted:
//   a frame f is kept while last_window_of_frame(f) > B or it has not been due yet;
//   the running window holds exactly the frames f <= B that are kept (nothing, if size = slide);
//   exact fields of `running_.states` are sums over those frames; the other fields are two stacks over them: frames up to
//   `front_end_` are the front (each entry remembers in `after` what the newer front frames of its key amount to, and
//   `running_.after` is the whole front), later ones are the back (`running_.states`).
//   So when the oldest frame leaves, the front of each of its keys is that entry's `after`.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/arena.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/key_index.hpp"
#include "jetfast/keyed_results.hpp"

namespace jetfast {

class WindowTable : public KeyedResults {
 public:
  WindowTable(TableSpec spec, Arena& arena)
      : KeyedResults(spec, arena), running_(new_frame()) {
    if (shape_.frames() > 1) need_after(*running_);
  }

  bool is_emitting() const { return emitting_; }

  void accumulate(const BatchColumns& batch, LateRows* late) {
    check_not_emitting();
    rows += batch.row_count;
    group_rows(batch.time, batch.row_count);
    if (!bounds_.empty()) assign_row_partitions(batch.keys, batch.row_count);
    judge(late, nullptr);
    if (accepted_count() == 0) return;
    widen_values(batch.values);
    find_slots(batch.keys, !bounds_.empty());
    for (const FrameGroup& group : grouped_.groups) {
      const uint32_t* slots = slots_.data() + (group.start - first_accepted_);
      if (is_running(group.frame)) {
        add_rows(*delta_, slots, grouped_.rows_at(group.start), group.count, false);
        add_delta(group.frame);
      } else {
        add_rows(frame_at(group.frame), slots, grouped_.rows_at(group.start), group.count, true);
      }
    }
  }

  void accumulate_partials(const PartialColumns& batch) {
    check_not_emitting();
    const auto* row_counts = static_cast<const uint8_t*>(batch.fields[0].values);
    for (int64_t row = 0; row < batch.row_count; ++row) rows += load_unaligned<int64_t>(row_counts + row * 8);
    group_partials(batch, false);
    if (!bounds_.empty()) assign_row_partitions(batch.keys, batch.row_count);
    judge(nullptr, row_counts);
    take_partials(batch, !bounds_.empty());
  }

  // ---- emission

  void advance(int64_t watermark) {
    check_not_emitting();
    if (watermark < watermark_) throw std::invalid_argument("a watermark must not go back");
    watermark_ = watermark;
    due_ = shape_.last_due(watermark);
    emitting_ = true;
    int64_t end;
    if (!next_window(end)) finish_emission();
  }

  // The next results, at most rows_max, by ascending window end; no rows: nothing is due any more.
  // Columns: keys, window start, window end, aggregates.
  Rows emit(int64_t rows_max) {
    Rows result;
    if (!emitting_ || rows_max <= 0) return result;
    ResultRows out;
    while (out.count < rows_max) {
      if (window_ == nullptr && !open_window()) break;
      if (out.columns.empty()) rows_max = allocate_results(out, rows_max);
      const int64_t count = std::min<int64_t>(rows_max - out.count, window_->count - cursor_);
      if (count > 0) write_window(out, count);
      if (cursor_ == window_->count) close_window();
    }
    if (out.count > 0) result = finish_results(out);
    free_slots();
    return result;
  }

  // ---- snapshots

  // State as partial results ordered by partition, for frames after `after_frame`, as many frames as about rows_max rows
  // are (at least one). offsets[p] .. offsets[p + 1] are the rows of partition p. Start with after_frame = MIN_TIME, which
  // moves on; no rows: that was all.
  Rows save(int64_t& after_frame, int64_t rows_max, std::vector<int64_t>& offsets) {
    check_not_emitting();
    if (after_frame == kMinTime) assign_slot_partitions();
    offsets.assign(static_cast<size_t>(partition_count_) + 1, 0);
    std::vector<const Frame*> chosen;
    int64_t count = 0;
    for (auto item = frames_.upper_bound(after_frame); item != frames_.end(); ++item) {
      if (!chosen.empty() && count + item->second->count > rows_max) break;
      chosen.push_back(item->second.get());
      count += item->second->count;
      after_frame = item->first;
    }
    for (const Frame* frame : chosen)
      for (uint32_t entry = 0; entry < frame->count; ++entry) ++offsets[partition_of_slot_[frame->slots[entry]] + 1];
    for (int32_t partition = 0; partition < partition_count_; ++partition) offsets[partition + 1] += offsets[partition];
    std::vector<int64_t> next(offsets.begin(), offsets.end() - 1);
    std::vector<std::pair<const Frame*, uint32_t>> entries(static_cast<size_t>(count));
    for (const Frame* frame : chosen)
      for (uint32_t entry = 0; entry < frame->count; ++entry)
        entries[next[partition_of_slot_[frame->slots[entry]]]++] = {frame, entry};
    if (count == 0) return Rows();
    return partial_rows(entries);
  }

  void restore_bound(int32_t partition, int64_t bound) {
    if (bounds_.empty()) bounds_.assign(static_cast<size_t>(partition_count_), kMinTime);
    bounds_[static_cast<size_t>(partition)] = std::max(bounds_[static_cast<size_t>(partition)], bound);
    greatest_bound_ = std::max(greatest_bound_, shape_.last_due(bound));
  }

  // Saved rows of one partition come back. Frames of another slide go to the next boundary at or after their end.
  void restore(const PartialColumns& batch, int32_t partition) {
    group_partials(batch, true);
    first_accepted_ = 0;
    take_partials(batch, false);
    partition_of_slot_.resize(keys_.slot_limit(), 0);
    for (const uint32_t slot : slots_) partition_of_slot_[slot] = partition;
  }

  MemoryUse memory() const {
    MemoryUse use = KeyedFrames::memory();
    use.frame_bytes += int64_t{running_->capacity} * 4 + static_cast<int64_t>(running_->entry_of_slot.capacity()) * 4;
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (running_->states[field]) use.frame_bytes += int64_t{running_->capacity} * fields_[field].width;
      if (running_->after[field]) use.frame_bytes += int64_t{running_->capacity} * fields_[field].width;
    }
    return use;
  }

 private:
  void check_not_emitting() const {
    if (emitting_) throw std::invalid_argument("emit all windows that are due (until None) before anything else comes in");
  }

  bool is_running(int64_t frame) const { return frame <= emitted_; }

  // ---- lateness

  int64_t accepted_count() const { return grouped_.count - first_accepted_; }

  // Drop late rows from grouped_ and count late and partly late ones, by the bound that held before this batch.
  // `weights`: number of rows that each row stands for (int64 anywhere), or one each.
  void judge(LateRows* late, const uint8_t* weights) {
    first_accepted_ = 0;
    const auto weight = [&](int64_t place) {
      return weights ? load_unaligned<int64_t>(weights + int64_t{grouped_.row_at(place)} * 8) : 1;
    };
    std::vector<std::pair<int32_t, int64_t>> missed;
    if (bounds_.empty()) {
      size_t kept = 0;
      for (const FrameGroup& group : grouped_.groups) {
        if (group.frame > emitted_) break;
        const int64_t last_window = shape_.last_window_of_frame(group.frame);
        int64_t weight_sum = 0;
        for (int64_t place = group.start; place < group.start + group.count; ++place) {
          weight_sum += weight(place);
          if (late) missed.emplace_back(grouped_.row_at(place), std::min(emitted_, last_window));
        }
        if (last_window <= emitted_) {
          late_rows += weight_sum;
          first_accepted_ = group.start + group.count;
          ++kept;
        } else {
          partly_late_rows += weight_sum;
        }
      }
      grouped_.groups.erase(grouped_.groups.begin(), grouped_.groups.begin() + static_cast<int64_t>(kept));
    } else {
      if (grouped_.in_order) {
        grouped_.rows.resize(static_cast<size_t>(grouped_.count));
        for (int64_t place = 0; place < grouped_.count; ++place) grouped_.rows[place] = static_cast<int32_t>(place);
        grouped_.in_order = false;
      }
      std::vector<FrameGroup> groups;
      int64_t accepted = 0;
      for (const FrameGroup& group : grouped_.groups) {
        const int64_t last_window = shape_.last_window_of_frame(group.frame);
        FrameGroup rest{group.frame, accepted, 0};
        for (int64_t place = group.start; place < group.start + group.count; ++place) {
          const int32_t row = grouped_.rows[place];
          const int64_t bound = std::max(emitted_, shape_.last_due(bounds_[static_cast<size_t>(row_partitions_[row])]));
          if (group.frame <= bound) {
            (last_window <= bound ? late_rows : partly_late_rows) += weight(place);
            if (late) missed.emplace_back(row, std::min(bound, last_window));
          }
          if (last_window > bound) {
            grouped_.rows[accepted++] = row;
            ++rest.count;
          }
        }
        if (rest.count > 0) groups.push_back(rest);
      }
      grouped_.groups.swap(groups);
      grouped_.count = accepted;
    }
    if (late) {
      std::sort(missed.begin(), missed.end());
      for (const auto& [row, until] : missed) {
        late->rows.push_back(row);
        late->missed_until.push_back(until);
      }
    }
  }

  void find_slots(const std::vector<ColumnView>& keys, bool with_partitions) {
    slots_.resize(static_cast<size_t>(accepted_count()));
    keys_.find_or_insert(keys.data(), grouped_.rows_at(first_accepted_), accepted_count(), slots_.data());
    if (with_partitions) {
      if (partition_of_slot_.size() < keys_.slot_limit()) partition_of_slot_.resize(keys_.slot_limit(), 0);
      for (int64_t i = 0; i < accepted_count(); ++i)
        partition_of_slot_[slots_[i]] = row_partitions_[grouped_.row_at(first_accepted_ + i)];
    }
  }

  // ---- partial results, into this table

  void group_partials(const PartialColumns& batch, bool realign) {
    frame_ends_.resize(static_cast<size_t>(batch.row_count));
    sorted_rows_.resize(static_cast<size_t>(batch.row_count));
    const auto* ends = static_cast<const uint8_t*>(batch.frame.values);
    for (int64_t row = 0; row < batch.row_count; ++row) {
      const auto end = load_unaligned<int64_t>(ends + row * 8);
      frame_ends_[row] = realign ? shape_.ceil(end) : end;
      sorted_rows_[row] = static_cast<int32_t>(row);
    }
    grouped_.groups.clear();
    grouped_.rows.clear();
    sort_by_frame(frame_ends_.data());
  }

  void take_partials(const PartialColumns& batch, bool with_partitions) {
    if (accepted_count() == 0) {
      slots_.clear();
      return;
    }
    find_slots(batch.keys, with_partitions);
    for (const FrameGroup& group : grouped_.groups) {
      const uint32_t* slots = slots_.data() + (group.start - first_accepted_);
      if (is_running(group.frame)) {
        add_partials(*delta_, slots, grouped_.rows_at(group.start), group.count, batch.fields, false);
        add_delta(group.frame);
      } else {
        add_partials(frame_at(group.frame), slots, grouped_.rows_at(group.start), group.count, batch.fields, true);
      }
    }
  }

  // ---- sliding

  // What is in delta_ belongs to a frame that the running window holds: it enters both.
  void add_delta(int64_t end) {
    Frame& frame = frame_at(end);
    add_frame(frame, *delta_, true);
    entries_.resize(delta_->count);
    enter(*running_, delta_->slots.data(), delta_->count, entries_.data(), false);
    const bool in_front = end <= front_end_;
    for (size_t field = 0; field < fields_.size(); ++field)
      if (fields_[field].exact || !in_front) combine_field(*running_, *delta_, field);
    if (in_front && !all_exact_) {
      need_after(frame);
      restack(delta_->slots.data(), delta_->count);
    }
    clear(*delta_);
  }

  // Build the front of some keys anew.
  void restack(const uint32_t* slots, int64_t count) {
    std::vector<uint32_t> running_entries, frame_entries;
    for (int64_t i = 0; i < count; ++i) {
      const uint32_t entry = running_->find(slots[i]);
      for (size_t field = 0; field < fields_.size(); ++field)
        if (!fields_[field].exact) fill_identity(fields_[field], running_->after[field].get(), entry, entry + 1);
    }
    for (auto item = frames_.upper_bound(front_end_); item != frames_.begin();) {
      --item;
      Frame& frame = *item->second;
      need_index(frame);
      running_entries.clear();
      frame_entries.clear();
      for (int64_t i = 0; i < count; ++i) {
        const uint32_t entry = frame.find(slots[i]);
        if (entry == kNoEntry) continue;
        running_entries.push_back(running_->find(slots[i]));
        frame_entries.push_back(entry);
      }
      if (frame_entries.empty()) continue;
      for (size_t field = 0; field < fields_.size(); ++field)
        if (!fields_[field].exact)
          stack_states(fields_[field], running_->after[field].get(), running_entries.data(), frame.state(field),
                       frame.after[field].get(), frame_entries.data(), static_cast<int64_t>(frame_entries.size()));
    }
  }

  // The back becomes the front; all frames up to emitted_ are in it.
  void turn_stacks() {
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (fields_[field].exact) continue;
      fill_identity(fields_[field], running_->after[field].get(), 0, running_->count);
      fill_identity(fields_[field], running_->state(field), 0, running_->count);
    }
    front_end_ = emitted_;
    for (auto item = frames_.upper_bound(emitted_); item != frames_.begin();) {
      --item;
      Frame& frame = *item->second;
      need_after(frame);
      entries_.resize(frame.count);
      for (uint32_t entry = 0; entry < frame.count; ++entry) entries_[entry] = running_->entry_of_slot[frame.slots[entry]];
      for (size_t field = 0; field < fields_.size(); ++field)
        if (!fields_[field].exact)
          stack_states(fields_[field], running_->after[field].get(), entries_.data(), frame.state(field),
                       frame.after[field].get(), nullptr, frame.count);
    }
  }

  // The oldest frame leaves the running window.
  void leave(const Frame& frame) {
    if (!all_exact_ && frame.end > front_end_) turn_stacks();
    entries_.resize(frame.count);
    for (uint32_t entry = 0; entry < frame.count; ++entry) entries_[entry] = running_->entry_of_slot[frame.slots[entry]];
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!frame.states[field]) continue;
      if (fields_[field].exact)
        deduct_states(fields_[field], running_->state(field), entries_.data(), frame.state(field), frame.count);
      else
        copy_states(fields_[field].width, running_->after[field].get(), entries_.data(), frame.after[field].get(), nullptr,
                    frame.count);
    }
    for (uint32_t entry = 0; entry < frame.count; ++entry) {
      const uint32_t slot = frame.slots[entry];
      const uint32_t place = running_->entry_of_slot[slot];
      if (running_->rows()[place] == 0) remove_running(slot, place);
    }
  }

  void remove_running(uint32_t slot, uint32_t place) {
    const uint32_t last = --running_->count;
    running_->entry_of_slot[slot] = kNoEntry;
    if (place == last) return;
    const uint32_t moved = running_->slots[last];
    running_->slots[place] = moved;
    running_->entry_of_slot[moved] = place;
    for (size_t field = 0; field < fields_.size(); ++field) {
      const int64_t width = fields_[field].width;
      for (const Block* block : {&running_->states[field], &running_->after[field]})
        if (*block) std::memcpy(block->get() + place * width, block->get() + last * width, static_cast<size_t>(width));
    }
  }

  // The next window that is due and holds rows; false when there is none. Gaps cost nothing.
  bool next_window(int64_t& end) const {
    const auto next = frames_.upper_bound(emitted_);
    if (running_->count > 0) end = saturating_add(emitted_, shape_.slide);
    else if (next != frames_.end()) end = next->first;
    else return false;
    return end <= due_;
  }

  void finish_emission() {
    emitted_ = std::max(emitted_, due_);
    emitting_ = false;
    if (!bounds_.empty() && emitted_ >= greatest_bound_) bounds_.clear();
  }

  bool open_window() {
    int64_t end;
    if (!next_window(end)) {
      finish_emission();
      return false;
    }
    window_end_ = end;
    cursor_ = 0;
    const auto next = frames_.upper_bound(emitted_);
    const bool has_frame = next != frames_.end() && next->first == end;
    if (shape_.frames() == 1) {
      window_ = next->second.get();
    } else {
      window_ = running_.get();
      if (has_frame) {
        Frame& frame = *next->second;
        drop_index(frame);
        entries_.resize(frame.count);
        enter(*running_, frame.slots.data(), frame.count, entries_.data(), false);
        for (size_t field = 0; field < fields_.size(); ++field) combine_field(*running_, frame, field);
      }
    }
    return true;
  }

  void close_window() {
    emitted_ = window_end_;
    window_ = nullptr;
    while (!frames_.empty()) {
      const auto first = frames_.begin();
      if (first->first > emitted_ || shape_.last_window_of_frame(first->first) > emitted_) break;
      if (shape_.frames() > 1) leave(*first->second);
      std::unique_ptr<Frame> frame = std::move(first->second);
      frames_.erase(first);
      retire(std::move(frame));
    }
    if (running_->count == 0) front_end_ = kMinTime;
  }

  // ---- results

  // Returns how many rows there is room for.
  int64_t allocate_results(ResultRows& out, int64_t rows_max) {
    // No more windows can follow than there are slides up to the last due one, and frames times windows of each.
    const uint64_t span = static_cast<uint64_t>(due_) - static_cast<uint64_t>(window_end_);
    const double slides = static_cast<double>(span / static_cast<uint64_t>(shape_.slide)) + 2;
    const double windows = std::min(slides, static_cast<double>(frames_.size() + 1) * static_cast<double>(shape_.frames()));
    const double rows_bound = windows * static_cast<double>(keys_.live());
    out.capacity = rows_bound < static_cast<double>(rows_max) ? static_cast<int64_t>(rows_bound) : rows_max;
    allocate_columns(out);
    return out.capacity;
  }

  // Up to `count` entries of the window from cursor_ on.
  void write_window(ResultRows& out, int64_t count) {
    if (bounds_.empty()) {
      write_entries(out, cursor_, count);
      cursor_ += static_cast<uint32_t>(count);
      return;
    }
    // Keys of a partition whose bound lies behind this window had their result before the restore.
    const auto is_due = [this](uint32_t entry) {
      return window_end_ > shape_.last_due(bounds_[static_cast<size_t>(partition_of_slot_[window_->slots[entry]])]);
    };
    const uint32_t end = cursor_ + static_cast<uint32_t>(count);
    while (cursor_ < end) {
      while (cursor_ < end && !is_due(cursor_)) ++cursor_;
      const uint32_t start = cursor_;
      while (cursor_ < end && is_due(cursor_)) ++cursor_;
      if (cursor_ > start) write_entries(out, start, cursor_ - start);
    }
  }

  void write_entries(ResultRows& out, uint32_t start, int64_t count) {
    const Frame& window = *window_;
    out.slots.insert(out.slots.end(), window.slots.begin() + start, window.slots.begin() + start + count);
    auto* starts = out.starts() + out.count;
    auto* ends = out.ends() + out.count;
    const int64_t window_start = saturating_add(window_end_, -shape_.size);
    for (int64_t i = 0; i < count; ++i) {
      starts[i] = window_start;
      ends[i] = window_end_;
    }
    // Fields as plain arrays of `count` states.
    std::vector<const uint8_t*> states(fields_.size(), nullptr);
    if (merged_.size() < fields_.size()) merged_.resize(fields_.size());
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!window.states[field]) continue;
      const int64_t width = fields_[field].width;
      states[field] = window.state(field) + start * width;
      if (!fields_[field].exact && shape_.frames() > 1) {
        merged_[field].resize(static_cast<size_t>((count * width + 7) / 8));
        auto* target = reinterpret_cast<uint8_t*>(merged_[field].data());
        merge_states(fields_[field], window.after[field].get() + start * width, states[field], count, target);
        states[field] = target;
      }
    }
    write_aggregates(out, states, count);
  }

  std::unique_ptr<Frame> running_;
  int64_t front_end_ = kMinTime;
  int64_t emitted_ = kMinTime;  // windows up to here are emitted or were empty
  int64_t due_ = kMinTime;
  bool emitting_ = false;
  const Frame* window_ = nullptr;  // being emitted: the running window, or the frame if size = slide
  int64_t window_end_ = kMinTime;
  uint32_t cursor_ = 0;
  int64_t first_accepted_ = 0;  // place of the first row of grouped_ that is not late
  int64_t greatest_bound_ = kMinTime;
  std::vector<std::vector<uint64_t>> merged_;
};

}  // namespace jetfast
