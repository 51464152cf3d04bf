// First stage of two: partial results per key and frame, near the source. Judges nothing.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/keyed_frames.hpp"

namespace jetfast {

class FrameTable : public KeyedFrames {
 public:
  using KeyedFrames::KeyedFrames;

  void accumulate(const BatchColumns& batch) {
    if (has_due()) throw std::invalid_argument("take all partials that are due (until None) before more rows come in");
    taking_ = flushing_ = false;
    rows += batch.row_count;
    group_rows(batch.time, batch.row_count);
    if (places) places->clear();
    if (grouped_.count == 0) return;
    widen_values(batch.values);
    slots_.resize(static_cast<size_t>(grouped_.count));
    keys_.find_or_insert(batch.keys.data(), grouped_.rows_at(0), grouped_.count, slots_.data());
    for (const FrameGroup& group : grouped_.groups)
      add_rows(frame_at(group.frame), slots_.data() + group.start, grouped_.rows_at(group.start), group.count, true);
    tell_places(0);
  }

  // Frames that are there now and end at or before the watermark become due. A row that comes later for such a frame opens
  // it again, and it is due at the next watermark or flush.
  void advance(int64_t watermark) {
    due_ = std::max(due_, shape_.last_due(watermark));
    taking_ = true;
  }
  void flush() { taking_ = flushing_ = true; }
  bool has_due() const { return taking_ && !frames_.empty() && (flushing_ || frames_.begin()->first <= due_); }

  // The next partials, at most rows_max; no rows: nothing is due.
  Rows take_partials(int64_t rows_max) {
    std::vector<std::pair<const Frame*, uint32_t>> entries;
    std::vector<std::unique_ptr<Frame>> finished;
    while (has_due() && static_cast<int64_t>(entries.size()) < rows_max) {
      const Frame& frame = *frames_.begin()->second;
      while (cursor_ < frame.count && static_cast<int64_t>(entries.size()) < rows_max) entries.emplace_back(&frame, cursor_++);
      if (cursor_ < frame.count) break;
      finished.push_back(std::move(frames_.begin()->second));
      frames_.erase(frames_.begin());
      cursor_ = 0;
    }
    Rows result;
    if (!entries.empty()) result = partial_rows(entries);
    for (auto& frame : finished) retire(std::move(frame));
    free_slots();
    if (!has_due()) taking_ = flushing_ = false;
    return result;
  }

 private:
  int64_t due_ = kMinTime;
  bool taking_ = false;    // due frames have not all been taken
  bool flushing_ = false;  // every frame is due
  uint32_t cursor_ = 0;  // next entry of the first frame
};

}  // namespace jetfast
