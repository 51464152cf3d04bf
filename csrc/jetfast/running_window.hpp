// The window that slides over the frames of a table: frames enter it and leave it, all at once or block by block.
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
#include <cstdint>
#include <iterator>
#include <memory>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/arena.hpp"
#include "jetfast/assertions.hpp"
#include "jetfast/exact_sums.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/slot_frames.hpp"

namespace jetfast {

class RunningWindow : public SlotFrames {
 protected:
  using SlotFrames::SlotFrames;

  bool is_running(int64_t frame) const { return frame <= emitted_; }

  // Between emissions: frames that no window needs are gone, the stacks meet in order, and the running window has as many rows
  // of each key as the frames that it holds.
  void check_running() const {
    JETFAST_INVARIANT(entering_ == nullptr);
    JETFAST_INVARIANT(front_end_ <= emitted_);
    JETFAST_INVARIANT(middle_end_ == kMinTime || (front_end_ <= middle_end_ && middle_end_ <= emitted_));
    if (!frames_.empty()) JETFAST_INVARIANT(shape_.last_window_of_frame(frames_.begin()->first) > emitted_);
    check_frame(*running_);
    std::vector<uint64_t> rows_of_slot(keys_.slot_limit(), 0);
    const auto add = [&](const Frame& frame) {
      each_entry(frame, [&](uint32_t entry, uint32_t slot) { rows_of_slot[slot] += frame.rows()[entry]; });
    };
    for (const auto& [end, frame] : frames_)
      if (shape_.frames() > 1 && is_running(end)) add(*frame);
    if (leaving_ != nullptr) add(*leaving_);
    for (uint32_t slot = 0; slot < running_->count; ++slot)
      JETFAST_INVARIANT(leaving_ != nullptr || running_->rows()[slot] == rows_of_slot[slot]);
    for (uint32_t slot = running_->count; slot < rows_of_slot.size(); ++slot) JETFAST_INVARIANT(rows_of_slot[slot] == 0);
  }

  // What is in delta_ belongs to a frame that the running window holds: it enters both.
  void add_delta(int64_t end) {
    JETFAST_CHECK(is_running(end));
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

 private:
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

  bool has_running() const { return !frames_.empty() && is_running(frames_.begin()->first); }

  // A running window that is larger than the caches is read from memory once a slide: block by block the frame before the
  // window leaves, its last frame enters, and the results are written.
  bool slides_by_block() const { return all_deducted_ && running_->count >= far_slots_; }

  void read_block(int64_t start) const {
    const int64_t count = std::min<int64_t>(kBlockSlots, running_->count - start);
    for (size_t field = 0; field < fields_.size(); ++field)
      for (const Block* states : {&running_->states[field], &running_->after[field]})
        if (*states) read_lines(states->get() + start * fields_[field].width, count * fields_[field].width);
  }

 protected:
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

  // The next window that is due and holds rows; false when there is none. Gaps cost nothing.
  bool next_window(int64_t& end) const {
    const auto next = frames_.upper_bound(emitted_);
    if (has_running()) end = saturating_add(emitted_, shape_.slide);
    else if (next != frames_.end()) end = next->first;
    else return false;
    return end <= due_;
  }

  void finish_emission() {
    JETFAST_CHECK(window_ == nullptr);
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
    JETFAST_CHECK(end > emitted_ && end <= due_);
    JETFAST_CHECK(window_ == nullptr);
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
    JETFAST_CHECK(window_ != nullptr);
    slide_to(window_->count);
    JETFAST_CHECK(window_end_ > emitted_);
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

  int64_t due_ = kMinTime;
  bool emitting_ = false;
  const Frame* window_ = nullptr;  // being emitted: the running window, or the frame if size = slide
  int64_t window_end_ = kMinTime;
  uint32_t cursor_ = 0;  // entries of window_ that are emitted, or of those that are chosen
  int64_t greatest_bound_ = kMinTime;

 private:
  int64_t front_end_ = kMinTime, middle_end_ = kMinTime, built_from_ = kMinTime;
  bool any_built_ = false;
  int64_t back_frames_ = 0;    // that entered since the back was empty
  Frame* entering_ = nullptr;  // in the window, but not yet in the running one from slid_ on
  int64_t slid_ = 0;           // slots
};

}  // namespace jetfast
