// Windowed aggregation by key: rows enter frames, frames enter and leave a running window, windows are emitted by a watermark.
//
// KeyedFrames   frames in a sorted map (a far-future row costs one more frame), each a packed list of the keys that have
//               rows in it; keys that left every frame give their slot back.
// FrameTable    first stage of two: partial results per key and frame, judges nothing.
// WindowTable   the window itself: judges lateness, slides, emits; also the second stage.
//
// Invariants of WindowTable, with B = `emitted_`, the last window end that counts as emitted:
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
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/arena.hpp"
#include "jetfast/arrow_c_data.hpp"
#include "jetfast/batch.hpp"
#include "jetfast/column_view.hpp"
#include "jetfast/frame.hpp"
#include "jetfast/key_index.hpp"
#include "jetfast/partition.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/timestamps.hpp"

namespace jetfast {

enum class AggregateKind : uint8_t {
  count, count_values, sum, mean, minimum, maximum, var_samp, var_pop, stddev_samp, stddev_pop,
};

struct AggregateSpec {
  AggregateKind kind;
  int column;              // index of the value column, -1 for count
  ColumnView result_type;  // layout fixed or bits
};

struct TableSpec {
  WindowShape shape{1, 1, 0};
  std::vector<ColumnView> key_types;    // as kept: never a dictionary
  std::vector<ColumnView> value_types;  // of the values: never a dictionary
  std::vector<AggregateSpec> aggregates;
  int32_t partition_count = 271;
};

// Where the fields of one value column are, -1 for those that no aggregate needs.
struct ColumnFields {
  int nulls = -1, sum = -1, minimum = -1, maximum = -1, moments = -1;
};

inline ValueClass value_class_of(const ColumnView& type) {
  switch (type.kind) {
    case Kind::uint8:
    case Kind::uint16:
    case Kind::uint32:
    case Kind::uint64: return ValueClass::u64;
    case Kind::float16:
    case Kind::float32:
    case Kind::float64: return ValueClass::f64;
    case Kind::decimal128: return ValueClass::i128;
    default: return ValueClass::i64;
  }
}

inline bool is_decimal(Kind kind) {
  return kind == Kind::decimal32 || kind == Kind::decimal64 || kind == Kind::decimal128;
}

// ---- half precision -----------------------------------------------------------------------------------------------------------

inline double half_to_double(uint16_t half) {
  const int exponent = (half >> 10) & 31;
  const int fraction = half & 1023;
  double value;
  if (exponent == 31) value = fraction ? std::numeric_limits<double>::quiet_NaN() : std::numeric_limits<double>::infinity();
  else if (exponent == 0) value = std::ldexp(fraction, -24);
  else value = std::ldexp(fraction + 1024, exponent - 25);
  return half & 0x8000 ? -value : value;
}

// For values that came from half precision, so nothing is rounded.
inline uint16_t double_to_half(double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  if (std::isnan(value)) return 0x7e00;
  const double size = std::fabs(value);
  if (std::isinf(value)) return sign | 0x7c00;
  if (size == 0) return sign;
  int exponent;
  const double fraction = std::frexp(size, &exponent);  // size = fraction * 2^exponent, fraction in [0.5, 1)
  if (exponent < -13) return static_cast<uint16_t>(sign | static_cast<uint16_t>(std::ldexp(size, 24)));
  return static_cast<uint16_t>(sign | ((exponent + 14) << 10) | (static_cast<int>(std::ldexp(fraction, 11)) - 1024));
}

// ---- a value column of one batch, widened to its class -----------------------------------------------------------------------

struct WidenedColumn {
  const void* values = nullptr;
  bool has_nulls = false;
  std::vector<uint8_t> valid;  // by row, if has_nulls
  std::vector<uint64_t> words;
  std::vector<int64_t> value_rows;

  // `needs_values` false: only the nulls are of interest (count of a column of any type).
  void widen(const ColumnView& view, ValueClass value_class, bool needs_values) {
    const int64_t count = view.row_count;
    const ColumnView* values_view = &view;
    const int64_t* value_row = nullptr;
    has_nulls = false;
    if (view.layout == Layout::dictionary) {
      values_view = &resolve_rows(view, nullptr, count, value_rows);
      value_row = value_rows.data();
      for (int64_t row = 0; row < count; ++row) has_nulls |= value_row[row] < 0;
      if (has_nulls) {
        valid.resize(static_cast<size_t>(count));
        for (int64_t row = 0; row < count; ++row) valid[row] = value_row[row] >= 0;
      }
    } else if (view.kind == Kind::null) {
      has_nulls = count > 0;
      valid.assign(static_cast<size_t>(count), 0);
      needs_values = false;
    } else if (view.layout == Layout::opaque) {  // only counted; unions have no nulls of their own, and say 0
      const auto* array = static_cast<const ArrowArray*>(view.values);
      const auto* bitmap = array->null_count != 0 && array->n_buffers > 0 ? static_cast<const uint8_t*>(array->buffers[0]) : nullptr;
      has_nulls = bitmap != nullptr;
      if (has_nulls) {
        valid.resize(static_cast<size_t>(count));
        for (int64_t row = 0; row < count; ++row) valid[row] = get_bit(bitmap, array->offset + view.bits_offset + row);
      }
    } else if (view.validity != nullptr && view.null_count > 0) {
      has_nulls = true;
      valid.resize(static_cast<size_t>(count));
      expand_validity(view, valid.data());
    }
    values = nullptr;
    if (!needs_values || count == 0) return;
    const auto* source = static_cast<const uint8_t*>(values_view->values);
    const bool aligned = reinterpret_cast<uintptr_t>(source) % 8 == 0;
    if (value_row == nullptr && aligned && values_view->layout == Layout::fixed &&
        (values_view->width == 8 || values_view->width == 16)) {
      values = source;
      return;
    }
    words.resize(static_cast<size_t>(count) * (value_class == ValueClass::i128 ? 2 : 1));
    values = words.data();
    const auto each = [&](auto* target, auto load) {
      for (int64_t row = 0; row < count; ++row) {
        const int64_t from = value_row ? value_row[row] : row;
        if (from >= 0) target[row] = load(from);
      }
    };
    auto* as_signed = reinterpret_cast<int64_t*>(words.data());
    auto* as_double = reinterpret_cast<double*>(words.data());
    if (values_view->layout == Layout::bits)
      return each(as_signed, [&](int64_t row) { return int64_t{get_bit(source, values_view->bits_offset + row)}; });
    switch (value_class) {
      case ValueClass::i64:
        switch (values_view->width) {
          case 1: return each(as_signed, [&](int64_t row) -> int64_t { return load_unaligned<int8_t>(source + row); });
          case 2: return each(as_signed, [&](int64_t row) -> int64_t { return load_unaligned<int16_t>(source + row * 2); });
          case 4: return each(as_signed, [&](int64_t row) -> int64_t { return load_unaligned<int32_t>(source + row * 4); });
          default: return each(as_signed, [&](int64_t row) { return load_unaligned<int64_t>(source + row * 8); });
        }
      case ValueClass::u64:
        switch (values_view->width) {
          case 1: return each(words.data(), [&](int64_t row) -> uint64_t { return source[row]; });
          case 2: return each(words.data(), [&](int64_t row) -> uint64_t { return load_unaligned<uint16_t>(source + row * 2); });
          case 4: return each(words.data(), [&](int64_t row) -> uint64_t { return load_unaligned<uint32_t>(source + row * 4); });
          default: return each(words.data(), [&](int64_t row) { return load_unaligned<uint64_t>(source + row * 8); });
        }
      case ValueClass::f64:
        switch (values_view->width) {
          case 2: return each(as_double, [&](int64_t row) { return half_to_double(load_unaligned<uint16_t>(source + row * 2)); });
          case 4: return each(as_double, [&](int64_t row) -> double { return load_unaligned<float>(source + row * 4); });
          default: return each(as_double, [&](int64_t row) { return load_unaligned<double>(source + row * 8); });
        }
      case ValueClass::i128:
        return each(reinterpret_cast<Int128Words*>(words.data()),
                    [&](int64_t row) { return load_unaligned<Int128Words>(source + row * 16); });
    }
  }
};

// ---- frames ---------------------------------------------------------------------------------------------------------------------

constexpr uint32_t kNoEntry = 0xffffffffu;

// The keys that have rows in one frame (or in the running window), and the fields of each, packed in order of arrival.
struct Frame {
  int64_t end = 0;
  uint32_t count = 0, capacity = 0;
  std::vector<uint32_t> slots;          // by entry
  std::vector<uint32_t> entry_of_slot;  // kNoEntry where the key has none
  std::vector<Block> states;            // by field; an absent block of nulls means that there is none
  std::vector<Block> after;             // by field that is not exact, in frames of the front and in the running window

  uint8_t* state(size_t field) const { return states[field].get(); }
  const uint64_t* rows() const { return reinterpret_cast<const uint64_t*>(states[0].get()); }
  uint32_t find(uint32_t slot) const { return slot < entry_of_slot.size() ? entry_of_slot[slot] : kNoEntry; }
};

// Rows of one frame: `count` places from `start` in the order of GroupedRows.
struct FrameGroup {
  int64_t frame;
  int64_t start, count;
};

// The rows of a batch by ascending frame, in their own order within each.
struct GroupedRows {
  bool in_order = false;        // place = row: `rows` is not filled
  std::vector<int32_t> rows;    // by place
  std::vector<FrameGroup> groups;
  int64_t count = 0;

  const int32_t* rows_at(int64_t place) const { return in_order ? nullptr : rows.data() + place; }
  int32_t row_at(int64_t place) const { return in_order ? static_cast<int32_t>(place) : rows[place]; }
};

struct BatchColumns {
  int64_t row_count = 0;
  std::vector<ColumnView> keys;
  ColumnView time;
  std::vector<ColumnView> values;
};

// A batch of partial results: one row per key and frame.
struct PartialColumns {
  int64_t row_count = 0;
  std::vector<ColumnView> keys;
  ColumnView frame;                // int64, no nulls
  std::vector<ColumnView> fields;  // fixed, no nulls
};

struct MemoryUse {
  int64_t keys, frames, entries, key_bytes, frame_bytes;
};

class KeyedFrames {
 public:
  KeyedFrames(TableSpec spec, Arena& arena)
      : shape_(spec.shape), aggregates_(std::move(spec.aggregates)), value_types_(std::move(spec.value_types)),
        keys_(std::move(spec.key_types)), arena_(arena), divider_(spec.shape.slide) {
    if (shape_.slide <= 0 || shape_.size <= 0 || shape_.size % shape_.slide != 0)
      throw std::invalid_argument("window size must be a positive multiple of the slide");
    if (shape_.offset < 0 || shape_.offset >= shape_.slide)
      throw std::invalid_argument("window offset must be in [0, slide)");
    fields_.emplace_back(FieldKind::rows, ValueClass::u64, -1);
    columns_.resize(value_types_.size());
    widened_.resize(value_types_.size());
    const auto add = [this](int& index, FieldKind kind, int column) {
      if (index >= 0) return;
      index = static_cast<int>(fields_.size());
      fields_.emplace_back(kind, value_class_of(value_types_[column]), column);
    };
    for (const AggregateSpec& aggregate : aggregates_) {
      if (aggregate.column < 0) continue;
      ColumnFields& column = columns_[aggregate.column];
      add(column.nulls, FieldKind::nulls, aggregate.column);
      switch (aggregate.kind) {
        case AggregateKind::count:
        case AggregateKind::count_values: break;
        case AggregateKind::sum:
        case AggregateKind::mean: {
          const ValueClass value_class = value_class_of(value_types_[aggregate.column]);
          add(column.sum,
              value_class == ValueClass::f64    ? FieldKind::sum_float
              : value_class == ValueClass::i128 ? FieldKind::sum192
                                                : FieldKind::sum128,
              aggregate.column);
          break;
        }
        case AggregateKind::minimum: add(column.minimum, FieldKind::minimum, aggregate.column); break;
        case AggregateKind::maximum: add(column.maximum, FieldKind::maximum, aggregate.column); break;
        default: add(column.moments, FieldKind::moments, aggregate.column); break;
      }
    }
    for (const Field& field : fields_) all_exact_ = all_exact_ && field.exact;
    delta_ = new_frame();
  }
  KeyedFrames(const KeyedFrames&) = delete;
  KeyedFrames& operator=(const KeyedFrames&) = delete;

  int64_t rows = 0;           // all rows taken in
  int64_t rejected_rows = 0;  // of them, without a time

  const std::vector<Field>& fields() const { return fields_; }
  const WindowShape& shape() const { return shape_; }
  KeyIndex& keys() { return keys_; }

  MemoryUse memory() const {
    MemoryUse use{keys_in_frames(), static_cast<int64_t>(frames_.size()), 0, 0, 0};
    use.key_bytes = keys_.bytes() + static_cast<int64_t>(frames_of_slot_.capacity() * sizeof(uint32_t));
    const auto add = [&](const Frame& frame) {
      use.frame_bytes += static_cast<int64_t>((frame.slots.capacity() + frame.entry_of_slot.capacity()) * sizeof(uint32_t));
      for (size_t field = 0; field < fields_.size(); ++field) {
        const int64_t bytes = int64_t{frame.capacity} * fields_[field].width;
        if (frame.states[field]) use.frame_bytes += bytes;
        if (frame.after[field]) use.frame_bytes += bytes;
      }
    };
    for (const auto& item : frames_) {
      add(*item.second);
      use.entries += item.second->count;
    }
    for (const auto& frame : spare_frames_) add(*frame);
    add(*delta_);
    return use;
  }

  // ---- partial results, out of this table

  // Entries of several frames as columns: keys, frame, then one column per field.
  Rows partial_rows(const std::vector<std::pair<const Frame*, uint32_t>>& entries) const {
    const auto count = static_cast<int64_t>(entries.size());
    std::vector<uint32_t> slots(entries.size());
    for (size_t i = 0; i < entries.size(); ++i) slots[i] = entries[i].first->slots[entries[i].second];
    Rows result = partial_keys(slots.data(), count);
    auto* ends = result.columns[keys_.types().size()].mutable_values<int64_t>();
    for (size_t i = 0; i < entries.size(); ++i) ends[i] = entries[i].first->end;
    for (size_t field = 0; field < fields_.size(); ++field) {
      const int32_t width = fields_[field].width;
      auto* target = result.columns[keys_.types().size() + 1 + field].mutable_values<uint8_t>();
      for (int64_t i = 0; i < count; ++i) {
        const auto& [frame, entry] = entries[static_cast<size_t>(i)];
        if (frame->states[field])
          std::memcpy(target + i * width, frame->state(field) + int64_t{entry} * width, static_cast<size_t>(width));
        else
          std::memset(target + i * width, 0, static_cast<size_t>(width));
      }
    }
    return result;
  }

  static ColumnView partial_type(const Field& field) {
    if (field.kind == FieldKind::rows || field.kind == FieldKind::nulls) return fixed_type(Kind::int64, 8);
    if (field.kind == FieldKind::minimum || field.kind == FieldKind::maximum) {
      if (field.value_class == ValueClass::i64) return fixed_type(Kind::int64, 8);
      if (field.value_class == ValueClass::u64) return fixed_type(Kind::uint64, 8);
      if (field.value_class == ValueClass::f64) return fixed_type(Kind::float64, 8);
    }
    return fixed_type(Kind::fixed_binary, field.width);
  }

 protected:
  Rows partial_keys(const uint32_t* slots, int64_t count) const {
    Rows result;
    result.row_count = count;
    result.columns = keys_.keys_of(slots, count, arena_);
    result.columns.push_back(allocate_fixed(arena_, fixed_type(Kind::int64, 8), count));
    for (const Field& field : fields_) result.columns.push_back(allocate_fixed(arena_, partial_type(field), count));
    return result;
  }

  // ---- rows by frame

  void group_rows(const ColumnView& time, int64_t row_count) {
    GroupedRows& grouped = grouped_;
    grouped.groups.clear();
    grouped.rows.clear();
    const int64_t* times = static_cast<const int64_t*>(time.values);
    bool all_valid = time.validity == nullptr && time.kind != Kind::null;
    if (time.kind == Kind::null) {
      rejected_rows += row_count;
      grouped.in_order = false;
      grouped.count = 0;
      return;
    }
    if (time.kind != Kind::timestamp || time.unit != TimeUnit::micro || reinterpret_cast<uintptr_t>(times) % 8 != 0)
      times = convert_times(time, all_valid);
    else
      converts_.clear();
    grouped.in_order = all_valid;
    if (!all_valid) {
      for (int64_t row = 0; row < row_count; ++row)
        if (time.is_valid(row) && (converts_.empty() || converts_[row])) grouped.rows.push_back(static_cast<int32_t>(row));
      rejected_rows += row_count - static_cast<int64_t>(grouped.rows.size());
      grouped.count = static_cast<int64_t>(grouped.rows.size());
    } else {
      grouped.count = row_count;
    }
    if (grouped.count == 0) return;
    const int64_t count = grouped.count;
    int64_t least = kMaxTime, greatest = kMinTime;
    if (grouped.in_order) {
      find_span(times, count, &least, &greatest);
    } else {
      for (const int32_t row : grouped.rows) {
        least = std::min(least, times[row]);
        greatest = std::max(greatest, times[row]);
      }
    }
    // The base may lie below MIN_TIME: differences are taken modulo 2^64, where they are right unless the span is of that size.
    const uint64_t base = static_cast<uint64_t>(least) - static_cast<uint64_t>(shape_.past_boundary(least));
    const bool far_apart = (static_cast<uint64_t>(greatest) - static_cast<uint64_t>(least)) >> 62;
    const uint64_t last = far_apart ? ~uint64_t{0} : divider_.divide(static_cast<uint64_t>(greatest) - base);
    if (last == 0) {
      grouped.groups.push_back({shape_.frame_of(least), 0, count});
      return;
    }
    if (last < 4 * static_cast<uint64_t>(count) + 64) {  // counting sort
      frame_numbers_.resize(static_cast<size_t>(count));
      uint32_t* numbers = frame_numbers_.data();
      if (grouped.in_order && (static_cast<uint64_t>(greatest) - base) >> 52 == 0)
        number_frames(times, count, static_cast<int64_t>(base), divider_, numbers);
      else
        for (int64_t i = 0; i < count; ++i)
          numbers[i] = static_cast<uint32_t>(divider_.divide(static_cast<uint64_t>(times[grouped.row_at(i)]) - base));
      sorted_rows_.resize(static_cast<size_t>(count) + 1);  // one more: what is written last is not always kept
      if (last < 4 && grouped.in_order) {  // a pass for each frame, without branches and without waiting for counters
        int64_t place = 0;
        for (uint32_t number = 0; number <= last; ++number) {
          const int64_t start = place;
          for (int64_t row = 0; row < count; ++row) {
            sorted_rows_[place] = static_cast<int32_t>(row);
            place += numbers[row] == number;
          }
          if (place > start) grouped.groups.push_back({shape_.frame_of(times[sorted_rows_[start]]), start, place - start});
        }
        sorted_rows_.resize(static_cast<size_t>(count));
        grouped.rows.swap(sorted_rows_);
        grouped.in_order = false;
        return;
      }
      starts_.assign(static_cast<size_t>(last) + 2, 0);
      for (int64_t i = 0; i < count; ++i) ++starts_[numbers[i] + 1];
      for (uint64_t number = 0; number <= last; ++number) {
        const int64_t group_count = starts_[number + 1];
        starts_[number + 1] += starts_[number];
        if (group_count > 0) grouped.groups.push_back({0, starts_[number], group_count});
      }
      sorted_rows_.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) sorted_rows_[starts_[frame_numbers_[i]]++] = grouped.row_at(i);
      for (FrameGroup& group : grouped.groups) group.frame = shape_.frame_of(times[sorted_rows_[group.start]]);
    } else {  // rows far apart
      sorted_rows_.resize(static_cast<size_t>(count));
      for (int64_t i = 0; i < count; ++i) sorted_rows_[i] = grouped.row_at(i);
      frame_ends_.resize(static_cast<size_t>(row_count));
      for (const int32_t row : sorted_rows_) frame_ends_[row] = shape_.frame_of(times[row]);
      sort_by_frame(frame_ends_.data());
      return;
    }
    grouped.rows.swap(sorted_rows_);
    grouped.in_order = false;
  }

  // Groups sorted_rows_ by ends[row].
  void sort_by_frame(const int64_t* ends) {
    GroupedRows& grouped = grouped_;
    const auto before = [ends](int32_t left, int32_t right) { return ends[left] < ends[right]; };
    if (!std::is_sorted(sorted_rows_.begin(), sorted_rows_.end(), before))
      std::stable_sort(sorted_rows_.begin(), sorted_rows_.end(), before);
    grouped.rows.swap(sorted_rows_);
    grouped.in_order = false;
    grouped.count = static_cast<int64_t>(grouped.rows.size());
    for (int64_t place = 0; place < grouped.count; ++place) {
      const int64_t end = ends[grouped.rows[place]];
      if (grouped.groups.empty() || grouped.groups.back().frame != end) grouped.groups.push_back({end, place, 0});
      ++grouped.groups.back().count;
    }
  }

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

  // ---- frames

  std::unique_ptr<Frame> new_frame() {
    if (!spare_frames_.empty()) {
      std::unique_ptr<Frame> frame = std::move(spare_frames_.back());
      spare_frames_.pop_back();
      return frame;
    }
    auto frame = std::make_unique<Frame>();
    frame->states.resize(fields_.size());
    frame->after.resize(fields_.size());
    grow(*frame, 64);
    return frame;
  }

  Frame& frame_at(int64_t end) {
    auto found = frames_.lower_bound(end);
    if (found != frames_.end() && found->first == end) return *found->second;
    std::unique_ptr<Frame> frame = new_frame();
    frame->end = end;
    return *frames_.emplace_hint(found, end, std::move(frame))->second;
  }

  // Empty a frame, keeping its memory.
  void clear(Frame& frame) {
    for (uint32_t entry = 0; entry < frame.count; ++entry) frame.entry_of_slot[frame.slots[entry]] = kNoEntry;
    frame.count = 0;
    for (size_t field = 0; field < fields_.size(); ++field) {
      if (fields_[field].kind == FieldKind::nulls) frame.states[field].reset();
      frame.after[field].reset();
    }
  }

  // A frame leaves the table: keys without another frame are idle, and may lose their slot at the next free_slots.
  void retire(std::unique_ptr<Frame> frame) {
    for (uint32_t entry = 0; entry < frame->count; ++entry) {
      const uint32_t slot = frame->slots[entry];
      if (--frames_of_slot_[slot] > 0) continue;
      ++idle_keys_;
      if (is_listed_[slot]) continue;
      is_listed_[slot] = 1;
      idle_slots_.push_back(slot);
    }
    clear(*frame);
    // As many spares as there are frames cover a change of pace; more would keep the memory of a peak.
    if (spare_frames_.size() <= frames_.size() + 2) spare_frames_.push_back(std::move(frame));
  }

  // Keys that left every frame often come back at once (always, in a tumbling window): they give up their slots when there
  // are more of them than of the others, so that memory still is bounded by the keys that are in the frames.
  void free_slots() {
    if (idle_keys_ <= 1024 + keys_in_frames()) return;
    for (const uint32_t slot : idle_slots_) {
      is_listed_[slot] = 0;
      if (frames_of_slot_[slot] == 0) keys_.release(slot);
    }
    idle_slots_.clear();
    idle_keys_ = 0;
  }

  int64_t keys_in_frames() const { return keys_.live() - idle_keys_; }

  void grow(Frame& frame, uint32_t capacity) {
    for (size_t field = 0; field < fields_.size(); ++field) {
      const int64_t width = fields_[field].width;
      const auto widen = [&](Block& block) {
        Block larger = arena_.allocate(capacity * width);
        if (block) std::memcpy(larger.get(), block.get(), static_cast<size_t>(frame.count * width));
        block = std::move(larger);
      };
      if (frame.states[field] || fields_[field].kind != FieldKind::nulls) widen(frame.states[field]);
      if (frame.after[field]) widen(frame.after[field]);
    }
    frame.slots.resize(capacity);
    frame.capacity = capacity;
  }

  void need_nulls(Frame& frame, size_t field) {
    if (frame.states[field]) return;
    frame.states[field] = arena_.allocate(int64_t{frame.capacity} * 8);
    std::memset(frame.states[field].get(), 0, size_t{frame.count} * 8);
  }

  void need_after(Frame& frame) {
    for (size_t field = 0; field < fields_.size(); ++field)
      if (!fields_[field].exact && !frame.after[field])
        frame.after[field] = arena_.allocate(int64_t{frame.capacity} * fields_[field].width);
  }

  // entries[i] = entry of slots[i], made if there is none yet (its fields then are the identity).
  // `counted`: entries of this frame keep their key alive. With `count_rows`, each i also is one row of its entry.
  template <bool count_rows = false>
  void enter(Frame& frame, const uint32_t* slots, int64_t count, uint32_t* entries, bool counted) {
    if (frame.entry_of_slot.size() < keys_.slot_limit()) {
      // Grow ahead of the slots, so that the arrays of many frames do not grow with each new key.
      frame.entry_of_slot.resize(std::max<size_t>(keys_.slot_limit() + keys_.slot_limit() / 4, 64), kNoEntry);
    }
    const uint32_t old_count = frame.count;
    uint32_t* entry_of_slot = frame.entry_of_slot.data();
    auto* row_counts = reinterpret_cast<uint64_t*>(frame.state(0));
    const bool far = frame.entry_of_slot.size() * sizeof(uint32_t) > kPrefetchBytes;
    for (int64_t i = 0; i < count; ++i) {
      if (far && i + kPrefetchRows < count) prefetch(&entry_of_slot[slots[i + kPrefetchRows]]);
      uint32_t entry = entry_of_slot[slots[i]];
      if (entry == kNoEntry) {
        if (frame.count == frame.capacity) {
          grow(frame, frame.capacity * 2);
          row_counts = reinterpret_cast<uint64_t*>(frame.state(0));
        }
        entry = frame.count++;
        frame.slots[entry] = slots[i];
        entry_of_slot[slots[i]] = entry;
        row_counts[entry] = 0;
      }
      entries[i] = entry;
      if constexpr (count_rows) ++row_counts[entry];
    }
    if (frame.count == old_count) return;
    for (size_t field = 1; field < fields_.size(); ++field) {
      if (frame.states[field]) fill_identity(fields_[field], frame.state(field), old_count, frame.count);
      if (frame.after[field]) fill_identity(fields_[field], frame.after[field].get(), old_count, frame.count);
    }
    if (counted) {
      if (frames_of_slot_.size() < keys_.slot_limit()) {
        frames_of_slot_.resize(keys_.slot_limit(), 0);
        is_listed_.resize(keys_.slot_limit(), 0);
      }
      for (uint32_t entry = old_count; entry < frame.count; ++entry) {
        const uint32_t slot = frame.slots[entry];
        idle_keys_ -= frames_of_slot_[slot]++ == 0 && is_listed_[slot];
      }
    }
  }

  // Rows enter a frame: slots[i] is the key of row rows[i] (row i without `rows`).
  void add_rows(Frame& frame, const uint32_t* slots, const int32_t* rows, int64_t count, bool counted) {
    entries_.resize(static_cast<size_t>(count));
    enter<true>(frame, slots, count, entries_.data(), counted);
    for (size_t index = 0; index < columns_.size(); ++index) {
      const ColumnFields& column = columns_[index];
      const WidenedColumn& widened = widened_[index];
      const uint32_t* entries = entries_.data();
      const int32_t* value_rows = rows;
      int64_t value_count = count;
      if (widened.has_nulls) {
        valid_entries_.clear();
        valid_rows_.clear();
        null_entries_.clear();
        for (int64_t i = 0; i < count; ++i) {
          const int64_t row = rows ? rows[i] : i;
          if (widened.valid[row]) {
            valid_entries_.push_back(entries_[i]);
            valid_rows_.push_back(static_cast<int32_t>(row));
          } else {
            null_entries_.push_back(entries_[i]);
          }
        }
        if (!null_entries_.empty()) {
          need_nulls(frame, column.nulls);
          accumulate_values(fields_[column.nulls], frame.state(column.nulls), null_entries_.data(), nullptr,
                            static_cast<int64_t>(null_entries_.size()), nullptr, false);
        }
        entries = valid_entries_.data();
        value_rows = valid_rows_.data();
        value_count = static_cast<int64_t>(valid_entries_.size());
      }
      for (const int field : {column.sum, column.minimum, column.maximum, column.moments})
        if (field >= 0)
          accumulate_values(fields_[field], frame.state(field), entries, value_rows, value_count, widened.values,
                            static_cast<size_t>(frame.count) * static_cast<size_t>(fields_[field].width) > kPrefetchBytes);
    }
  }

  // Partial results enter a frame.
  void add_partials(Frame& frame, const uint32_t* slots, const int32_t* rows, int64_t count,
                    const std::vector<ColumnView>& sources, bool counted) {
    entries_.resize(static_cast<size_t>(count));
    enter(frame, slots, count, entries_.data(), counted);
    for (size_t field = 0; field < fields_.size(); ++field) {
      const auto* source = static_cast<const uint8_t*>(sources[field].values);
      if (fields_[field].kind == FieldKind::nulls && !frame.states[field]) {
        bool any = false;
        for (int64_t i = 0; i < count; ++i) any |= load_unaligned<int64_t>(source + (rows ? rows[i] : i) * 8) != 0;
        if (!any) continue;
        need_nulls(frame, field);
      }
      combine_states(fields_[field], frame.state(field), entries_.data(), source, rows, count);
    }
  }

  // Everything in `source` enters `target`.
  void add_frame(Frame& target, const Frame& source, bool counted) {
    entries_.resize(source.count);
    enter(target, source.slots.data(), source.count, entries_.data(), counted);
    for (size_t field = 0; field < fields_.size(); ++field) combine_field(target, source, field);
  }

  // After `enter`: one field of `source`, whose keys are entries_ of `target`.
  void combine_field(Frame& target, const Frame& source, size_t field) {
    if (!source.states[field]) return;
    if (fields_[field].kind == FieldKind::nulls) need_nulls(target, field);
    combine_states(fields_[field], target.state(field), entries_.data(), source.state(field), nullptr, source.count);
  }

  void widen_values(const std::vector<ColumnView>& values) {
    for (size_t index = 0; index < columns_.size(); ++index) {
      const ColumnFields& column = columns_[index];
      const bool needs_values = column.sum >= 0 || column.minimum >= 0 || column.maximum >= 0 || column.moments >= 0;
      widened_[index].widen(values[index], value_class_of(value_types_[index]), needs_values);
    }
  }

  WindowShape shape_;
  std::vector<AggregateSpec> aggregates_;
  std::vector<ColumnView> value_types_;
  std::vector<Field> fields_;
  std::vector<ColumnFields> columns_;
  bool all_exact_ = true;
  KeyIndex keys_;
  Arena& arena_;
  FrameDivider divider_;
  std::map<int64_t, std::unique_ptr<Frame>> frames_;  // by end
  std::vector<std::unique_ptr<Frame>> spare_frames_;
  std::unique_ptr<Frame> delta_;                      // rows on their way into a frame that the running window holds
  std::vector<uint32_t> frames_of_slot_;              // frames that hold the key
  std::vector<uint8_t> is_listed_;                    // the key is in idle_slots_, idle or not
  std::vector<uint32_t> idle_slots_;
  int64_t idle_keys_ = 0;                             // keys with a slot and without a frame

  // scratch, kept between batches
  GroupedRows grouped_;
  std::vector<WidenedColumn> widened_;
  std::vector<uint32_t> slots_, entries_, valid_entries_, null_entries_, frame_numbers_;
  std::vector<int32_t> valid_rows_, sorted_rows_;
  std::vector<int64_t> starts_, times_, frame_ends_;
  std::vector<uint8_t> converts_;
};

// ---- first stage of two ---------------------------------------------------------------------------------------------------------

class FrameTable : public KeyedFrames {
 public:
  using KeyedFrames::KeyedFrames;

  void accumulate(const BatchColumns& batch) {
    if (has_due()) throw std::invalid_argument("take all partials that are due (until None) before more rows come in");
    taking_ = flushing_ = false;
    rows += batch.row_count;
    group_rows(batch.time, batch.row_count);
    if (grouped_.count == 0) return;
    widen_values(batch.values);
    slots_.resize(static_cast<size_t>(grouped_.count));
    keys_.find_or_insert(batch.keys.data(), grouped_.rows_at(0), grouped_.count, slots_.data());
    for (const FrameGroup& group : grouped_.groups)
      add_rows(frame_at(group.frame), slots_.data() + group.start, grouped_.rows_at(group.start), group.count, true);
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

// ---- the window -----------------------------------------------------------------------------------------------------------------

// A result that its type cannot hold; which one is in WindowTable::overflow.
struct ResultOverflow : std::overflow_error {
  using std::overflow_error::overflow_error;
};

struct LateRows {
  std::vector<int32_t> rows;  // ascending
  std::vector<int64_t> missed_until;
};

class WindowTable : public KeyedFrames {
 public:
  WindowTable(TableSpec spec, Arena& arena)
      : KeyedFrames(spec, arena), partition_count_(spec.partition_count), running_(new_frame()) {
    if (partition_count_ < 1) throw std::invalid_argument("partition_count must be at least 1");
    if (shape_.frames() > 1) need_after(*running_);
  }

  int64_t late_rows = 0;         // missed every window
  int64_t partly_late_rows = 0;  // missed some

  struct Overflow {
    int aggregate;
    uint32_t slot;
    int64_t window_end;
  } overflow{0, 0, 0};

  int64_t watermark() const { return watermark_; }
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

  // The bound that `save` goes with: no window of this partition with an end at or below it will be emitted again.
  int64_t bound(int32_t partition) const {
    return bounds_.empty() ? watermark_ : std::max(watermark_, bounds_[static_cast<size_t>(partition)]);
  }

  void add_counters(int64_t more_rows, int64_t rejected, int64_t late, int64_t partly_late) {
    rows += more_rows;
    rejected_rows += rejected;
    late_rows += late;
    partly_late_rows += partly_late;
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

  // ---- partitions

  // row_partitions_ = partition of each row of a batch (0 without keys).
  void assign_row_partitions(const std::vector<ColumnView>& keys, int64_t row_count) {
    row_partitions_.assign(static_cast<size_t>(row_count), 0);
    if (keys.empty() || row_count == 0) return;
    auto* hashes = reinterpret_cast<uint32_t*>(row_partitions_.data());
    for (int64_t row = 0; row < row_count; ++row) hashes[row] = kHashSeed;
    bool uniform = true;
    for (const ColumnView& view : keys) {
      Block scratch;
      if (hash_scratch_values(view) > 0) scratch = arena_.allocate(hash_scratch_values(view) * 4);
      hash_column(view, uniform, kHashSeed, hashes, reinterpret_cast<int32_t*>(scratch.get()));
      uniform = uniform && view.kind == Kind::null;
    }
    jetfast::assign_partitions(hashes, row_count, partition_count_, row_partitions_.data());
  }

  // partition_of_slot_ of every key that is there, a part at a time so that the copies of keys stay small.
  void assign_slot_partitions() {
    partition_of_slot_.resize(keys_.slot_limit(), 0);
    std::vector<uint32_t> slots;
    for (uint32_t slot = 0; slot < frames_of_slot_.size(); ++slot) {
      if (frames_of_slot_[slot] > 0) slots.push_back(slot);
      if (slots.size() < 65536 && slot + 1 < frames_of_slot_.size()) continue;
      const std::vector<Column> columns = keys_.keys_of(slots.data(), static_cast<int64_t>(slots.size()), arena_);
      std::vector<ColumnView> views;
      for (const Column& column : columns) views.push_back(column.view);
      assign_row_partitions(views, static_cast<int64_t>(slots.size()));
      for (size_t i = 0; i < slots.size(); ++i) partition_of_slot_[slots[i]] = row_partitions_[i];
      slots.clear();
    }
  }

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
        const Frame& frame = *next->second;
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

  struct ResultRows {
    int64_t count = 0, capacity = 0;
    std::vector<uint32_t> slots;
    std::vector<Column> columns;  // window start, window end, aggregates
  };

  // Returns how many rows there is room for.
  int64_t allocate_results(ResultRows& out, int64_t rows_max) {
    // No more windows can follow than there are slides up to the last due one, and frames times windows of each.
    const uint64_t span = static_cast<uint64_t>(due_) - static_cast<uint64_t>(window_end_);
    const double slides = static_cast<double>(span / static_cast<uint64_t>(shape_.slide)) + 2;
    const double windows = std::min(slides, static_cast<double>(frames_.size() + 1) * static_cast<double>(shape_.frames()));
    const double rows_bound = windows * static_cast<double>(keys_.live());
    out.capacity = rows_bound < static_cast<double>(rows_max) ? static_cast<int64_t>(rows_bound) : rows_max;
    out.slots.reserve(static_cast<size_t>(out.capacity));
    const ColumnView time = fixed_type(Kind::timestamp, 8);
    out.columns.push_back(allocate_fixed(arena_, time, out.capacity));
    out.columns.push_back(allocate_fixed(arena_, time, out.capacity));
    for (const AggregateSpec& aggregate : aggregates_) {
      const bool nullable = aggregate.kind != AggregateKind::count && aggregate.kind != AggregateKind::count_values;
      out.columns.push_back(allocate_fixed(arena_, aggregate.result_type, out.capacity, nullable));
    }
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
    auto* starts = out.columns[0].mutable_values<int64_t>() + out.count;
    auto* ends = out.columns[1].mutable_values<int64_t>() + out.count;
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
    for (size_t index = 0; index < aggregates_.size(); ++index)
      write_aggregate(index, states, window.slots.data() + start, count, out.columns[2 + index], out.count);
    out.count += count;
  }

  Rows finish_results(ResultRows& out) {
    Rows result;
    result.row_count = out.count;
    result.columns = keys_.keys_of(out.slots.data(), out.count, arena_);
    for (Column& column : out.columns) {
      column.view.row_count = out.count;
      settle_nulls(column.view);
      result.columns.push_back(std::move(column));
    }
    return result;
  }

  void write_aggregate(size_t index, const std::vector<const uint8_t*>& states, const uint32_t* slots, int64_t count,
                       Column& column, int64_t offset) {
    const AggregateSpec& aggregate = aggregates_[index];
    const auto* row_counts = reinterpret_cast<const uint64_t*>(states[0]);
    auto* values = column.mutable_values<uint8_t>();
    if (aggregate.kind == AggregateKind::count) {
      std::memcpy(values + offset * 8, row_counts, static_cast<size_t>(count) * 8);
      return;
    }
    const ColumnFields& fields = columns_[aggregate.column];
    const ColumnView& value_type = value_types_[aggregate.column];
    const auto* nulls = reinterpret_cast<const uint64_t*>(states[fields.nulls]);
    const auto value_count = [&](int64_t i) { return nulls ? row_counts[i] - nulls[i] : row_counts[i]; };
    uint8_t* validity = column.mutable_validity();
    const auto set_null = [&](int64_t i) { set_bit_to(validity, offset + i, false); };
    const auto fail = [&](int64_t i) {
      overflow = {static_cast<int>(index), slots[i], window_end_};
      throw ResultOverflow("a result does not fit its type");
    };
    // target[i] = make(i, number of values), null where there is none
    const auto each = [&](auto* target, auto make) {
      target += offset;
      for (int64_t i = 0; i < count; ++i) {
        const uint64_t number = value_count(i);
        if (number == 0) {
          target[i] = {};
          set_null(i);
        } else {
          target[i] = make(i, number);
        }
      }
    };
    auto* doubles = reinterpret_cast<double*>(values);
    const double scale = is_decimal(value_type.kind) ? std::pow(10.0, -value_type.scale) : 1.0;
    switch (aggregate.kind) {
      case AggregateKind::count: return;
      case AggregateKind::count_values: {
        auto* target = reinterpret_cast<int64_t*>(values) + offset;
        for (int64_t i = 0; i < count; ++i) target[i] = static_cast<int64_t>(value_count(i));
        return;
      }
      case AggregateKind::sum:
      case AggregateKind::mean: {
        const bool mean = aggregate.kind == AggregateKind::mean;
        const FieldKind kind = fields_[fields.sum].kind;
        if (kind == FieldKind::sum_float) {
          const auto* sums = reinterpret_cast<const FloatSum*>(states[fields.sum]);
          if (mean) return each(doubles, [&](int64_t i, uint64_t number) { return sums[i].get() / static_cast<double>(number); });
          return each(doubles, [&](int64_t i, uint64_t) { return sums[i].get(); });
        }
        if (is_decimal(value_type.kind)) {
          const auto sum_of = [&](int64_t i) {
            return kind == FieldKind::sum192 ? reinterpret_cast<const Sum192*>(states[fields.sum])[i]
                                             : Sum192::of(reinterpret_cast<const Int128Words*>(states[fields.sum])[i].get());
          };
          const uint128 limit = power_of_ten(aggregate.result_type.precision);
          const int more_digits = mean ? aggregate.result_type.scale - value_type.scale : 0;
          return each(reinterpret_cast<Int128Words*>(values), [&](int64_t i, uint64_t number) {
            Sum192 sum = sum_of(i);
            const bool negative = sum.negative();
            if (negative) sum.negate();
            for (int digit = 0; digit < more_digits; ++digit) multiply(sum, 10);
            if (mean) divide_half_up(sum, number);
            const uint128 size = (static_cast<uint128>(sum.words[1]) << 64) | sum.words[0];
            if (sum.words[2] != 0 || size >= limit) fail(i);
            return Int128Words(negative ? -static_cast<int128>(size) : static_cast<int128>(size));
          });
        }
        const auto* sums = reinterpret_cast<const Int128Words*>(states[fields.sum]);
        if (mean)
          return each(doubles, [&](int64_t i, uint64_t number) {
            return static_cast<double>(sums[i].get()) / static_cast<double>(number);
          });
        return each(reinterpret_cast<int64_t*>(values), [&](int64_t i, uint64_t) {
          if (sums[i].high != (static_cast<int64_t>(sums[i].low) >> 63)) fail(i);
          return static_cast<int64_t>(sums[i].low);
        });
      }
      case AggregateKind::minimum:
      case AggregateKind::maximum: {
        const uint8_t* extremes = states[aggregate.kind == AggregateKind::minimum ? fields.minimum : fields.maximum];
        const auto* words = reinterpret_cast<const uint64_t*>(extremes);
        const auto* numbers = reinterpret_cast<const double*>(extremes);
        if (value_type.layout == Layout::bits) {
          for (int64_t i = 0; i < count; ++i) {
            if (value_count(i) == 0) set_null(i);
            set_bit_to(values, offset + i, value_count(i) > 0 && words[i] != 0);
          }
          return;
        }
        if (value_type.kind == Kind::float32)
          return each(reinterpret_cast<float*>(values), [&](int64_t i, uint64_t) { return static_cast<float>(numbers[i]); });
        if (value_type.kind == Kind::float16)
          return each(reinterpret_cast<uint16_t*>(values), [&](int64_t i, uint64_t) { return double_to_half(numbers[i]); });
        switch (value_type.width) {
          case 1: return each(values, [&](int64_t i, uint64_t) { return static_cast<uint8_t>(words[i]); });
          case 2: return each(reinterpret_cast<uint16_t*>(values), [&](int64_t i, uint64_t) { return static_cast<uint16_t>(words[i]); });
          case 4: return each(reinterpret_cast<uint32_t*>(values), [&](int64_t i, uint64_t) { return static_cast<uint32_t>(words[i]); });
          case 8: return each(reinterpret_cast<uint64_t*>(values), [&](int64_t i, uint64_t) { return words[i]; });
          default:
            return each(reinterpret_cast<Int128Words*>(values),
                        [&](int64_t i, uint64_t) { return reinterpret_cast<const Int128Words*>(extremes)[i]; });
        }
      }
      default: {
        const bool sample = aggregate.kind == AggregateKind::var_samp || aggregate.kind == AggregateKind::stddev_samp;
        const bool root = aggregate.kind == AggregateKind::stddev_samp || aggregate.kind == AggregateKind::stddev_pop;
        const auto* moments = reinterpret_cast<const Moments*>(states[fields.moments]);
        return each(doubles, [&](int64_t i, uint64_t number) {
          if (sample && number < 2) {
            set_null(i);
            return 0.0;
          }
          const double variance = moments[i].squares * scale * scale / static_cast<double>(sample ? number - 1 : number);
          return root ? std::sqrt(variance) : variance;
        });
      }
    }
  }

  static uint128 power_of_ten(int exponent) {
    uint128 power = 1;
    for (int digit = 0; digit < exponent; ++digit) power *= 10;
    return power;
  }
  // Of a size that is not negative.
  static void multiply(Sum192& size, uint64_t factor) {
    uint128 carry = 0;
    for (uint64_t& word : size.words) {
      carry += static_cast<uint128>(word) * factor;
      word = static_cast<uint64_t>(carry);
      carry >>= 64;
    }
  }
  static void divide_half_up(Sum192& size, uint64_t divisor) {
    uint128 rest = 0;
    for (int word = 2; word >= 0; --word) {
      const uint128 part = (rest << 64) | size.words[word];
      size.words[word] = static_cast<uint64_t>(part / divisor);
      rest = part % divisor;
    }
    if (rest >= divisor - rest) size.add(Sum192::of(1));
  }

  int32_t partition_count_;
  std::unique_ptr<Frame> running_;
  int64_t front_end_ = kMinTime;
  int64_t watermark_ = kMinTime;
  int64_t emitted_ = kMinTime;  // windows up to here are emitted or were empty
  int64_t due_ = kMinTime;
  bool emitting_ = false;
  const Frame* window_ = nullptr;  // being emitted: the running window, or the frame if size = slide
  int64_t window_end_ = kMinTime;
  uint32_t cursor_ = 0;
  int64_t first_accepted_ = 0;  // place of the first row of grouped_ that is not late
  std::vector<int64_t> bounds_;  // restored, by partition; empty once W has passed them all
  int64_t greatest_bound_ = kMinTime;
  std::vector<int32_t> partition_of_slot_, row_partitions_;
  std::vector<std::vector<uint64_t>> merged_;
};

}  // namespace jetfast
