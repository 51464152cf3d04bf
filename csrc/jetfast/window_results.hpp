// What a window table emits: results of the window that is open, as rows, as pieces by slot, or the best ones alone.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/key_index.hpp"
#include "jetfast/keyed_results.hpp"
#include "jetfast/running_window.hpp"
#include "jetfast/top_selection.hpp"
#include "jetfast/window_rows.hpp"

namespace jetfast {

class WindowResults : public RunningWindow {
 public:
  using RunningWindow::RunningWindow;

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

 private:
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

  uint32_t piece_start_ = kNoEntry;  // first slot of results that are slots in a row
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
