// What tables that judge rows and emit results share: the counters, the partitions of rows, and how fields become results.
#pragma once

#include <cmath>
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
#include "jetfast/keyed_frames.hpp"
#include "jetfast/window_rows.hpp"
#include "jetfast/partition.hpp"
#include "jetfast/value_column.hpp"

namespace jetfast {

// A result that its type cannot hold; which one is in KeyedResults::overflow.
struct ResultOverflow : std::overflow_error {
  using std::overflow_error::overflow_error;
};

struct LateRows {
  std::vector<int32_t> rows;  // ascending
  std::vector<int64_t> missed_until;
};

class KeyedResults : public KeyedFrames {
 public:
  KeyedResults(TableSpec spec, Arena& arena) : KeyedFrames(spec, arena), partition_count_(spec.partition_count) {
    if (partition_count_ < 1) throw std::invalid_argument("partition_count must be at least 1");
  }

  virtual ~KeyedResults() = default;

  // Takes in rows; those that missed a window go to `late`, if it is given, with the end of the last one where there is one.
  virtual void accumulate(const BatchColumns& batch, LateRows* late) = 0;

  // Are results due? Then `emit` comes before anything else.
  virtual bool is_emitting() const = 0;

  // The next results, at most rows_max, by ascending window end; no rows: nothing is due any more.
  // Columns: keys, window start, window end, aggregates.
  virtual Rows emit(int64_t rows_max) = 0;

  // The fields of partial results and of saved rows.
  virtual const std::vector<Field>& partial_fields() const { return fields_; }

  // State as rows, about rows_max of them. `cursor` is kMinTime at first and moves on; no rows: that was all.
  virtual Rows save(int64_t& cursor, int64_t rows_max) = 0;

  virtual void restore_bound(int32_t partition, int64_t bound) = 0;

  // All state has come back.
  virtual void finish_restore() {}

  // Keys, frames and bounds fit each other; throws std::logic_error. Reads the whole table.
  virtual void check_invariants() const {
    KeyedFrames::check_invariants();
    JETFAST_INVARIANT(bounds_.empty() || bounds_.size() == static_cast<size_t>(partition_count_));
    JETFAST_INVARIANT(late_rows >= 0 && partly_late_rows >= 0);
    JETFAST_INVARIANT(late_rows + partly_late_rows <= rows);
    for (const int32_t partition : partition_of_slot_) JETFAST_INVARIANT(partition >= 0 && partition < partition_count_);
  }

  int64_t late_rows = 0;         // missed every window
  int64_t partly_late_rows = 0;  // missed some

  struct Overflow {
    int aggregate;
    uint32_t slot;
    int64_t window_start, window_end;
  } overflow{0, 0, 0, 0};

  int64_t watermark() const { return watermark_; }

  // The bound that `save` goes with: no window of this partition with an end at or below it will be emitted again.
  int64_t bound(int32_t partition) const {
    return bounds_.empty() ? watermark_ : std::max(watermark_, bounds_[static_cast<size_t>(partition)]);
  }

 protected:
  // hashes[row] = hash of the keys of each row of a batch, as partitions go by.
  void hash_rows(const std::vector<ColumnView>& keys, int64_t row_count, uint32_t* hashes) {
    std::fill_n(hashes, row_count, kHashSeed);
    bool uniform = true;
    for (const ColumnView& view : keys) {
      Block scratch;
      if (hash_scratch_values(view) > 0) scratch = arena_.allocate(hash_scratch_values(view) * 4);
      hash_column(view, uniform, kHashSeed, hashes, reinterpret_cast<int32_t*>(scratch.get()));
      uniform = uniform && view.kind == Kind::null;
    }
  }

  // row_partitions_ = partition of each row of a batch (0 without keys).
  void assign_row_partitions(const std::vector<ColumnView>& keys, int64_t row_count) {
    row_partitions_.assign(static_cast<size_t>(row_count), 0);
    if (keys.empty() || row_count == 0) return;
    auto* hashes = reinterpret_cast<uint32_t*>(row_partitions_.data());
    hash_rows(keys, row_count, hashes);
    jetfast::assign_partitions(hashes, row_count, partition_count_, row_partitions_.data());
  }

  // Calls work(keys, slots) for the keys of some slots, a part at a time so that the copies of keys stay small. `held`: by slot,
  // is it one of them?
  template <typename Held, typename Work>
  void each_part_of_keys(const std::vector<Held>& held, Work&& work) {
    std::vector<uint32_t> slots;
    for (uint32_t slot = 0; slot < held.size(); ++slot) {
      if (held[slot]) slots.push_back(slot);
      if (slots.size() < 65536 && slot + 1 < held.size()) continue;
      const std::vector<Column> columns = keys_.keys_of(slots.data(), static_cast<int64_t>(slots.size()), arena_);
      std::vector<ColumnView> views;
      for (const Column& column : columns) views.push_back(column.view);
      work(views, slots);
      slots.clear();
    }
  }

  // partition_of_slot_ of every key that is there. `held`: by slot, whether it is.
  template <typename Held>
  void assign_slot_partitions(const std::vector<Held>& held) {
    partition_of_slot_.resize(keys_.slot_limit(), 0);
    each_part_of_keys(held, [&](const std::vector<ColumnView>& keys, const std::vector<uint32_t>& slots) {
      assign_row_partitions(keys, static_cast<int64_t>(slots.size()));
      for (size_t i = 0; i < slots.size(); ++i) partition_of_slot_[slots[i]] = row_partitions_[i];
    });
  }

  // ---- results

  struct ResultRows {
    int64_t count = 0, capacity = 0;
    std::vector<uint32_t> slots;
    uint32_t first_slot = 0;      // without `slots`: they are those from here on
    std::vector<Column> columns;  // window start, window end, aggregates

    uint32_t slot_at(int64_t row) const {
      return slots.empty() ? first_slot + static_cast<uint32_t>(row) : slots[static_cast<size_t>(row)];
    }

    int64_t* starts() { return columns[0].mutable_values<int64_t>(); }
    int64_t* ends() { return columns[1].mutable_values<int64_t>(); }
  };

  // Columns for out.capacity rows.
  void allocate_columns(ResultRows& out) {
    out.slots.reserve(static_cast<size_t>(out.capacity));
    const ColumnView time = fixed_type(Kind::timestamp, 8);
    out.columns.push_back(allocate_fixed(arena_, time, out.capacity));
    out.columns.push_back(allocate_fixed(arena_, time, out.capacity));
    for (const AggregateSpec& aggregate : aggregates_) {
      const bool nullable = aggregate.kind != AggregateKind::count && aggregate.kind != AggregateKind::count_values;
      out.columns.push_back(allocate_fixed(arena_, aggregate.result_type, out.capacity, nullable));
    }
  }

  // Can a result be null although its key has rows, given the fields of the window?
  bool may_be_null(const AggregateSpec& aggregate, const Frame& window) const {
    switch (aggregate.kind) {
      case AggregateKind::count:
      case AggregateKind::count_values: return false;
      case AggregateKind::sum:
      case AggregateKind::mean:
      case AggregateKind::minimum:
      case AggregateKind::maximum: return window.states[columns_[aggregate.column].nulls] != nullptr;
      default: return true;
    }
  }

  Rows finish_results(ResultRows& out) {
    return finish_results_with(out, keys_.keys_of(out.slots.data(), out.count, arena_));
  }

  Rows finish_results_with(ResultRows& out, std::vector<Column> key_columns) {
    if (places) {
      places->places.resize(static_cast<size_t>(out.count));
      for (int64_t row = 0; row < out.count; ++row) places->places[static_cast<size_t>(row)] = out.slot_at(row);
    }
    Rows result;
    result.row_count = out.count;
    result.columns = std::move(key_columns);
    for (Column& column : out.columns) {
      column.view.row_count = out.count;
      settle_nulls(column.view);
      result.columns.push_back(std::move(column));
    }
    return result;
  }

  // The next `count` results, whose slots, starts and ends are there: fields as plain arrays of `count` states.
  void write_aggregates(ResultRows& out, const std::vector<const uint8_t*>& states, int64_t count) {
    for (size_t index = 0; index < aggregates_.size(); ++index) write_aggregate(index, out, states, count);
    out.count += count;
  }

  int32_t partition_count_;
  int64_t watermark_ = kMinTime;
  std::vector<int64_t> bounds_;  // restored, by partition; empty once W has passed them all
  std::vector<int32_t> partition_of_slot_, row_partitions_;

  void write_aggregate(size_t index, ResultRows& out, const std::vector<const uint8_t*>& states, int64_t count) {
    const AggregateSpec& aggregate = aggregates_[index];
    Column& column = out.columns[2 + index];
    const int64_t offset = out.count;
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
      const int64_t row = offset + i;
      overflow = {static_cast<int>(index), out.slot_at(row), out.starts()[row], out.ends()[row]};
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
        if (kind == FieldKind::sum_double) {
          const auto* sums = reinterpret_cast<const double*>(states[fields.sum]);
          if (mean && nulls == nullptr) return write_means(sums, row_counts, count, doubles + offset);
          if (mean) return each(doubles, [&](int64_t i, uint64_t number) { return sums[i] / static_cast<double>(number); });
          return each(doubles, [&](int64_t i, uint64_t) { return sums[i]; });
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

 private:
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
};

}  // namespace jetfast
