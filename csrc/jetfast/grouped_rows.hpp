// The rows of a batch by the frames that their times lie in: by counting, or, where times lie far apart, by sorting.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/key_cells.hpp"
#include "jetfast/timestamps.hpp"

namespace jetfast {

// Rows of one frame: `count` places from `start` in the order of GroupedRows.
struct FrameGroup {
  int64_t frame;
  int64_t start, count;
};

// The rows of a batch by ascending frame, in their own order within each.
class GroupedRows {
 public:
  explicit GroupedRows(const WindowShape& shape) : shape_(shape), divider_(shape.slide) {}

  bool in_order = false;        // place = row: `rows` is not filled
  std::vector<int32_t> rows;    // by place
  std::vector<FrameGroup> groups;
  int64_t count = 0;

  const int32_t* rows_at(int64_t place) const { return in_order ? nullptr : rows.data() + place; }
  int32_t row_at(int64_t place) const { return in_order ? static_cast<int32_t>(place) : rows[place]; }
  const FrameDivider& divider() const { return divider_; }

  // Take the rows of a batch that have a time, not grouped yet. Returns the times in microseconds, until the next call.
  const int64_t* read_times(const ColumnView& time, int64_t row_count) {
    groups.clear();
    rows.clear();
    const int64_t* times = static_cast<const int64_t*>(time.values);
    bool all_valid = time.validity == nullptr && time.kind != Kind::null;
    if (time.kind == Kind::null) {
      in_order = false;
      count = 0;
      return nullptr;
    }
    if (time.kind != Kind::timestamp || time.unit != TimeUnit::micro || reinterpret_cast<uintptr_t>(times) % 8 != 0)
      times = convert_times(time, all_valid);
    else
      converts_.clear();
    in_order = all_valid;
    if (!all_valid) {
      for (int64_t row = 0; row < row_count; ++row)
        if (time.is_valid(row) && (converts_.empty() || converts_[row])) rows.push_back(static_cast<int32_t>(row));
      count = static_cast<int64_t>(rows.size());
    } else {
      count = row_count;
    }
    return times;
  }

  // Only rows for which keeps(row) stay, of those that are not grouped yet.
  template <typename Keeps>
  void filter(Keeps&& keeps) {
    sorted_rows_.clear();
    for (int64_t place = 0; place < count; ++place)
      if (keeps(row_at(place))) sorted_rows_.push_back(row_at(place));
    rows.swap(sorted_rows_);
    in_order = false;
    count = static_cast<int64_t>(rows.size());
  }

  // Group the rows that were taken by the frames of their times.
  void group_by_frame(const int64_t* times) {
    if (count == 0) return;
    int64_t least = kMaxTime, greatest = kMinTime;
    if (in_order) {
      find_span(times, count, &least, &greatest);
    } else {
      for (const int32_t row : rows) {
        least = std::min(least, times[row]);
        greatest = std::max(greatest, times[row]);
      }
    }
    // The base may lie below MIN_TIME: differences are taken modulo 2^64, where they are right unless the span is of that size.
    const uint64_t base = static_cast<uint64_t>(least) - static_cast<uint64_t>(shape_.past_boundary(least));
    const bool far_apart = (static_cast<uint64_t>(greatest) - static_cast<uint64_t>(least)) >> 62;
    const uint64_t last = far_apart ? ~uint64_t{0} : divider_.divide(static_cast<uint64_t>(greatest) - base);
    if (last == 0) {
      groups.push_back({shape_.frame_of(least), 0, count});
      return;
    }
    if (last < 4 * static_cast<uint64_t>(count) + 64) {  // counting sort
      numbers_.resize(static_cast<size_t>(count));
      uint32_t* numbers = numbers_.data();
      if (in_order && (static_cast<uint64_t>(greatest) - base) >> 52 == 0)
        number_frames(times, count, static_cast<int64_t>(base), divider_, numbers);
      else
        for (int64_t i = 0; i < count; ++i)
          numbers[i] = static_cast<uint32_t>(divider_.divide(static_cast<uint64_t>(times[row_at(i)]) - base));
      sorted_rows_.resize(static_cast<size_t>(count) + 1);  // one more: what is written last is not always kept
      if (last < 4 && in_order) {  // a pass for each frame, without branches and without waiting for counters
        int64_t place = 0;
        for (uint32_t number = 0; number <= last; ++number) {
          const int64_t start = place;
          for (int64_t row = 0; row < count; ++row) {
            sorted_rows_[place] = static_cast<int32_t>(row);
            place += numbers[row] == number;
          }
          if (place > start) groups.push_back({shape_.frame_of(times[sorted_rows_[start]]), start, place - start});
        }
        sorted_rows_.resize(static_cast<size_t>(count));
        rows.swap(sorted_rows_);
        in_order = false;
        return;
      }
      starts_.assign(static_cast<size_t>(last) + 2, 0);
      for (int64_t i = 0; i < count; ++i) ++starts_[numbers[i] + 1];
      for (uint64_t number = 0; number <= last; ++number) {
        const int64_t group_count = starts_[number + 1];
        starts_[number + 1] += starts_[number];
        if (group_count > 0) groups.push_back({0, starts_[number], group_count});
      }
      sorted_rows_.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) sorted_rows_[starts_[numbers_[i]]++] = row_at(i);
      for (FrameGroup& group : groups) group.frame = shape_.frame_of(times[sorted_rows_[group.start]]);
    } else {  // rows far apart
      sorted_rows_.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) sorted_rows_[i] = row_at(i);
      rows.swap(sorted_rows_);
      frame_ends_.resize(static_cast<size_t>(*std::max_element(rows.begin(), rows.end())) + 1);
      for (const int32_t row : rows) frame_ends_[row] = shape_.frame_of(times[row]);
      sort_by_frame(frame_ends_.data());
      return;
    }
    rows.swap(sorted_rows_);
    in_order = false;
  }

  // Group `rows`, which were listed, by ends[row].
  void sort_by_frame(const int64_t* ends) {
    const auto before = [ends](int32_t left, int32_t right) { return ends[left] < ends[right]; };
    if (!std::is_sorted(rows.begin(), rows.end(), before)) std::stable_sort(rows.begin(), rows.end(), before);
    groups.clear();
    in_order = false;
    count = static_cast<int64_t>(rows.size());
    for (int64_t place = 0; place < count; ++place) {
      const int64_t end = ends[rows[place]];
      if (groups.empty() || groups.back().frame != end) groups.push_back({end, place, 0});
      ++groups.back().count;
    }
  }

 private:
  // Microseconds of another unit; rows that do not fit int64 are marked in converts_.
  const int64_t* convert_times(const ColumnView& time, bool& all_valid) {
    const MicrosecondScale scale = microsecond_scale(time);
    times_.resize(static_cast<size_t>(time.row_count));
    converts_.clear();
    const auto* values = static_cast<const uint8_t*>(time.values);
    for (int64_t row = 0; row < time.row_count; ++row) {
      const int64_t value =
          time.width == 4 ? load_unaligned<int32_t>(values + row * 4) : load_unaligned<int64_t>(values + row * 8);
      if (scale.divisor != 1) {
        times_[row] = floor_divide(value, scale.divisor);
      } else if (value > kMaxTime / scale.multiplier || value < kMinTime / scale.multiplier) {
        if (converts_.empty()) converts_.assign(static_cast<size_t>(time.row_count), 1);
        converts_[row] = 0;
        all_valid = false;
        times_[row] = 0;
      } else {
        times_[row] = value * scale.multiplier;
      }
    }
    return times_.data();
  }

  WindowShape shape_;
  FrameDivider divider_;

  // scratch, kept between batches
  std::vector<uint32_t> numbers_;
  std::vector<int32_t> sorted_rows_;
  std::vector<int64_t> starts_, times_, frame_ends_;
  std::vector<uint8_t> converts_;
};

}  // namespace jetfast
