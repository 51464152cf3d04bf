// Windowed aggregation by key: which rows and partial results are taken in and where they go, what a snapshot holds of them.
//
// Rows enter frames (slot_frames.hpp), frames enter and leave a running window (running_window.hpp), and windows are emitted by
// a watermark (window_results.hpp).
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/arena.hpp"
#include "jetfast/assertions.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/keyed_results.hpp"
#include "jetfast/known_keys.hpp"
#include "jetfast/slot_frames.hpp"
#include "jetfast/window_results.hpp"
#include "jetfast/window_rows.hpp"

namespace jetfast {

class WindowTable : public WindowResults {
 public:
  using WindowResults::WindowResults;

  bool is_emitting() const override { return emitting_; }

  // The invariants of keys, frames and, between emissions, of the running window. Reads the whole table.
  void check_invariants() const override {
    KeyedResults::check_invariants();
    JETFAST_INVARIANT(emitting_ || window_ == nullptr);
    JETFAST_INVARIANT(emitted_ <= std::max(due_, emitted_));
    if (!emitting_) check_running();
  }

  void accumulate(const BatchColumns& batch, LateRows* late) override {
    check_not_emitting();
    rows += batch.row_count;
    if (bounds_.empty() && !places && add_in_order(batch, emitted_)) return;
    group_rows(batch.time, batch.row_count);
    if (!bounds_.empty()) assign_row_partitions(batch.keys, batch.row_count);
    judge(late, nullptr);
    if (places) places->clear();
    if (accepted_count() == 0) return;
    widen_values(batch.values);
    find_slots(batch.keys, !bounds_.empty());
    for (const FrameGroup& group : grouped_.groups) {
      const uint32_t* slots = slots_.data() + (group.start - first_accepted_);
      if (is_running(group.frame)) {
        add_rows(*delta_, slots, grouped_.rows_at(group.start), group.count);
        add_delta(group.frame);
      } else {
        add_group(open_frame(group.frame), slots, grouped_.rows_at(group.start), group.count);
      }
    }
    tell_places(first_accepted_);
  }

  void accumulate_partials(const PartialColumns& batch) {
    check_not_emitting();
    if (bounds_.empty() && !places && add_whole_frame(batch)) return;
    const auto* row_counts = static_cast<const uint8_t*>(batch.fields[0].values);
    for (int64_t row = 0; row < batch.row_count; ++row) rows += load_unaligned<int64_t>(row_counts + row * 8);
    group_partials(batch, false);
    if (!bounds_.empty()) assign_row_partitions(batch.keys, batch.row_count);
    judge(nullptr, row_counts);
    take_partials(batch, !bounds_.empty());
  }

  // Part of a frame of a first stage as it lies (frame_table.hpp): keys that this table owns.
  void accumulate_frame(const PartialColumns& batch) {
    check_not_emitting();
    const int64_t end = end_of(batch), count = batch.row_count;
    Frame* frame = bounds_.empty() && !places && end > emitted_ ? &open_frame(end) : nullptr;
    if (frame == nullptr || !frame->dense) return accumulate_copied(batch);
    const SlotList list = known_keys_.find_or_insert(*batch.columns, keys_);
    cover(*frame);
    const auto* row_counts = static_cast<const int64_t*>(batch.fields[0].values);
    for (int64_t row = 0; row < count; ++row) rows += row_counts[row];
    for (size_t field = 0; field < fields_.size(); ++field) {
      const auto* source = static_cast<const uint8_t*>(batch.fields[field].values);
      if (fields_[field].kind == FieldKind::nulls && !need_nulls_of(*frame, field, source, nullptr, count)) continue;
      uint8_t* states = frame->state(field) + int64_t{list.first} * fields_[field].width;
      combine_states(fields_[field], states, list.slots, source, nullptr, count);
    }
  }

  void advance(int64_t watermark) {
    check_not_emitting();
    if (watermark < watermark_) throw std::invalid_argument("a watermark must not go back");
    watermark_ = watermark;
    due_ = shape_.last_due(watermark);
    JETFAST_CHECK(due_ <= watermark_);
    emitting_ = true;
    int64_t end;
    if (!next_window(end)) finish_emission();
  }

  // ---- snapshots

  // Partial results of the frames after `after_frame`, of as many frames as about rows_max rows are (at least one).
  // A key may have several rows of one frame (logs); restore adds them up.
  Rows save(int64_t& after_frame, int64_t rows_max) override {
    check_not_emitting();
    std::vector<const Frame*> chosen;
    int64_t count = 0;
    for (auto item = frames_.upper_bound(after_frame); item != frames_.end(); ++item) {
      const Frame& frame = *item->second;
      const int64_t entry_count =
          frame.dense ? frame.count - static_cast<int64_t>(zeros_among(frame.rows(), frame.count)) : frame.count;
      if (!chosen.empty() && count + entry_count > rows_max) break;
      chosen.push_back(&frame);
      count += entry_count;
      after_frame = item->first;
    }
    return count == 0 ? Rows() : partials_of(chosen, count);
  }

  void restore_bound(int32_t partition, int64_t bound) override {
    if (bounds_.empty()) bounds_.assign(static_cast<size_t>(partition_count_), kMinTime);
    bounds_[static_cast<size_t>(partition)] = std::max(bounds_[static_cast<size_t>(partition)], bound);
    greatest_bound_ = std::max(greatest_bound_, shape_.last_due(bound));
  }

  // Saved rows come back. Frames of another slide go to the next boundary at or after their end.
  void restore(const PartialColumns& batch) {
    group_partials(batch, true);
    first_accepted_ = 0;
    int64_t key_count = keys_.live();  // at least: those of one frame are different
    for (const FrameGroup& group : grouped_.groups) key_count = std::max(key_count, group.count);
    keys_.reserve(key_count);
    take_partials(batch, false);
  }

  // All state has come back.
  void finish_restore() override {
    if (!bounds_.empty()) assign_slot_partitions(held_slots());
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

  // Partials of one dense frame after the running window, as first stages mostly send them. False if it is not that, and
  // nothing was done then.
  bool add_whole_frame(const PartialColumns& batch) {
    const int64_t count = batch.row_count;
    if (batch.columns == nullptr || count < kWholeRows || !all_aligned(batch)) return false;
    const auto* ends = static_cast<const int64_t*>(batch.frame.values);
    const int64_t end = ends[0];
    if (end <= emitted_ || ends[count - 1] != end) return false;
    uint64_t differences = 0;
    for (int64_t row = 0; row < count; ++row) differences |= static_cast<uint64_t>(ends[row] ^ end);
    if (differences != 0) return false;
    Frame& frame = open_frame(end);
    if (!frame.dense) return false;  // the frame is needed all the same
    const auto* row_counts = static_cast<const int64_t*>(batch.fields[0].values);
    for (int64_t row = 0; row < count; ++row) rows += row_counts[row];
    const SlotList list = known_keys_.find_or_insert(*batch.columns, keys_);
    add_partial_group(frame, list.slots, list.first, nullptr, count, batch.fields);
    return true;
  }

  static int64_t end_of(const PartialColumns& frame) { return *static_cast<const int64_t*>(frame.frame.dictionary->values); }

  // The rows of a frame as partials: seldom, where each row is judged.
  void accumulate_copied(const PartialColumns& frame) {
    PartialColumns partials = frame;
    Column ends = allocate_fixed(arena_, fixed_type(Kind::int64, 8), frame.row_count);
    std::fill_n(ends.mutable_values<int64_t>(), frame.row_count, end_of(frame));
    partials.frame = ends.view;
    std::vector<Column> sums;
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (fields_[field].kind != FieldKind::sum_double) continue;
      sums.push_back(allocate_fixed(arena_, partial_type(partial_fields_[field]), frame.row_count));
      const auto* plain = static_cast<const double*>(frame.fields[field].values);
      for (int64_t row = 0; row < frame.row_count; ++row) {
        FloatSum sum;
        sum.sum = plain[row];
        std::memcpy(sums.back().mutable_values<uint8_t>() + row * static_cast<int64_t>(sizeof(sum)), &sum, sizeof(sum));
      }
      partials.fields[field] = sums.back().view;
    }
    partials.columns = nullptr;
    accumulate_partials(partials);
  }

  static bool all_aligned(const PartialColumns& batch) {
    uintptr_t addresses = reinterpret_cast<uintptr_t>(batch.frame.values);
    for (const ColumnView& field : batch.fields) addresses |= reinterpret_cast<uintptr_t>(field.values);
    return addresses % 8 == 0;
  }

  // A key without rows in a frame may be among the partials of a frame that has left its first stage whole.
  void group_partials(const PartialColumns& batch, bool realign) {
    frame_ends_.resize(static_cast<size_t>(batch.row_count));
    grouped_.rows.clear();
    const auto* ends = static_cast<const uint8_t*>(batch.frame.values);
    const auto* row_counts = static_cast<const uint8_t*>(batch.fields[0].values);
    for (int64_t row = 0; row < batch.row_count; ++row) {
      if (load_unaligned<int64_t>(row_counts + row * 8) == 0) continue;
      const auto end = load_unaligned<int64_t>(ends + row * 8);
      frame_ends_[row] = realign ? shape_.ceil(end) : end;
      grouped_.rows.push_back(static_cast<int32_t>(row));
    }
    grouped_.sort_by_frame(frame_ends_.data());
  }

  void take_partials(const PartialColumns& batch, bool with_partitions) {
    if (places) places->clear();
    if (accepted_count() == 0) {
      slots_.clear();
      return;
    }
    find_slots(batch.keys, with_partitions);
    tell_places(first_accepted_);
    for (const FrameGroup& group : grouped_.groups) {
      const uint32_t* slots = slots_.data() + (group.start - first_accepted_);
      if (is_running(group.frame)) {
        add_partial_group(*delta_, slots, 0, grouped_.rows_at(group.start), group.count, batch.fields);
        add_delta(group.frame);
      } else {
        add_partial_group(open_frame(group.frame), slots, 0, grouped_.rows_at(group.start), group.count, batch.fields);
      }
    }
  }

  int64_t first_accepted_ = 0;  // place of the first row of grouped_ that is not late
  KnownKeys known_keys_;
  std::vector<int64_t> frame_ends_;
};

}  // namespace jetfast
