// Windowed aggregation by key: rows enter frames, frames enter and leave a running window, windows are emitted by a watermark.
//
// Invariants, with B = `emitted_`, the last window end that counts as emitted:
//   a frame f is kept while last_window_of_frame(f) > B or it has not been due yet;
//   the running window holds exactly the frames f <= B that are kept (nothing, if size = slide);
//   fields that are deducted are sums over those frames in `running_.states` (float sums together with `running_.after`, see
//   exact_sums.hpp); the others are two stacks over them, of which the older is ready before it is needed:
//     front: frames up to `front_end_`. Each entry remembers in `after` what the newer front frames of its key amount to.
//     middle: frames from there up to `middle_end_`, none if that is kMinTime. `middle_.states` is all of them. They become
//       the next front: with each window the newest that is not built yet learns its `after`, and `middle_.after` is what the
//       built ones amount to, those from `built_from_` on.
//     back: later frames. `running_.states` is all of them.
//   `running_.after` is front and middle together. So when the oldest frame leaves, that is for each of its keys the entry's
//   `after` combined with the middle. Either way a float sum is `after` + `states`.
//
// Two stacks alone (as for queues; Tangwongsan, Hirzel, Schneider 2017) build a front of all frames at once when the old one
// is used up: a pause of 60 ms for the least value of 1M keys. In between frames are built one a window, each once as well.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/arena.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/gather.hpp"
#include "jetfast/key_index.hpp"
#include "jetfast/keyed_results.hpp"
#include "jetfast/known_keys.hpp"
#include "jetfast/slot_frames.hpp"
#include "jetfast/top_selection.hpp"
#include "jetfast/window_rows.hpp"

namespace jetfast {

class WindowTable : public SlotFrames {
 public:
  WindowTable(const TableSpec& spec, Arena& arena) : SlotFrames(spec, arena) {}

  bool is_emitting() const override { return emitting_; }

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

  // From now on only the best results of each window are emitted; the others are never made.
  void keep_top(TopSpec spec) {
    top_column_ = aggregates_.at(static_cast<size_t>(spec.aggregate)).column;
    top_ = std::make_unique<TopSelection>(std::move(spec), keys_, arena_);
  }

  Rows emit(int64_t rows_max) override {
    Rows result;
    if (!emitting_ || rows_max <= 0) return result;
    if (top_ != nullptr) return emit_top(rows_max);
    ResultRows out;
    while (out.count < rows_max) {
      if (window_ == nullptr && !open_window()) break;
      if (out.count == 0 && emit_piece(rows_max, result)) {
        if (result.row_count == 0) continue;
        int64_t end;
        if (window_ == nullptr && !next_window(end)) finish_emission();  // nobody needs to ask once more
        break;
      }
      if (out.columns.empty()) rows_max = allocate_results(out, rows_max);
      write_window(out, rows_max - out.count);
      if (cursor_ == window_->count) close_window();
    }
    if (out.count > 0) result = finish_window_results(out);
    collect_keys();
    return result;
  }

  // The keys of whole blocks that are kept for the next results count as keys.
  MemoryUse memory() const {
    MemoryUse use = SlotFrames::memory();
    for (const KeptKeys& kept : kept_keys_)
      for (const Column& column : kept.columns) use.key_bytes += column_bytes(column.view);
    return use;
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
    sorted_rows_.clear();
    const auto* ends = static_cast<const uint8_t*>(batch.frame.values);
    const auto* row_counts = static_cast<const uint8_t*>(batch.fields[0].values);
    for (int64_t row = 0; row < batch.row_count; ++row) {
      if (load_unaligned<int64_t>(row_counts + row * 8) == 0) continue;
      const auto end = load_unaligned<int64_t>(ends + row * 8);
      frame_ends_[row] = realign ? shape_.ceil(end) : end;
      sorted_rows_.push_back(static_cast<int32_t>(row));
    }
    grouped_.groups.clear();
    grouped_.rows.clear();
    sort_by_frame(frame_ends_.data());
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

  // ---- sliding

  // What is in delta_ belongs to a frame that the running window holds: it enters both.
  void add_delta(int64_t end) {
    Frame& frame = open_frame(end);
    const int64_t count = delta_->count;
    const uint32_t* slots = delta_->slots.data();
    cover(*running_);
    if (has_middle()) cover(*middle_);
    const uint32_t old_count = frame.count;
    const uint32_t* entries = entries_in(frame, slots, count);
    const bool in_front = end <= front_end_, in_middle = !in_front && has_middle() && end <= middle_end_;
    bool exact = true;
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!delta_->states[field]) continue;
      if (deducts(fields_[field]) && fields_[field].kind == FieldKind::sum_double) {  // the old sum leaves, the new one enters
        auto* sums = reinterpret_cast<double*>(frame.state(field));
        const auto* more = reinterpret_cast<const double*>(delta_->state(field));
        uint64_t lost = 0;
        for (int64_t i = 0; i < count; ++i) {
          double& high = running_sums(field)[slots[i]];
          double& low = running_low(field)[slots[i]];
          lost |= add_exactly(high, low, -sums[entries[i]]);
          sums[entries[i]] += more[i];
          lost |= add_exactly(high, low, sums[entries[i]]);
        }
        exact = exact && lost == 0;
        continue;
      }
      if (fields_[field].kind == FieldKind::nulls) {
        need_nulls(frame, field);
        need_nulls(*running_, field);
      }
      combine_states(fields_[field], frame.state(field), entries, delta_->state(field), nullptr, count);
      if (deducts(fields_[field]) || !(in_front || in_middle))
        combine_states(fields_[field], running_->state(field), slots, delta_->state(field), nullptr, count);
      else if (in_middle)
        for (uint8_t* whole : {running_->after[field].get(), middle_->state(field)})
          combine_states(fields_[field], whole, slots, delta_->state(field), nullptr, count);
    }
    if (!exact) {
      stack_sums();
    } else if ((in_front || (in_middle && is_built(end))) && !all_deducted_) {
      need_stack(frame);
      std::vector<uint32_t> changed;
      for (int64_t i = 0; i < count; ++i)
        if (!frame.dense || slots[i] < old_count) changed.push_back(slots[i]);
      if (frame.dense)  // entries that are new here know nothing of the newer frames yet
        for (uint32_t slot = old_count; slot < frame.count; ++slot) changed.push_back(slot);
      restack(changed, in_front);
    }
    clear(*delta_);
  }

  double* running_sums(size_t field) { return reinterpret_cast<double*>(running_->state(field)); }
  double* running_low(size_t field) { return reinterpret_cast<double*>(running_->after[field].get()); }

  // Room for what newer frames amount to.
  void need_stack(Frame& frame) {
    for (size_t field = 0; field < fields_.size(); ++field)
      if (!deducts(fields_[field]) && !frame.after[field])
        frame.after[field] = arena_.allocate(int64_t{frame.capacity} * fields_[field].width);
  }

  // Build the front, or what is built of the middle, of some keys anew.
  void restack(const std::vector<uint32_t>& slots, bool in_front) {
    Frame& top = in_front ? *running_ : *middle_;
    for (size_t field = 0; field < fields_.size(); ++field)
      if (!deducts(fields_[field]))
        for (const uint32_t slot : slots) fill_identity(fields_[field], top.after[field].get(), slot, int64_t{slot} + 1);
    std::vector<uint32_t> chosen, frame_entries;
    for (auto item = frames_.upper_bound(in_front ? front_end_ : middle_end_); item != frames_.begin();) {
      --item;
      if (!in_front && !is_built(item->first)) break;
      Frame& frame = *item->second;
      if (!frame.dense) need_index(frame);
      chosen.clear();
      frame_entries.clear();
      for (const uint32_t slot : slots) {
        const uint32_t entry = frame.find(slot);
        if (entry == kNoEntry) continue;
        chosen.push_back(slot);
        frame_entries.push_back(entry);
      }
      if (!frame_entries.empty())
        stack_frame(frame, top, chosen.data(), frame_entries.data(), static_cast<int64_t>(frame_entries.size()));
    }
    if (!in_front || !has_middle()) return;
    for (size_t field = 0; field < fields_.size(); ++field)
      if (!deducts(fields_[field]))
        for (const uint32_t slot : slots) {
          uint8_t* after = running_->after[field].get() + int64_t{slot} * fields_[field].width;
          merge_states(fields_[field], after, middle_->state(field) + int64_t{slot} * fields_[field].width, nullptr, 1, after);
        }
  }

  // Entries of a frame remember what `top.after` amounts to, and join it.
  void stack_frame(Frame& frame, Frame& top, const uint32_t* slots, const uint32_t* entries, int64_t count) {
    for (size_t field = 0; field < fields_.size(); ++field)
      if (!deducts(fields_[field]))
        stack_states(fields_[field], top.after[field].get(), slots, frame.state(field), frame.after[field].get(), entries, count,
                     is_far());
  }

  bool has_middle() const { return middle_end_ != kMinTime; }

  // Of a frame of the middle.
  bool is_built(int64_t end) const { return any_built_ && end >= built_from_; }

  // The back becomes the middle, of which nothing is built. There is none, and the back holds frames.
  void turn_back() {
    if (!middle_) {
      middle_ = new_frame();
      drop_index(*middle_);
      middle_->dense = true;
    }
    for (size_t field = 0; field < fields_.size(); ++field) {
      const int64_t bytes = int64_t{middle_->capacity} * fields_[field].width;
      if (deducts(fields_[field])) middle_->states[field].reset();
      else if (!middle_->states[field]) middle_->states[field] = arena_.allocate(bytes);
    }
    need_stack(*middle_);
    cover(*running_);
    cover(*middle_);
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (deducts(fields_[field])) continue;
      const int64_t count = running_->count;
      copy_states(fields_[field].width, middle_->state(field), nullptr, running_->state(field), nullptr, count);
      combine_states(fields_[field], running_->after[field].get(), nullptr, middle_->state(field), nullptr, count);
      fill_identity(fields_[field], running_->state(field), 0, count);
      fill_identity(fields_[field], middle_->after[field].get(), 0, count);
    }
    middle_end_ = std::prev(frames_.upper_bound(window_ != nullptr ? window_end_ : emitted_))->first;
    back_frames_ = 0;
    any_built_ = false;
  }

  // The newest frame of the middle that is not built learns its `after`. False if there is none.
  bool build_middle() {
    auto item = any_built_ ? frames_.lower_bound(built_from_) : frames_.upper_bound(middle_end_);
    if (item == frames_.begin() || (--item)->first <= front_end_) return false;
    Frame& frame = *item->second;
    need_stack(frame);
    cover(*middle_);
    stack_frame(frame, *middle_, slots_or_all(frame), nullptr, frame.count);
    built_from_ = frame.end;
    return any_built_ = true;
  }

  // The front is used up: the middle takes its place, and the back becomes the middle if it is long enough.
  void turn_front() {
    if (!has_middle()) turn_back();
    while (build_middle()) {}
    front_end_ = middle_end_;
    middle_end_ = kMinTime;  // running_.after is the front now
    turn_back_early();
  }

  // Short windows do without a middle until their front is used up.
  void turn_back_early() {
    if (!has_middle() && shape_.frames() >= 16 && back_frames_ >= shape_.frames() / 2) turn_back();
  }

  // All frames up to emitted_ become the front.
  void stack_all() {
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (deducts(fields_[field])) continue;
      fill_identity(fields_[field], running_->after[field].get(), 0, running_->count);
      fill_identity(fields_[field], running_->state(field), 0, running_->count);
    }
    front_end_ = emitted_;
    middle_end_ = kMinTime;
    back_frames_ = 0;
    for (auto item = frames_.upper_bound(emitted_); item != frames_.begin();) {
      --item;
      Frame& frame = *item->second;
      need_stack(frame);
      stack_frame(frame, *running_, slots_or_all(frame), nullptr, frame.count);
    }
  }

  // A float sum could not be kept exactly: from now on these fields are stacks, too. All start as the front.
  void stack_sums() {
    sums_are_exact_ = all_deducted_ = false;
    for (auto& item : frames_) merge_entries(*item.second);
    const int64_t emitted = emitted_;
    if (window_ != nullptr) emitted_ = window_end_;  // the frame that has just entered
    stack_all();
    emitted_ = emitted;
  }

  static const uint32_t* slots_or_all(const Frame& frame) { return frame.dense ? nullptr : frame.slots.data(); }

  bool is_far() const { return int64_t{running_->count} * 8 > static_cast<int64_t>(kPrefetchBytes); }

  // Part of a frame enters the running window, or leaves those of its fields that are deducted. False if a sum was not exact.
  template <bool deduct>
  bool slide(const Frame& frame, const FramePart& part, bool far) {
    bool exact = true;
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!frame.states[field] || (deduct && !deducts(fields_[field]))) continue;
      const int32_t width = fields_[field].width;
      const uint8_t* source = frame.state(field) + part.start * width;
      uint8_t* target = running_->state(field) + part.first_slot * width;
      if (deducts(fields_[field]) && fields_[field].kind == FieldKind::sum_double)
        exact &= slide_sums<deduct>(running_sums(field) + part.first_slot, running_low(field) + part.first_slot, part.slots,
                                    reinterpret_cast<const double*>(source), part.count, far);
      else if (deduct)
        deduct_states(fields_[field], target, part.slots, source, part.count, far);
      else
        combine_states(fields_[field], target, part.slots, source, nullptr, part.count, far);
    }
    return exact;
  }

  // A frame becomes part of the running window: at once, or block by block (slide_to).
  void enter_running(Frame& frame) {
    cover(*running_);
    drop_index(frame);
    const int64_t rows = frame.unsettled_rows;
    unsettle(frame);
    if (slides_by_block()) {
      order_by_block(frame);
      judge_log(frame, rows);
      entering_ = &frame;
    }
    for (size_t field = 0; field < fields_.size(); ++field)
      if (fields_[field].kind == FieldKind::nulls && frame.states[field]) need_nulls(*running_, field);
    if (entering_ != nullptr) return;
    if (!slide<false>(frame, whole_of(frame), is_far())) return stack_sums();
    if (all_deducted_) return;
    ++back_frames_;
    if (has_middle()) build_middle();
    turn_back_early();
  }

  // The oldest frame leaves the running window. Returns false if stack_sums must follow.
  bool leave(const Frame& frame) {
    if (!all_deducted_ && frame.end > front_end_) turn_front();
    if (has_middle()) cover(*middle_);
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!frame.states[field] || deducts(fields_[field])) continue;
      if (has_middle())
        merge_states(fields_[field], frame.after[field].get(), middle_->state(field), slots_or_all(frame), frame.count,
                     running_->after[field].get(), is_far());
      else
        copy_states(fields_[field].width, running_->after[field].get(), slots_or_all(frame), frame.after[field].get(), nullptr,
                    frame.count);
    }
    return slide<true>(frame, whole_of(frame), is_far());
  }

  // A running window that is larger than the caches is read from memory once a slide: block by block the frame before the
  // window leaves, its last frame enters, and the results are written.
  bool slides_by_block() const { return all_deducted_ && running_->count >= far_slots_; }

  void read_block(int64_t start) const {
    const int64_t count = std::min<int64_t>(kBlockSlots, running_->count - start);
    for (size_t field = 0; field < fields_.size(); ++field)
      for (const Block* states : {&running_->states[field], &running_->after[field]})
        if (*states) read_lines(states->get() + start * fields_[field].width, count * fields_[field].width);
  }

  // Bring the running window up to date for slots below `end`.
  void slide_to(int64_t end) {
    if (leaving_ == nullptr && entering_ == nullptr) return;
    bool exact = true;
    while (slid_ < std::min<int64_t>(end, running_->count)) {
      const size_t block = static_cast<size_t>(slid_ / kBlockSlots);
      read_block(slid_);
      if (leaving_ != nullptr) exact &= slide<true>(*leaving_, block_of(*leaving_, block), false);
      if (entering_ != nullptr) exact &= slide<false>(*entering_, block_of(*entering_, block), false);
      slid_ += kBlockSlots;
      if (!exact) end = running_->count;
    }
    if (slid_ < running_->count) return;
    if (leaving_ != nullptr) recycle(std::move(leaving_));
    entering_ = nullptr;
    if (!exact) stack_sums();
  }

  bool has_running() const { return !frames_.empty() && is_running(frames_.begin()->first); }

  // The next window that is due and holds rows; false when there is none. Gaps cost nothing.
  bool next_window(int64_t& end) const {
    const auto next = frames_.upper_bound(emitted_);
    if (has_running()) end = saturating_add(emitted_, shape_.slide);
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
      drop_index(*next->second);
      unsettle(*next->second);
    } else {
      window_ = running_.get();
      slid_ = 0;
      if (has_frame) enter_running(*next->second);
    }
    return true;
  }

  void close_window() {
    slide_to(window_->count);
    emitted_ = window_end_;
    window_ = nullptr;
    while (!frames_.empty()) {
      const auto first = frames_.begin();
      if (first->first > emitted_ || shape_.last_window_of_frame(first->first) > emitted_) break;
      Frame& frame = *first->second;
      const bool last = std::next(first) == frames_.end() || !is_running(std::next(first)->first);
      if (shape_.frames() > 1 && slides_by_block() && leaving_ == nullptr && !last) {
        order_by_block(frame);
        leaving_ = std::move(first->second);
        frames_.erase(first);
        continue;
      }
      const bool exact = shape_.frames() == 1 || leave(frame);
      std::unique_ptr<Frame> left = std::move(first->second);
      frames_.erase(first);
      recycle(std::move(left));
      if (!exact) stack_sums();
    }
    if (!has_running()) {
      front_end_ = middle_end_ = kMinTime;
      back_frames_ = 0;
    }
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

  // A batch of its own for a long piece of one window by slot: its time columns are shared, and while its slots have rows
  // without a gap, its key columns too. No longer than a block, so that results and the fields behind them stay in the
  // second-level cache. False if the next results are not of that kind.
  bool emit_piece(int64_t rows_max, Rows& result) {
    if (int64_t{window_->count} - cursor_ < kWriteRows || !window_->dense || !bounds_.empty()) return false;
    ResultRows out;
    out.first_slot = cursor_;
    out.capacity = std::min({rows_max, int64_t{kBlockSlots - cursor_ % kBlockSlots}, int64_t{window_->count} - cursor_});
    slide_to(cursor_ + out.capacity);
    const int64_t gaps = zeros_among(window_->rows() + cursor_, out.capacity);
    if (gaps > 0 && gaps <= kFewGaps) out.capacity = first_zero(window_->rows() + cursor_, out.capacity);
    const bool in_row = gaps == 0 || (gaps <= kFewGaps && out.capacity >= kShortRow);
    if (in_row) cursor_ += static_cast<uint32_t>(out.capacity);
    else out.capacity = list_slots(std::min<int64_t>(rows_max, gaps <= kFewGaps ? kWriteRows : kBlockSlots), out.slots);
    if (out.capacity < kWriteRows && out.first_slot == 0) {  // a window of few keys: it may share its batch with others
      cursor_ = 0;
      return false;
    }
    if (out.capacity > 0) {
      const int64_t count = out.capacity;
      out.columns.push_back(constant_times(0, saturating_add(window_end_, -shape_.size), count));
      out.columns.push_back(constant_times(1, window_end_, count));
      for (const AggregateSpec& aggregate : aggregates_)
        out.columns.push_back(allocate_fixed(arena_, aggregate.result_type, count, may_be_null(aggregate, *window_)));
      for (int64_t written = 0; written < count; written += kWriteRows)
        write_fields(out, in_row ? nullptr : out.slots.data() + written,
                     in_row ? out.first_slot + static_cast<uint32_t>(written) : 0, std::min(kWriteRows, count - written));
      result = in_row ? finish_results_with(out, keys_in_row(out.first_slot, count)) : finish_results(out);
    }
    if (cursor_ == window_->count) close_window();
    return true;
  }

  // The next slots of the (dense) window that have rows, up to slots_max, from cursor_ on, which moves behind them.
  int64_t list_slots(int64_t slots_max, std::vector<uint32_t>& slots) {
    int64_t listed = 0;
    while (listed < slots_max && cursor_ < window_->count) {
      const int64_t count = std::min({kWriteRows, slots_max - listed, int64_t{window_->count} - cursor_});
      slide_to(cursor_ + count);
      slots.resize(static_cast<size_t>(listed + count));
      listed += list_present(window_->rows() + cursor_, cursor_, count, slots.data() + listed);
      cursor_ += static_cast<uint32_t>(count);
    }
    slots.resize(static_cast<size_t>(listed));
    return listed;
  }

  // `count` times of one value; which: 0 starts, 1 ends.
  Column constant_times(int which, int64_t time, int64_t count) {
    Column& column = constant_times_[which];
    if (column.view.values == nullptr || column.view.row_count < count ||
        static_cast<const int64_t*>(column.view.values)[0] != time) {
      column = allocate_fixed(arena_, fixed_type(Kind::timestamp, 8), count);
      std::fill_n(column.mutable_values<int64_t>(), count, time);
    }
    Column result = column;
    result.view.row_count = count;
    return result;
  }

  Rows emit_top(int64_t rows_max) {
    Rows result;
    ResultRows out;
    while (out.count < rows_max) {
      if (window_ == nullptr) {
        if (!open_window()) break;
        select_top();
      }
      const auto left = static_cast<int64_t>(selected_.size()) - cursor_;
      if (out.columns.empty() && left > 0) {
        rows_max = out.capacity = std::min(rows_max, std::max(left, kTopRows));
        allocate_columns(out);
      }
      const int64_t count = std::min({left, rows_max - out.count, kWriteRows});
      const uint32_t* entries = selected_.data() + cursor_;
      for (int64_t i = 0; i < count; ++i) out.slots.push_back(window_->slot_of(entries[i]));
      if (count > 0) write_entries(out, entries, 0, count);
      cursor_ += static_cast<uint32_t>(count);
      if (cursor_ == selected_.size()) close_window();
    }
    if (out.count > 0) result = finish_results(out);
    collect_keys();
    return result;
  }

  // selected_ = the entries of the window that are emitted.
  void select_top() {
    const auto index = static_cast<size_t>(top_->spec().aggregate);
    const AggregateSpec& aggregate = aggregates_[index];
    ResultRows by;  // as far as writing one aggregate needs it
    by.columns.resize(2 + aggregates_.size());
    by.columns[0] = constant_times(0, saturating_add(window_end_, -shape_.size), kWriteRows);
    by.columns[1] = constant_times(1, window_end_, kWriteRows);
    by.columns[2 + index] = allocate_fixed(arena_, aggregate.result_type, kWriteRows, true);  // a key without rows has null
    const bool nulls = may_be_null(aggregate, *window_);
    top_->begin();
    for (int64_t start = 0; start < window_->count; start += kWriteRows) {
      const int64_t count = std::min(kWriteRows, window_->count - start);
      const auto first = static_cast<uint32_t>(start);
      slide_to(start + count);
      Column& column = by.columns[2 + index];
      ColumnView values = column.view;
      if (aggregate.kind == AggregateKind::count) {
        values.values = window_->rows() + start;
        values.row_count = count;
      } else {
        const bool nullable = nulls || zeros_among(window_->rows() + start, count) > 0;
        if (nullable) std::memset(column.mutable_validity(), 0xff, static_cast<size_t>(bitmap_bytes(kWriteRows)));
        by.first_slot = first;
        if (!window_->dense) by.slots.assign(window_->slots.begin() + start, window_->slots.begin() + start + count);
        load_states(nullptr, first, count, top_column_);
        write_aggregate(index, by, states_, count);
        values = column.view;
        values.row_count = count;
        if (!nullable) values.validity = nullptr;
        settle_nulls(values);
      }
      top_->offer(values, first, [&](uint32_t entry) { return window_->slot_of(entry); },
                  [&](uint32_t entry) { return is_result(entry); });
    }
    selected_ = top_->finish();
  }

  // Has an entry of the window rows, and its key not had its result before a restore?
  bool is_result(uint32_t entry) const {
    if (window_->rows()[entry] == 0) return false;
    if (bounds_.empty()) return true;
    return window_end_ > shape_.last_due(bounds_[static_cast<size_t>(partition_of_slot_[window_->slot_of(entry)])]);
  }

  // Up to `room` results of the window from cursor_ on.
  void write_window(ResultRows& out, int64_t room) {
    const uint32_t start = cursor_;
    const int64_t count = std::min<int64_t>(room, window_->count - start);
    cursor_ += static_cast<uint32_t>(count);
    slide_to(cursor_);
    if (bounds_.empty() && (!window_->dense || zeros_among(window_->rows() + start, count) == 0)) {
      piece_start_ = out.count == 0 && window_->dense ? start : kNoEntry;
      for (int64_t written = 0; written < count; written += kWriteRows) {
        const int64_t part = std::min(kWriteRows, count - written);
        const uint32_t first = start + static_cast<uint32_t>(written);
        for (int64_t i = 0; i < part; ++i) out.slots.push_back(window_->slot_of(first + static_cast<uint32_t>(i)));
        write_entries(out, nullptr, first, part);
      }
      return;
    }
    piece_start_ = kNoEntry;
    for (int64_t place = 0; place < count;) {
      chosen_.clear();
      for (; place < count && static_cast<int64_t>(chosen_.size()) < kWriteRows; ++place) {
        const uint32_t entry = start + static_cast<uint32_t>(place);
        if (!is_result(entry)) continue;
        chosen_.push_back(entry);
        out.slots.push_back(window_->slot_of(entry));
      }
      if (!chosen_.empty()) write_entries(out, chosen_.data(), 0, static_cast<int64_t>(chosen_.size()));
    }
  }

  // `count` results, whose slots are there: entries from `start` on, or those of a list.
  void write_entries(ResultRows& out, const uint32_t* entries, uint32_t start, int64_t count) {
    std::fill_n(out.starts() + out.count, count, saturating_add(window_end_, -shape_.size));
    std::fill_n(out.ends() + out.count, count, window_end_);
    write_fields(out, entries, start, count);
  }

  void write_fields(ResultRows& out, const uint32_t* entries, uint32_t start, int64_t count) {
    load_states(entries, start, count, kAllColumns);
    write_aggregates(out, states_, count);
  }

  // states_ = the fields of `count` entries as plain arrays; of one value column, or of all.
  void load_states(const uint32_t* entries, uint32_t start, int64_t count, int column) {
    const Frame& window = *window_;
    std::vector<const uint8_t*>& states = states_;
    states.assign(fields_.size(), nullptr);
    if (merged_.size() < fields_.size()) merged_.resize(fields_.size());
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!window.states[field]) continue;
      if (column != kAllColumns && fields_[field].column >= 0 && fields_[field].column != column) continue;
      const int32_t width = fields_[field].width;
      const bool merges = !fields_[field].exact && shape_.frames() > 1;
      const uint8_t* own = window.state(field) + int64_t{start} * width;
      const uint8_t* after = merges ? window.after[field].get() + int64_t{start} * width : nullptr;
      const size_t words = static_cast<size_t>(count * width / 8);
      if (entries != nullptr) {
        gathered_.resize(2 * words);
        auto* gathered = reinterpret_cast<uint8_t*>(gathered_.data());
        if (merges) {
          copy_states(width, gathered + words * 8, nullptr, after, entries, count);
          after = gathered + words * 8;
        } else {
          merged_[field].resize(words);
          gathered = reinterpret_cast<uint8_t*>(merged_[field].data());
        }
        copy_states(width, gathered, nullptr, own, entries, count);
        own = gathered;
      }
      states[field] = own;
      if (merges) {
        merged_[field].resize(words);
        states[field] = reinterpret_cast<uint8_t*>(merged_[field].data());
        if (fields_[field].kind == FieldKind::sum_double)
          add_pairs(reinterpret_cast<const double*>(after), reinterpret_cast<const double*>(own), count,
                    reinterpret_cast<double*>(merged_[field].data()));
        else
          merge_states(fields_[field], after, own, nullptr, count, reinterpret_cast<uint8_t*>(merged_[field].data()));
      }
    }
  }

  Rows finish_window_results(ResultRows& out) {
    if (piece_start_ == kNoEntry) return finish_results(out);
    return finish_results_with(out, keys_in_row(piece_start_, out.count));
  }

  // Key columns of `count` slots from `start` on, all of which have rows. Those of whole blocks are kept: most windows have
  // the same keys as the one before.
  std::vector<Column> keys_in_row(uint32_t start, int64_t count) {
    const size_t block = start / kBlockSlots;
    const uint32_t first = static_cast<uint32_t>(block) * kBlockSlots;
    const uint32_t end = std::min(first + kBlockSlots, keys_.slot_limit());
    if (start + count > end || !keys_.is_full(block)) return keys_of_slots(start, count);
    if (kept_keys_.size() <= block) kept_keys_.resize(block + 1);
    KeptKeys& kept = kept_keys_[block];
    if (kept.count < start + count - first || kept.releases != keys_.releases())
      kept = {end - first, keys_.releases(), keys_of_slots(first, end - first)};
    std::vector<Column> columns;
    for (const Column& column : kept.columns) columns.push_back(slice_column(column, start - first, count));
    return columns;
  }

  std::vector<Column> keys_of_slots(uint32_t start, int64_t count) {
    chosen_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) chosen_[static_cast<size_t>(i)] = start + static_cast<uint32_t>(i);
    return keys_.keys_of(chosen_.data(), count, arena_);
  }

  struct KeptKeys {
    int64_t count = 0;
    uint64_t releases = 0;
    std::vector<Column> columns;
  };

  static constexpr int64_t kWriteRows = 2048;  // the fields of so many keys fit the first-level cache
  static constexpr int64_t kFewGaps = 4;       // in a block
  static constexpr int64_t kShortRow = 256;    // of slots without a gap, for a batch of its own
  static constexpr int64_t kTopRows = 1024;    // room for the results of several windows
  static constexpr int kAllColumns = -2;

  int64_t front_end_ = kMinTime, middle_end_ = kMinTime, built_from_ = kMinTime;
  bool any_built_ = false;
  int64_t back_frames_ = 0;  // that entered since the back was empty
  int64_t due_ = kMinTime;
  bool emitting_ = false;
  const Frame* window_ = nullptr;  // being emitted: the running window, or the frame if size = slide
  int64_t window_end_ = kMinTime;
  Frame* entering_ = nullptr;       // in the window, but not yet in the running one from slid_ on
  int64_t slid_ = 0;                // slots
  uint32_t cursor_ = 0;
  int64_t first_accepted_ = 0;  // place of the first row of grouped_ that is not late
  int64_t greatest_bound_ = kMinTime;
  uint32_t piece_start_ = kNoEntry;  // first slot of results that are slots in a row
  KnownKeys known_keys_;
  std::vector<KeptKeys> kept_keys_;  // by block
  Column constant_times_[2];
  std::unique_ptr<TopSelection> top_;  // if only the best results are emitted
  int top_column_ = -1;                // the value column of what they are compared by
  std::vector<uint32_t> selected_;     // entries of window_, if there is top_
  std::vector<uint32_t> chosen_;
  std::vector<const uint8_t*> states_;
  std::vector<std::vector<uint64_t>> merged_;
  std::vector<uint64_t> gathered_;
};

}  // namespace jetfast
