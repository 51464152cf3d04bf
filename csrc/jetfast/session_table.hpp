// Session windows by key: a row covers [time, time + timeout], rows that overlap or touch share a session, and a session is
// emitted once the watermark has passed its end.
//
// Invariants:
//   sessions of one key are linked by ascending time, and more than `timeout` lies between one's last row and the next's first;
//   every open session has a timer at or before its end, and session.timer is that timer's time. Rows do not move timers: one
//   that goes off too early is set again to the session's end, so a session costs one timer per `timeout` of its length;
//   a row that joins two sessions makes the newer one dead; its fields enter the older one after the values of the batch, and
//   only then is its entry free for another session.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jetfast/assertions.hpp"
#include "jetfast/keyed_results.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/timestamps.hpp"

namespace jetfast {

// Saved sessions: one row each.
struct SessionColumns {
  int64_t row_count = 0;
  std::vector<ColumnView> keys;
  ColumnView first, last;          // int64, no nulls
  std::vector<ColumnView> fields;  // fixed, no nulls
};

class SessionTable : public KeyedResults {
 public:
  SessionTable(TableSpec spec, int64_t timeout, Arena& arena)
      : KeyedResults(std::move(spec), arena), timeout_(timeout), granule_(std::max<int64_t>(timeout / 16, 1)), pool_(new_frame()) {
    if (timeout < 1) throw std::invalid_argument("the timeout of a session must be positive");
    merged_.resize(fields_.size());
  }

  // Rows in, judged by the last watermark: late is a row with a time below it.
  void accumulate(const BatchColumns& batch, LateRows* late) override {
    check_not_emitting();
    rows += batch.row_count;
    const int64_t* times = read_times(batch.time, batch.row_count);
    if (!bounds_.empty()) assign_row_partitions(batch.keys, batch.row_count);
    drop_late(times, late);
    const int64_t count = grouped_.count;
    if (places) places->clear();
    if (count == 0) return;
    widen_values(batch.values);
    find_sessions(batch.keys, grouped_.rows_at(0), count, times, times);
    accumulate_values(fields_[0], pool_->state(0), entries_.data(), nullptr, count, nullptr, is_far());
    add_values(*pool_, grouped_.rows_at(0), count);
    tell_sessions(grouped_.rows_at(0), count);
    combine_merged();
  }

  // ---- emission

  // Sessions that end before the watermark become due (at MAX_TIME all).
  void advance(int64_t watermark) {
    check_not_emitting();
    if (watermark < watermark_) throw std::invalid_argument("a watermark must not go back");
    watermark_ = watermark;
    if (watermark_ >= greatest_bound_) bounds_.clear();
    near_bucket_ = std::max(near_bucket_, bucket_of(watermark));
    while (!buckets_.empty() && buckets_.begin()->first <= near_bucket_) {
      std::vector<Timer> timers = std::move(buckets_.begin()->second);
      const bool all_due = watermark == kMaxTime || buckets_.begin()->first < near_bucket_;
      buckets_.erase(buckets_.begin());
      bucket_ = nullptr;
      for (const Timer& timer : timers) {
        if (all_due) {
          go_off(timer);
        } else {
          near_.push_back(timer);
          std::push_heap(near_.begin(), near_.end(), is_later);
        }
      }
    }
    while (!near_.empty() && (near_.front().time < watermark || watermark == kMaxTime)) {
      const Timer timer = near_.front();
      std::pop_heap(near_.begin(), near_.end(), is_later);
      near_.pop_back();
      go_off(timer);
    }
    std::sort(due_.begin(), due_.end(), [](const Timer& left, const Timer& right) {
      return left.time != right.time ? left.time < right.time : left.entry < right.entry;
    });
    cursor_ = 0;
  }

  bool is_emitting() const override { return !due_.empty(); }

  // The next results, at most rows_max, by ascending end; no rows: nothing is due any more.
  // Columns: keys, first time, end, aggregates.
  Rows emit(int64_t rows_max) override {
    Rows result;
    if (due_.empty() || rows_max <= 0) return result;
    const int64_t count = std::min<int64_t>(rows_max, static_cast<int64_t>(due_.size() - cursor_));
    ResultRows out;
    out.capacity = count;
    allocate_columns(out);
    entries_.resize(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const Timer& due = due_[cursor_ + static_cast<size_t>(i)];
      entries_[i] = due.entry;
      out.slots.push_back(sessions_[due.entry].slot);
      out.starts()[i] = sessions_[due.entry].first;
      out.ends()[i] = due.time;
    }
    std::vector<const uint8_t*> states(fields_.size(), nullptr);
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!pool_->states[field]) continue;
      const int32_t width = fields_[field].width;
      merged_[field].resize(static_cast<size_t>((count * width + 7) / 8));
      auto* target = reinterpret_cast<uint8_t*>(merged_[field].data());
      copy_states(width, target, nullptr, pool_->state(field), entries_.data(), count);
      states[field] = target;
    }
    write_aggregates(out, states, count);
    result = finish_results(out);
    if (places) places->places.assign(entries_.begin(), entries_.begin() + count);
    for (int64_t i = 0; i < count; ++i) {
      unlink(entries_[i]);
      release(entries_[i]);
    }
    cursor_ += static_cast<size_t>(count);
    if (cursor_ == due_.size()) due_.clear();
    free_slots();
    if (live_ == 0) forget_entries();
    return result;
  }

  // ---- snapshots

  // Open sessions of the entries from `next_entry` on. Columns: keys, first time, last time, fields.
  Rows save(int64_t& next_entry, int64_t rows_max) override {
    check_not_emitting();
    std::vector<uint32_t> entries, slots;
    for (next_entry = std::max<int64_t>(next_entry, 0);
         next_entry < pool_->count && static_cast<int64_t>(entries.size()) < rows_max; ++next_entry) {
      const uint32_t slot = sessions_[static_cast<size_t>(next_entry)].slot;
      if (slot == kNoEntry) continue;
      entries.push_back(static_cast<uint32_t>(next_entry));
      slots.push_back(slot);
    }
    if (entries.empty()) return Rows();
    const auto count = static_cast<int64_t>(entries.size());
    if (places) places->places = entries;
    Rows result;
    result.row_count = count;
    result.columns = keys_.keys_of(slots.data(), count, arena_);
    for (const bool is_first : {true, false}) {
      Column column = allocate_fixed(arena_, fixed_type(Kind::int64, 8), count);
      auto* target = column.mutable_values<int64_t>();
      for (int64_t i = 0; i < count; ++i) target[i] = is_first ? sessions_[entries[i]].first : sessions_[entries[i]].last;
      result.columns.push_back(std::move(column));
    }
    for (size_t field = 0; field < fields_.size(); ++field) {
      Column column = allocate_fixed(arena_, partial_type(fields_[field]), count);
      auto* target = column.mutable_values<uint8_t>();
      const int32_t width = fields_[field].width;
      if (pool_->states[field]) copy_states(width, target, nullptr, pool_->state(field), entries.data(), count);
      else std::memset(target, 0, static_cast<size_t>(count * width));
      result.columns.push_back(std::move(column));
    }
    return result;
  }

  void restore_bound(int32_t partition, int64_t bound) override {
    if (bounds_.empty()) bounds_.assign(static_cast<size_t>(partition_count_), kMinTime);
    bounds_[static_cast<size_t>(partition)] = std::max(bounds_[static_cast<size_t>(partition)], bound);
    greatest_bound_ = std::max(greatest_bound_, bound);
  }

  // Saved sessions come back. With a longer timeout than they were saved with some of them may meet.
  void restore(const SessionColumns& batch) {
    const auto copy = [&](const ColumnView& column, std::vector<int64_t>& target) {
      target.resize(static_cast<size_t>(batch.row_count));
      if (batch.row_count > 0) std::memcpy(target.data(), column.values, static_cast<size_t>(batch.row_count) * 8);
    };
    std::vector<int64_t> first, last;
    copy(batch.first, first);
    copy(batch.last, last);
    keys_.reserve(keys_.live() + batch.row_count);
    find_sessions(batch.keys, nullptr, batch.row_count, first.data(), last.data());
    add_fields(*pool_, nullptr, batch.row_count, batch.fields);
    tell_sessions(nullptr, batch.row_count);
    combine_merged();
  }

  // The invariants at the top of this file. Reads all sessions.
  void check_invariants() const override {
    KeyedResults::check_invariants();
    JETFAST_INVARIANT(sessions_.size() == pool_->count);
    JETFAST_INVARIANT(newest_.size() <= keys_.slot_limit());
    int64_t live = 0;
    for (uint32_t slot = 0; slot < newest_.size(); ++slot) {
      uint32_t newer = kNoEntry;
      for (uint32_t entry = newest_[slot]; entry != kNoEntry; entry = sessions_[entry].older) {
        JETFAST_INVARIANT(entry < sessions_.size());
        const Session& session = sessions_[entry];
        JETFAST_INVARIANT(session.slot == slot);
        JETFAST_INVARIANT(session.newer == newer);
        JETFAST_INVARIANT(session.first <= session.last);
        JETFAST_INVARIANT(session.timer <= end_of(session));
        if (newer != kNoEntry) JETFAST_INVARIANT(end_of(session) < sessions_[newer].first);
        newer = entry;
        ++live;
      }
    }
    JETFAST_INVARIANT(live == live_);
    JETFAST_INVARIANT(merged_older_.empty() && merged_newer_.empty());
    for (const uint32_t entry : free_) JETFAST_INVARIANT(entry < sessions_.size() && sessions_[entry].slot == kNoEntry);
    JETFAST_INVARIANT(due_.empty() || cursor_ <= due_.size());
    for (const auto& [bucket, timers] : buckets_)
      for (const Timer& timer : timers) JETFAST_INVARIANT(bucket_of(timer.time) == bucket);
  }

  // `frames` and `entries` are sessions.
  MemoryUse memory() const {
    MemoryUse use = KeyedResults::memory();
    use.frames = use.entries = live_;
    use.key_bytes += static_cast<int64_t>(newest_.capacity() * sizeof(uint32_t));
    use.frame_bytes += static_cast<int64_t>(sessions_.capacity() * sizeof(Session) + near_.capacity() * sizeof(Timer) +
                                            pool_->slots.capacity() * sizeof(uint32_t));
    for (const auto& bucket : buckets_) use.frame_bytes += static_cast<int64_t>(bucket.second.capacity() * sizeof(Timer));
    for (size_t field = 0; field < fields_.size(); ++field)
      if (pool_->states[field]) use.frame_bytes += Arena::block_bytes(int64_t{pool_->capacity} * fields_[field].width);
    return use;
  }

 private:
  struct Session {
    int64_t first, last;  // times of rows
    int64_t timer;
    uint32_t older, newer;  // neighbours of the same key, kNoEntry at the ends
    uint32_t slot;          // kNoEntry: dead or never used
  };

  struct Timer {
    int64_t time;
    uint32_t entry;
  };

  using Places = std::map<int64_t, uint32_t>;  // first time to entry

  static bool is_later(const Timer& left, const Timer& right) { return left.time > right.time; }

  void check_not_emitting() const {
    if (!due_.empty()) throw std::invalid_argument("emit all sessions that are due (until None) before anything else comes in");
  }

  int64_t end_of(const Session& session) const { return saturating_add(session.last, timeout_); }

  bool is_far() const { return size_t{pool_->count} * sizeof(Session) > kPrefetchBytes; }

  // ---- lateness

  // Take late rows out of grouped_.
  void drop_late(const int64_t* times, LateRows* late) {
    const int64_t count = grouped_.count;
    const auto is_late = [&](int32_t row) {
      if (bounds_.empty()) return times[row] < watermark_;
      return times[row] < std::max(watermark_, bounds_[static_cast<size_t>(row_partitions_[row])]);
    };
    int64_t late_count = 0;
    for (int64_t place = 0; place < count; ++place) late_count += is_late(grouped_.row_at(place));
    if (late_count == 0) return;
    late_rows += late_count;
    grouped_.filter([&](int32_t row) {
      if (!is_late(row)) return true;
      if (late) late->rows.push_back(row);
      return false;
    });
  }

  // ---- sessions

  // entries_[i] = the session that holds [first, last] of row rows[i] (row i without `rows`), opened, widened or merged as
  // need be.
  void find_sessions(const std::vector<ColumnView>& keys, const int32_t* rows, int64_t count, const int64_t* first,
                     const int64_t* last) {
    slots_.resize(static_cast<size_t>(count));
    entries_.resize(static_cast<size_t>(count));
    keys_.find_or_insert(keys.data(), rows, count, slots_.data());
    cover_slots();
    if (newest_.size() < keys_.slot_limit()) newest_.resize(keys_.slot_limit(), kNoEntry);
    const bool far = is_far();
    const uint32_t old_count = pool_->count;
    for (int64_t i = 0; i < count; ++i) {
      if (far && i + kPrefetchRows < count) {
        prefetch_line(&newest_[slots_[i + kPrefetchRows]]);
        const uint32_t soon = newest_[slots_[i + kPrefetchRows / 2]];
        if (soon != kNoEntry) prefetch_line(&sessions_[soon]);
      }
      const int64_t row = rows ? rows[i] : i;
      entries_[i] = place(slots_[i], first[row], last[row]);
    }
    for (size_t field = 0; field < fields_.size(); ++field)
      if (pool_->states[field]) fill_identity(fields_[field], pool_->state(field), old_count, pool_->count);
  }

  uint32_t place(uint32_t slot, int64_t first, int64_t last) {
    JETFAST_CHECK(slot < newest_.size());
    JETFAST_CHECK(first <= last);
    const int64_t end = saturating_add(last, timeout_);
    uint32_t newer = kNoEntry;
    uint32_t entry = newest_[slot];
    for (int steps = 0; entry != kNoEntry && end < sessions_[entry].first; ++steps) {
      if (steps == kStepsMax) {
        find_place(slot, end, newer, entry);
        break;
      }
      newer = entry;
      entry = sessions_[entry].older;
    }
    // `entry` is the newest session that starts at or before `end`.
    if (entry == kNoEntry || first > end_of(sessions_[entry])) return open(slot, first, last, newer, entry);
    sessions_[entry].last = std::max(sessions_[entry].last, last);
    if (first >= sessions_[entry].first) return entry;
    start_earlier(entry, first);
    uint32_t older = sessions_[entry].older;
    while (older != kNoEntry && first <= end_of(sessions_[older])) {
      merge(older, entry, first);
      entry = older;
      older = sessions_[entry].older;
    }
    return entry;
  }

  uint32_t open(uint32_t slot, int64_t first, int64_t last, uint32_t newer, uint32_t older) {
    uint32_t entry;
    if (free_.empty()) {
      if (pool_->count == pool_->capacity) grow(*pool_, pool_->capacity * 2);
      entry = pool_->count++;
      sessions_.resize(pool_->count);
    } else {
      entry = free_.back();
      free_.pop_back();
      for (size_t field = 0; field < fields_.size(); ++field)
        if (pool_->states[field]) fill_identity(fields_[field], pool_->state(field), entry, int64_t{entry} + 1);
    }
    const int64_t end = saturating_add(last, timeout_);
    sessions_[entry] = {first, last, end, older, newer, slot};
    if (newer == kNoEntry) newest_[slot] = entry;
    else sessions_[newer].older = entry;
    if (older != kNoEntry) sessions_[older].newer = entry;
    if (Places* places = places_of(slot)) places->emplace(first, entry);
    hold_key(slot);
    ++live_;
    set_timer({end, entry});
    return entry;
  }

  void start_earlier(uint32_t entry, int64_t first) {
    Session& session = sessions_[entry];
    if (Places* places = places_of(session.slot)) {
      places->erase(session.first);
      places->emplace(first, entry);
    }
    session.first = first;
  }

  // What `newer` holds becomes part of `older`; a row that starts at `first` joins them.
  void merge(uint32_t older, uint32_t newer, int64_t first) {
    JETFAST_CHECK(older != newer);
    JETFAST_CHECK(sessions_[older].slot == sessions_[newer].slot);
    const Session gone = sessions_[newer];
    unlink(newer);
    sessions_[newer].slot = kNoEntry;
    drop_key(gone.slot);
    --live_;
    merged_older_.push_back(older);
    merged_newer_.push_back(static_cast<int32_t>(newer));
    sessions_[older].last = std::max(sessions_[older].last, gone.last);
    if (first < sessions_[older].first) start_earlier(older, first);
  }

  // The sessions that rows went to, and which of them joined: before their entries are given out again.
  void tell_sessions(const int32_t* rows, int64_t count) {
    if (!places) return;
    places->clear();
    places->merged_from.assign(merged_newer_.begin(), merged_newer_.end());
    places->merged_to = merged_older_;
    std::unordered_map<uint32_t, uint32_t> kept;  // what is left of a session that joined another
    for (size_t i = merged_newer_.size(); i-- > 0;) {
      const auto found = kept.find(merged_older_[i]);
      kept[places->merged_from[i]] = found == kept.end() ? merged_older_[i] : found->second;
    }
    places->places.assign(entries_.begin(), entries_.begin() + count);
    if (!kept.empty())
      for (uint32_t& entry : places->places)
        if (const auto found = kept.find(entry); found != kept.end()) entry = found->second;
    for (uint32_t& entry : places->merged_to)
      if (const auto found = kept.find(entry); found != kept.end()) entry = found->second;
    for (int64_t i = 0; i < count; ++i) places->rows.push_back(rows ? rows[i] : static_cast<int32_t>(i));
  }

  // After the values of a batch are in: fields of merged sessions join, in the order in which the sessions did.
  void combine_merged() {
    if (merged_older_.empty()) return;
    const auto count = static_cast<int64_t>(merged_older_.size());
    for (size_t field = 0; field < fields_.size(); ++field)
      if (pool_->states[field])
        combine_states(fields_[field], pool_->state(field), merged_older_.data(), pool_->state(field), merged_newer_.data(), count);
    for (const int32_t entry : merged_newer_) free_.push_back(static_cast<uint32_t>(entry));
    merged_older_.clear();
    merged_newer_.clear();
  }

  void unlink(uint32_t entry) {
    const Session& session = sessions_[entry];
    if (session.newer == kNoEntry) newest_[session.slot] = session.older;
    else sessions_[session.newer].older = session.older;
    if (session.older != kNoEntry) sessions_[session.older].newer = session.newer;
    if (Places* places = places_of(session.slot)) {
      places->erase(session.first);
      if (places->empty()) places_.erase(session.slot);
    }
  }

  void release(uint32_t entry) {
    JETFAST_CHECK(entry < sessions_.size());
    JETFAST_CHECK(sessions_[entry].slot != kNoEntry);
    JETFAST_CHECK(live_ > 0);
    drop_key(sessions_[entry].slot);
    sessions_[entry].slot = kNoEntry;
    --live_;
    free_.push_back(entry);
  }

  // No session is open: entries are given out in order again, and timers of dead sessions go.
  void forget_entries() {
    clear(*pool_);
    sessions_.clear();
    free_.clear();
    buckets_.clear();
    bucket_ = nullptr;
    near_.clear();
  }

  // ---- keys with many open sessions: an ordered map beside the list, from when the list was too long to walk

  Places* places_of(uint32_t slot) {
    if (places_.empty()) return nullptr;
    const auto found = places_.find(slot);
    return found == places_.end() ? nullptr : &found->second;
  }

  // `entry`: the newest session that starts at or before `end`; `newer`: the one after it.
  void find_place(uint32_t slot, int64_t end, uint32_t& newer, uint32_t& entry) {
    Places& places = places_[slot];
    if (places.empty())
      for (uint32_t each = newest_[slot]; each != kNoEntry; each = sessions_[each].older)
        places.emplace_hint(places.begin(), sessions_[each].first, each);
    const auto after = places.upper_bound(end);
    newer = after == places.end() ? kNoEntry : after->second;
    entry = after == places.begin() ? kNoEntry : std::prev(after)->second;
  }

  // ---- timers, in buckets of one granule: a bucket that the watermark has passed goes off as a whole; the one that it
  // stands in is a heap

  int64_t bucket_of(int64_t time) const { return floor_divide(time, granule_); }

  void set_timer(const Timer& timer) {
    const int64_t bucket = bucket_of(timer.time);
    if (bucket <= near_bucket_) {
      near_.push_back(timer);
      std::push_heap(near_.begin(), near_.end(), is_later);
      return;
    }
    if (bucket_ == nullptr || bucket_number_ != bucket) {
      bucket_ = &buckets_[bucket];
      bucket_number_ = bucket;
    }
    bucket_->push_back(timer);
  }

  void go_off(const Timer& timer) {
    JETFAST_CHECK(timer.entry < sessions_.size());
    Session& session = sessions_[timer.entry];
    if (session.slot == kNoEntry || session.timer != timer.time) return;  // the entry has another session now
    const int64_t end = end_of(session);
    if (end < watermark_ || watermark_ == kMaxTime) {
      session.timer = kMinTime;  // a second timer of the same time, from an earlier session of the entry, finds nothing
      due_.push_back({end, timer.entry});
      return;
    }
    session.timer = end;
    set_timer({end, timer.entry});
  }

  static constexpr int kStepsMax = 64;

  int64_t timeout_, granule_;
  std::unique_ptr<Frame> pool_;    // fields of sessions by entry
  std::vector<Session> sessions_;  // by entry
  std::vector<uint32_t> newest_;   // session by slot
  std::vector<uint32_t> free_;     // entries
  int64_t live_ = 0;
  std::vector<uint32_t> merged_older_;
  std::vector<int32_t> merged_newer_;
  std::unordered_map<uint32_t, Places> places_;  // by slot
  std::map<int64_t, std::vector<Timer>> buckets_;
  std::vector<Timer>* bucket_ = nullptr;  // the bucket that the last timer went to
  int64_t bucket_number_ = 0;
  int64_t near_bucket_ = kMinTime;
  std::vector<Timer> near_, due_;
  size_t cursor_ = 0;  // next of due_
  int64_t greatest_bound_ = kMinTime;
  std::vector<std::vector<uint64_t>> merged_;  // fields of what is emitted
};

}  // namespace jetfast
