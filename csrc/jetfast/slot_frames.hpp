// The frames of a window table and its running window: how rows enter them, and which keys they hold.
//
// Two layouts. While all frames fit kDenseBytes a new one is dense, arrays indexed by slot, so that frames enter and leave the
// running window in one pass without indirection. Beyond, a new frame is packed: a list of (slot, fields), so that memory
// grows with the pairs of key and frame that exist; its entries are combined and deducted one by one. The choice is made anew
// for each frame, as keys come and go. The running window always is dense.
//
// Packed frames of many keys (kFarSlots) start as logs: an entry a row, without a look whether the key has one, as long as
// rows seldom find theirs. Entries of a key are added up wherever they meet; a log is merged when it grows beyond half the
// keys, when it closes and repeats them, and when fields can no longer be deducted. Such frames are ordered by blocks of slots
// when they close, and meet the running window block by block.
//
// Float sums are plain doubles in frames, of at most kUnsettledRows rows (error below 2^-31 of the sum of |x|): then they are
// put aside with compensation, and come back as one double when the frame closes.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/assertions.hpp"
#include "jetfast/exact_sums.hpp"
#include "jetfast/hot_slots.hpp"
#include "jetfast/keyed_results.hpp"

namespace jetfast {

// Calls work(place, slot) for every key that has rows in a frame.
template <typename Work>
inline void each_entry(const Frame& frame, Work&& work) {
  const uint64_t* row_counts = frame.rows();
  if (frame.dense) {
    for (uint32_t slot = 0; slot < frame.count; ++slot)
      if (row_counts[slot] > 0) work(slot, slot);
  } else {
    for (uint32_t entry = 0; entry < frame.count; ++entry) work(entry, frame.slots[entry]);
  }
}

class SlotFrames : public KeyedResults {
 public:
  SlotFrames(const TableSpec& spec, Arena& arena) : KeyedResults(spec, arena), partial_fields_(fields_) {
    JETFAST_CHECK(!fields_.empty() && fields_[0].kind == FieldKind::rows);
    for (Field& field : fields_) {
      if (field.kind == FieldKind::sum_float) field = Field(FieldKind::sum_double, field.value_class, field.column);
      entry_bytes_ += field.width;
      all_deducted_ = all_deducted_ && deducts(field);
    }
    running_ = new_frame();
    running_->dense = true;
    for (size_t field = 0; field < fields_.size(); ++field)
      if (!fields_[field].exact) running_->after[field] = arena_.allocate(int64_t{running_->capacity} * fields_[field].width);
  }

  // Of partial results: those have compensated sums.
  const std::vector<Field>& partial_fields() const override { return partial_fields_; }

  // Only for tests: results are the same.
  void set_dense_bytes(int64_t bytes) { dense_bytes_ = bytes; }
  void set_far_slots(uint32_t slots) { far_slots_ = slots; }

  MemoryUse memory() const {
    MemoryUse use{0, static_cast<int64_t>(frames_.size()), 0, keys_.bytes(), 0};
    const auto add = [&](const Frame& frame) {
      const size_t words = frame.slots.capacity() + frame.entry_of_slot.capacity() + frame.block_starts.capacity();
      use.frame_bytes += static_cast<int64_t>(words * sizeof(uint32_t));
      for (size_t field = 0; field < fields_.size(); ++field) {
        const int64_t bytes = Arena::block_bytes(int64_t{frame.capacity} * fields_[field].width);
        if (frame.states[field]) use.frame_bytes += bytes;
        if (frame.after[field]) use.frame_bytes += bytes;
        if (field < frame.settled.size()) use.frame_bytes += static_cast<int64_t>(frame.settled[field].capacity() * sizeof(FloatSum));
      }
    };
    for (const auto& item : frames_) {
      add(*item.second);
      each_entry(*item.second, [&](uint32_t, uint32_t) { ++use.entries; });
    }
    for (const auto& frame : spare_frames_) add(*frame);
    add(*delta_);
    add(*running_);
    if (middle_) add(*middle_);
    if (leaving_) add(*leaving_);
    for (const auto& index : spare_indexes_) use.frame_bytes += static_cast<int64_t>(index.capacity() * sizeof(uint32_t));
    for (const uint8_t held : held_slots()) use.keys += held;
    return use;
  }

 protected:
  static constexpr int64_t kDenseBytes = int64_t{64} << 20;
  static constexpr uint32_t kFarSlots = 8 * kBlockSlots;  // a row count each then is the second-level cache
  static constexpr int64_t kUnsettledRows = int64_t{1} << 20;
  static constexpr uint32_t kFewFrames = 16;
  using FewFrames = std::array<Frame*, kFewFrames>;  // of a batch, by number; null: none of its rows
  static constexpr int64_t kWholeRows = 256;  // partials of one frame, at least, for which whole frames pay

  // Do frames leave the running window by being deducted from this field? (Else it is two stacks.)
  bool deducts(const Field& field) const { return field.exact || (sums_are_exact_ && field.kind == FieldKind::sum_double); }

  // ---- frames

  Frame& open_frame(int64_t end) {
    const auto found = frames_.lower_bound(end);
    if (found != frames_.end() && found->first == end) return *found->second;
    std::unique_ptr<Frame> frame = new_frame();
    frame->end = end;
    const int64_t frame_count = static_cast<int64_t>(frames_.size()) + 1;
    frame->dense = (int64_t{keys_.slot_limit()} + 64) * frame_count * entry_bytes_ <= dense_bytes_;
    frame->is_log = !frame->dense && all_deducted_ && logs_pay_ && shape_.frames() > 1 && !places &&
                    keys_.slot_limit() >= far_slots_;
    if (frame->dense) {
      drop_index(*frame);
      std::vector<uint32_t>().swap(frame->slots);
    } else if (frame->slots.size() < frame->capacity) {
      frame->slots.resize(frame->capacity);
    }
    return *frames_.emplace_hint(found, end, std::move(frame))->second;
  }

  // A dense frame gets an empty entry for every slot there is, and memory for some more.
  void cover(Frame& frame, uint32_t more = 0) {
    const uint32_t limit = keys_.slot_limit();
    if (limit + more > frame.capacity) {
      const uint32_t capacity = std::max<uint32_t>(limit + limit / 4, limit + 64);
      const auto widen = [&](Block& block, int64_t width) {
        if (!block) return;
        Block larger = arena_.allocate(capacity * width);
        std::memcpy(larger.get(), block.get(), static_cast<size_t>(frame.count * width));
        block = std::move(larger);
      };
      for (size_t field = 0; field < fields_.size(); ++field) {
        widen(frame.states[field], fields_[field].width);
        widen(frame.after[field], fields_[field].width);
      }
      frame.capacity = capacity;
    }
    JETFAST_CHECK(frame.dense);
    JETFAST_CHECK(frame.capacity >= limit);
    if (frame.count >= limit) return;
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (frame.states[field]) fill_identity(fields_[field], frame.state(field), frame.count, limit);
      if (frame.after[field]) fill_identity(fields_[field], frame.after[field].get(), frame.count, limit);
    }
    frame.count = limit;
  }

  void recycle(std::unique_ptr<Frame> frame) {
    clear(*frame);
    frame->settled.clear();
    frame->unsettled_rows = 0;
    if (spare_frames_.size() <= frames_.size() + 2) spare_frames_.push_back(std::move(frame));
  }

  // Where the keys `slots` are in a frame, made if need be; valid until the next call.
  const uint32_t* entries_in(Frame& frame, const uint32_t* slots, int64_t count) {
    if (frame.dense) {
      cover(frame);
      return slots;
    }
    entries_.resize(static_cast<size_t>(count));
    enter(frame, slots, count, entries_.data());
    return entries_.data();
  }

  // ---- rows

  // Rows enter a frame that is not in the running window: slots[i] is the key of row rows[i] (row i without `rows`).
  void add_group(Frame& frame, const uint32_t* slots, const int32_t* rows, int64_t count) {
    if (frame.dense) {
      cover(frame);
      entries_.assign(slots, slots + count);
      accumulate_values(fields_[0], frame.state(0), slots, nullptr, count, nullptr, false);
      add_values(frame, rows, count);
    } else if (frame.is_log) {
      append(frame, slots, count);
      add_values(frame, rows, count);
      if (frame.count > keys_.slot_limit() / 2) merge_entries(frame);
    } else {
      add_rows(frame, slots, rows, count);
    }
    note_rows(frame, count);
  }

  // Each row gets an entry of its own (entries_), without a look whether its key has one.
  void append(Frame& frame, const uint32_t* slots, int64_t count) {
    JETFAST_CHECK(frame.is_log && !frame.dense);
    drop_index(frame);
    const uint32_t start = frame.count;
    const uint32_t end = start + static_cast<uint32_t>(count);
    if (end > frame.capacity) grow(frame, std::max(end, 2 * frame.capacity));
    std::copy_n(slots, count, frame.slots.data() + start);
    std::fill_n(reinterpret_cast<uint64_t*>(frame.state(0)) + start, count, uint64_t{1});
    for (size_t field = 1; field < fields_.size(); ++field)
      if (frame.states[field]) fill_identity(fields_[field], frame.state(field), start, end);
    entries_.resize(static_cast<size_t>(count));
    std::iota(entries_.begin(), entries_.end(), start);
    frame.count = end;
    frame.block_starts.clear();
  }

  // Make one entry of those of each key: memory then is bounded by the pairs of key and frame again.
  void merge_entries(Frame& frame) {
    if (!frame.is_log) return;
    unsettle(frame);
    std::unique_ptr<Frame> merged = new_frame();
    if (merged->slots.size() < merged->capacity) merged->slots.resize(merged->capacity);
    merged->dense = false;
    add_frame(*merged, frame);
    drop_index(*merged);
    merged->end = frame.end;
    merged->unsettled_rows = frame.count;
    std::swap(*merged, frame);
    recycle(std::move(merged));
  }

  // Rows of keys that seldom come twice in a frame are appended to it as they are. Is it to go on like that? Judged by one
  // block of a frame that has closed: if rows repeat their keys, its entries are merged. `rows`: of the frame.
  void judge_log(Frame& frame, int64_t rows) {
    if (!frame.is_log) {
      if (!frame.dense) logs_pay_ = 2 * rows <= 3 * int64_t{frame.count};
      return;
    }
    const FramePart part = block_of(frame, frame.block_starts.size() / 2);
    std::vector<uint8_t> seen(kBlockSlots, 0);
    int64_t keys = 0;
    for (int64_t i = 0; i < part.count; ++i) {
      uint8_t& is_seen = seen[part.slots[i] % kBlockSlots];
      keys += !is_seen;
      is_seen = 1;
    }
    logs_pay_ = 2 * part.count <= 3 * keys;
    if (logs_pay_) return;
    merge_entries(frame);
    order_by_block(frame);
  }

  // A batch whose rows all lie in few dense frames after `bound` enters them row by row, in its order. False if it is not
  // one, and nothing was done then.
  bool add_in_order(const BatchColumns& batch, int64_t bound) {
    const int64_t count = batch.row_count;
    const auto* times = static_cast<const int64_t*>(batch.time.values);
    if (count == 0 || batch.time.validity != nullptr || batch.time.kind != Kind::timestamp ||
        batch.time.unit != TimeUnit::micro || reinterpret_cast<uintptr_t>(times) % 8 != 0)
      return false;
    int64_t least, greatest;
    find_span(times, count, &least, &greatest);
    const uint64_t base = static_cast<uint64_t>(least) - static_cast<uint64_t>(shape_.past_boundary(least));
    const uint64_t span = static_cast<uint64_t>(greatest) - base;
    if (shape_.frame_of(least) <= bound || span >> 52 != 0) return false;
    const uint64_t last = grouped_.divider().divide(span);
    if (last >= kFewFrames || shape_.frame_of(greatest) == kMaxTime) return false;
    uint32_t present = 1u | 1u << last;
    if (last > 0) {
      frame_numbers_.resize(static_cast<size_t>(count));
      number_frames(times, count, static_cast<int64_t>(base), grouped_.divider(), frame_numbers_.data());
      if (last > 1)
        for (int64_t row = 0; row < count; ++row) present |= 1u << frame_numbers_[row];
    }
    FewFrames frames{};
    const int64_t first_end = shape_.frame_of(least);
    bool all_dense = true;
    for (uint64_t number = 0; number <= last; ++number)
      if (present >> number & 1) {
        frames[number] = &open_frame(first_end + static_cast<int64_t>(number) * shape_.slide);
        all_dense = all_dense && frames[number]->dense;
      }
    if (!all_dense) return false;  // the frames are needed all the same
    widen_values(batch.values);
    slots_.resize(static_cast<size_t>(count));
    keys_.find_or_insert(batch.keys.data(), nullptr, count, slots_.data());
    add_to_few(frames, last > 0 ? frame_numbers_.data() : nullptr, count);
    return true;
  }

  // All rows of a batch, whose keys are slots_, enter dense frames: row i frames[numbers[i]], or frames[0] without `numbers`.
  void add_to_few(const FewFrames& frames, const uint32_t* numbers, int64_t count) {
    using States = std::array<uint8_t*, kFewFrames>;
    hot_slots_.spread(slots_.data(), count, keys_.slot_limit());
    for (Frame* frame : frames)
      if (frame) cover(*frame, hot_slots_.replica_count());
    const auto open = [&](int field) {
      States states{};
      for (size_t number = 0; number < kFewFrames; ++number) {
        if (!frames[number]) continue;
        states[number] = frames[number]->state(static_cast<size_t>(field));
        hot_slots_.open(fields_[field], states[number]);
      }
      return states;
    };
    const auto close = [&](int field, const States& states) {
      for (uint8_t* state : states)
        if (state) hot_slots_.close(fields_[field], state);
    };
    const States row_counts = open(0);
    bool counted = false;  // the first pass over all values also counts the rows
    for (size_t index = 0; index < columns_.size(); ++index) {
      const ColumnFields& column = columns_[index];
      const bool has_nulls = widened_[index].has_nulls;
      if (has_nulls && column.nulls >= 0) {
        split_nulls(widened_[index], nullptr, count);
        for (Frame* frame : frames)
          if (frame) need_nulls(*frame, static_cast<size_t>(column.nulls));
        const States states = open(column.nulls);
        accumulate_in_frames(fields_[column.nulls], nullptr, states.data(), numbers, slots_.data(), null_places_.data(),
                             static_cast<int64_t>(null_places_.size()), nullptr);
        close(column.nulls, states);
      }
      const int64_t place_count = has_nulls ? static_cast<int64_t>(valid_places_.size()) : count;
      const int32_t* places = hot_slots_.order(has_nulls ? valid_places_.data() : nullptr, place_count);
      for (const int field : {column.sum, column.minimum, column.maximum, column.moments}) {
        if (field < 0) continue;
        const States states = open(field);
        accumulate_in_frames(fields_[field], counted || has_nulls ? nullptr : row_counts.data(), states.data(), numbers,
                             slots_.data(), places, place_count, widened_[index].values);
        close(field, states);
        counted = counted || !has_nulls;
      }
    }
    if (!counted)
      accumulate_in_frames(fields_[0], nullptr, row_counts.data(), numbers, slots_.data(), nullptr, count, nullptr);
    close(0, row_counts);
    for (Frame* frame : frames)
      if (frame) note_rows(*frame, count);
  }

  // ---- sums of frames with many rows

  void note_rows(Frame& frame, int64_t count) {
    frame.unsettled_rows += count;
    if (frame.unsettled_rows > kUnsettledRows) settle(frame);
  }

  void settle(Frame& frame) {
    frame.unsettled_rows = 0;
    frame.settled.resize(fields_.size());
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (fields_[field].kind != FieldKind::sum_double) continue;
      frame.settled[field].resize(frame.count);
      auto* sums = reinterpret_cast<double*>(frame.state(field));
      for (uint32_t entry = 0; entry < frame.count; ++entry) {
        frame.settled[field][entry].add(sums[entry]);
        sums[entry] = 0;
      }
    }
  }

  // The sum of one entry, wherever it is.
  static double sum_of(const Frame& frame, size_t field, uint32_t entry) {
    const double sum = reinterpret_cast<const double*>(frame.state(field))[entry];
    if (field >= frame.settled.size() || entry >= frame.settled[field].size()) return sum;
    FloatSum total = frame.settled[field][entry];
    total.add(sum);
    return total.get();
  }

  // What was put aside comes back: before the frame is combined or emitted.
  void unsettle(Frame& frame) {
    for (size_t field = 0; field < frame.settled.size(); ++field) {
      auto* sums = reinterpret_cast<double*>(frame.state(field));
      for (uint32_t entry = 0; entry < frame.settled[field].size(); ++entry) sums[entry] = sum_of(frame, field, entry);
    }
    frame.settled.clear();
    frame.unsettled_rows = 0;
  }

  // ---- blocks of slots

  // The entries of a frame whose slots lie in one block, or all of them: `count` from `start` on. `slots` has those of packed
  // ones; dense ones have the slots from `first_slot` on.
  struct FramePart {
    int64_t start, count;
    const uint32_t* slots;
    int64_t first_slot;
  };

  static FramePart whole_of(const Frame& frame) { return {0, frame.count, frame.dense ? nullptr : frame.slots.data(), 0}; }

  // Of a dense frame, or of one that is ordered by blocks.
  static FramePart block_of(const Frame& frame, size_t block) {
    if (frame.dense) {
      const int64_t start = static_cast<int64_t>(block) * kBlockSlots;
      return {start, std::clamp<int64_t>(frame.count - start, 0, kBlockSlots), nullptr, start};
    }
    if (block + 1 >= frame.block_starts.size()) return {0, 0, nullptr, 0};
    const uint32_t start = frame.block_starts[block];
    return {start, int64_t{frame.block_starts[block + 1]} - start, frame.slots.data() + start, 0};
  }

  // Order the entries of a packed frame by blocks of slots, within which they stay in their order.
  void order_by_block(Frame& frame) {
    if (frame.dense || !frame.block_starts.empty()) return;
    drop_index(frame);
    std::vector<uint32_t>& starts = frame.block_starts;
    starts.assign(keys_.slot_limit() / kBlockSlots + 2, 0);
    for (uint32_t entry = 0; entry < frame.count; ++entry) ++starts[frame.slots[entry] / kBlockSlots + 1];
    for (size_t block = 1; block < starts.size(); ++block) starts[block] += starts[block - 1];
    std::vector<uint32_t> next(starts);
    places_.resize(frame.count);
    ordered_slots_.resize(frame.slots.size());
    for (uint32_t entry = 0; entry < frame.count; ++entry) {
      const uint32_t slot = frame.slots[entry];
      const uint32_t place = next[slot / kBlockSlots]++;
      places_[entry] = place;
      ordered_slots_[place] = slot;
    }
    frame.slots.swap(ordered_slots_);
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (!frame.states[field]) continue;
      Block ordered = arena_.allocate(int64_t{frame.capacity} * fields_[field].width);
      copy_states(fields_[field].width, ordered.get(), places_.data(), frame.state(field), nullptr, frame.count);
      frame.states[field] = std::move(ordered);
    }
  }

  // ---- partial results

  // Partial results enter a frame (or delta_): slots[i] is the key of row rows[i] (row i without `rows`). Without `slots`,
  // which only dense frames and aligned columns may be, keys are the slots from `first_slot` on.
  void add_partial_group(Frame& frame, const uint32_t* slots, uint32_t first_slot, const int32_t* rows, int64_t count,
                         const std::vector<ColumnView>& sources) {
    const uint32_t* entries = entries_in(frame, slots, count);
    for (size_t field = 0; field < fields_.size(); ++field) {
      const auto* source = static_cast<const uint8_t*>(sources[field].values);
      if (fields_[field].kind == FieldKind::sum_double) {
        add_float_sums(reinterpret_cast<double*>(frame.state(field)) + first_slot, entries, source, rows, count);
        continue;
      }
      if (fields_[field].kind == FieldKind::nulls && !need_nulls_of(frame, field, source, rows, count)) continue;
      combine_states(fields_[field], frame.state(field) + int64_t{first_slot} * fields_[field].width, entries, source, rows,
                     count);
    }
  }

  // The entries of a frame, without a list those from `first_entry` on, and the rows that they become.
  struct FrameRows {
    const Frame* frame;
    const uint32_t* entries;
    int64_t start, count;
    uint32_t first_entry = 0;
  };

  // The entries of frames as columns, frame by frame: keys, frame, then one column per field.
  Rows partials_of(const std::vector<const Frame*>& frames, int64_t count) const {
    const Block slot_memory = arena_.allocate(count * 4);
    auto* slots = reinterpret_cast<uint32_t*>(slot_memory.get());
    std::vector<FrameRows> parts;
    int64_t row = 0;
    for (const Frame* frame : frames) {
      const int64_t start = row;
      each_entry(*frame, [&](uint32_t, uint32_t slot) { slots[row++] = slot; });
      const bool has_gaps = frame->dense && row - start < frame->count;
      parts.push_back({frame, has_gaps ? slots + start : nullptr, start, row - start});
    }
    return partials_of(parts, slots, count);
  }

  // The same of some entries; `slots`: of each row.
  Rows partials_of(const std::vector<FrameRows>& parts, const uint32_t* slots, int64_t count) const {
    if (places) places->places.assign(slots, slots + count);
    Rows result;
    result.row_count = count;
    result.columns = keys_.keys_of(slots, count, arena_);
    result.columns.push_back(allocate_fixed(arena_, fixed_type(Kind::int64, 8), count));
    auto* ends = result.columns.back().mutable_values<int64_t>();
    for (const FrameRows& part : parts) std::fill_n(ends + part.start, part.count, part.frame->end);
    for (size_t field = 0; field < fields_.size(); ++field) {
      result.columns.push_back(allocate_fixed(arena_, partial_type(partial_fields_[field]), count));
      for (const FrameRows& part : parts) copy_field(part, field, result.columns.back().mutable_values<uint8_t>());
    }
    return result;
  }

  void copy_field(const FrameRows& part, size_t field, uint8_t* target) const {
    const int32_t width = partial_fields_[field].width;
    target += part.start * width;
    if (!part.frame->states[field]) {
      std::memset(target, 0, static_cast<size_t>(part.count * width));
    } else if (fields_[field].kind == FieldKind::sum_double) {
      for (int64_t i = 0; i < part.count; ++i) {
        FloatSum sum;
        sum.sum = sum_of(*part.frame, field, part.entries ? part.entries[i] : part.first_entry + static_cast<uint32_t>(i));
        std::memcpy(target + i * static_cast<int64_t>(sizeof(sum)), &sum, sizeof(sum));
      }
    } else {
      copy_states(width, target, nullptr, part.frame->state(field) + int64_t{part.first_entry} * width, part.entries, part.count);
    }
  }

  // ---- keys

  // By slot: is the key in a frame?
  std::vector<uint8_t> held_slots() const {
    std::vector<uint8_t> held(keys_.slot_limit(), 0);
    const auto hold = [&held](uint32_t, uint32_t slot) { held[slot] = 1; };
    const bool in_running = shape_.frames() > 1;
    if (in_running) each_entry(*running_, hold);
    for (auto item = in_running ? frames_.upper_bound(emitted_) : frames_.begin(); item != frames_.end(); ++item)
      each_entry(*item->second, hold);
    return held;
  }

  // Keys that left every frame often come back at once (always, in a tumbling window): they give up their slots when there
  // are twice as many keys as were left the last time, so that memory is bounded by the keys that are in the frames.
  void collect_keys() {
    if (keys_.live() <= collect_above_) return;
    std::vector<uint8_t> kept = held_slots();
    for (const uint32_t slot : keys_.free_slots()) kept[slot] = 1;
    for (uint32_t slot = 0; slot < kept.size(); ++slot)
      if (!kept[slot]) keys_.release(slot);
    collect_above_ = std::max(2 * keys_.live() + 1024, keys_kept_);
  }

  std::vector<Field> partial_fields_;
  int64_t entry_bytes_ = 0;
  int64_t dense_bytes_ = kDenseBytes;
  uint32_t far_slots_ = kFarSlots;
  bool logs_pay_ = true;  // rows seldom find their key in their frame
  bool sums_are_exact_ = true;  // sum_double fields are deducted
  bool all_deducted_ = true;
  std::unique_ptr<Frame> running_;
  std::unique_ptr<Frame> middle_;  // of the stacks of a window: see running_window.hpp
  std::unique_ptr<Frame> leaving_;  // no longer in the window, but still in blocks of the running one
  int64_t emitted_ = kMinTime;  // windows up to here are emitted or were empty
  int64_t collect_above_ = 1024;
  int64_t keys_kept_ = 0;  // so many keys keep their slots in any case

 private:
  HotSlots hot_slots_;
  std::vector<uint32_t> frame_numbers_;
  std::vector<uint32_t> places_, ordered_slots_;
};

}  // namespace jetfast
