// The window table against sums over all rows: random disorder, lateness, gaps and restores; exact and stacked fields.
#include <algorithm>
#include <cmath>
#include <map>
#include <utility>
#include <vector>

#include "check.hpp"
#include "jetfast/window_table.hpp"

using jetfast::AggregateKind;
using jetfast::Arena;
using jetfast::BatchColumns;
using jetfast::ColumnView;
using jetfast::kMaxTime;
using jetfast::kMinTime;
using jetfast::Kind;
using jetfast::Rows;
using jetfast::WindowShape;
using jetfast::WindowTable;

namespace {

uint64_t next_random(uint64_t& state) {  // splitmix64 (Vigna 2015)
  uint64_t value = state += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// Without a maximum all fields can be deducted.
jetfast::TableSpec make_spec(WindowShape shape, bool with_maximum = true) {
  jetfast::TableSpec spec;
  spec.shape = shape;
  spec.key_types = {jetfast::fixed_type(Kind::int64, 8)};
  spec.value_types = {jetfast::fixed_type(Kind::int64, 8), jetfast::fixed_type(Kind::float64, 8)};
  spec.aggregates = {{AggregateKind::count, -1, jetfast::fixed_type(Kind::int64, 8)},
                     {AggregateKind::sum, 0, jetfast::fixed_type(Kind::int64, 8)},
                     {AggregateKind::sum, 1, jetfast::fixed_type(Kind::float64, 8)}};
  if (with_maximum) spec.aggregates.push_back({AggregateKind::maximum, 0, jetfast::fixed_type(Kind::int64, 8)});
  return spec;
}

struct Input {
  std::vector<int64_t> keys, times, values;
  std::vector<double> numbers;

  BatchColumns columns() const {
    BatchColumns batch;
    batch.row_count = static_cast<int64_t>(keys.size());
    const auto view = [&](Kind kind, const void* values) {
      ColumnView column = jetfast::fixed_type(kind, 8);
      column.values = values;
      column.row_count = batch.row_count;
      return column;
    };
    batch.keys = {view(Kind::int64, keys.data())};
    batch.time = view(Kind::timestamp, times.data());
    batch.values = {view(Kind::int64, values.data()), view(Kind::float64, numbers.data())};
    return batch;
  }
};

struct Result {
  int64_t count = 0, sum = 0, greatest = kMinTime;
  double number_sum = 0;
};
using Results = std::map<std::pair<int64_t, int64_t>, Result>;  // by (window end, key)

void collect(WindowTable& table, Results& results, int64_t rows_max) {
  while (true) {
    const Rows rows = table.emit(rows_max);
    if (rows.row_count == 0) return;
    CHECK(rows.row_count <= rows_max);
    const auto column = [&](size_t index) { return static_cast<const int64_t*>(rows.columns[index].view.values); };
    for (int64_t row = 0; row < rows.row_count; ++row) {
      const Result result{column(3)[row], column(4)[row], rows.columns.size() > 6 ? column(6)[row] : kMinTime,
                          static_cast<const double*>(rows.columns[5].view.values)[row]};
      CHECK(results.emplace(std::make_pair(column(2)[row], column(0)[row]), result).second);
    }
  }
}

jetfast::PartialColumns partial_columns(const Rows& rows) {
  jetfast::PartialColumns columns;
  columns.row_count = rows.row_count;
  columns.keys = {rows.columns[0].view};
  columns.frame = rows.columns[1].view;
  for (size_t field = 2; field < rows.columns.size(); ++field) columns.fields.push_back(rows.columns[field].view);
  return columns;
}

// `dense_bytes`: 0 makes all frames packed; a few thousand mixes both layouts. `far_slots`: 0 makes windows slide block by
// block, and packed frames logs, where all fields are deducted.
struct Layout {
  int64_t dense_bytes;
  uint32_t far_slots;
  bool with_maximum;
};

std::unique_ptr<WindowTable> make_table(WindowShape shape, Layout layout, Arena& arena) {
  auto table = std::make_unique<WindowTable>(make_spec(shape, layout.with_maximum), arena);
  table->set_dense_bytes(layout.dense_bytes);
  table->set_far_slots(layout.far_slots);
  return table;
}

// Save `table` and bring its state back, in pieces, into a new one.
std::unique_ptr<WindowTable> restored(WindowTable& table, WindowShape shape, Layout layout, Arena& arena) {
  std::unique_ptr<WindowTable> result = make_table(shape, layout, arena);
  int64_t after_frame = kMinTime;
  while (true) {
    const Rows rows = table.save(after_frame, 50);
    if (rows.row_count == 0) break;
    for (int64_t first = 0; first < rows.row_count; first += 7)
      result->restore(partial_columns(jetfast::slice_rows(rows, first, std::min<int64_t>(7, rows.row_count - first))));
  }
  for (int32_t partition = 0; partition < 271; ++partition) result->restore_bound(partition, table.bound(partition));
  result->finish_restore();
  return result;
}

// `rounded`: sums that cannot be deducted exactly.
void windows_equal_sums_over_all_rows(WindowShape shape, bool with_restores, Layout layout, bool rounded, uint64_t keys) {
  Arena arena;
  std::unique_ptr<WindowTable> table = make_table(shape, layout, arena);
  Results found, wanted;
  uint64_t state = 1;
  int64_t watermark = kMinTime, now = -500, late = 0, partly_late = 0;
  int64_t counted_late = 0, counted_partly_late = 0;  // by tables that were replaced
  for (int round = 0; round < 120; ++round) {
    Input input;
    for (uint64_t row = 0, rows = next_random(state) % 60; row < rows; ++row) {
      // Some rows are so late that they meet any frame of the running window, or none; more keys come with time.
      const int64_t time = now + static_cast<int64_t>(next_random(state) % 90) - (next_random(state) % 16 == 0 ? 400 : 70);
      const auto key = static_cast<int64_t>(next_random(state) % (keys + static_cast<uint64_t>(round) / 8));
      const auto value = static_cast<int64_t>(next_random(state) % 1000) - 500;
      input.keys.push_back(key);
      input.times.push_back(time);
      input.values.push_back(value);
      // A tiny one now and then is lost in double-doubles, and in the sums that are compared, but not in the proof.
      const double tiny = rounded && next_random(state) % 50 == 0 ? 1e-60 : 0;
      input.numbers.push_back(tiny != 0 ? tiny : static_cast<double>(value) / 8);
      int64_t windows = 0, missed = 0;
      for (int64_t end = shape.frame_of(time); end <= shape.last_window_of_frame(shape.frame_of(time)); end += shape.slide) {
        ++windows;
        if (end <= watermark) {
          ++missed;
          continue;
        }
        Result& result = wanted[{end, key}];
        ++result.count;
        result.sum += value;
        result.greatest = std::max(result.greatest, value);
        result.number_sum += input.numbers.back();
      }
      late += missed == windows;
      partly_late += missed > 0 && missed < windows;
    }
    table->accumulate(input.columns(), nullptr);
    table->check_invariants();
    if (with_restores && round % 3 == 0) {
      counted_late += table->late_rows;
      counted_partly_late += table->partly_late_rows;
      table = restored(*table, shape, layout, arena);
    }
    now += static_cast<int64_t>(next_random(state) % 30) + (round % 40 == 39 ? 5000 : 0);
    watermark = std::max(watermark, now - 40);
    table->advance(watermark);
    table->check_invariants();
    collect(*table, found, 1 + static_cast<int64_t>(next_random(state) % 100));
  }
  table->advance(kMaxTime);
  table->check_invariants();
  collect(*table, found, 64);
  CHECK(counted_late + table->late_rows == late);
  CHECK(counted_partly_late + table->partly_late_rows == partly_late);
  CHECK(shape.size > 12 || late > 0);
  CHECK(shape.frames() == 1 || partly_late > 0);
  CHECK(found.size() == wanted.size());
  for (const auto& [group, result] : wanted) {
    const Result& other = found.at(group);
    CHECK(other.count == result.count && other.sum == result.sum);
    CHECK(!layout.with_maximum || other.greatest == result.greatest);
    CHECK(std::fabs(other.number_sum - result.number_sum) <= (rounded ? 1e-50 : 0));  // multiples of 1/8: exact
  }
  CHECK(table->memory().keys == 0 && table->memory().frames == 0);
}

// While windows slide: what a table says its frames take is what the arena gave, and lists of slots and entries of packed ones.
void memory_is_what_the_arena_gave(Layout layout, double lists_max) {
  Arena arena(0);
  const WindowShape shape{layout.with_maximum ? 200 : 20, 10, 0};
  const std::unique_ptr<WindowTable> table = make_table(shape, layout, arena);
  constexpr int64_t kKeys = 20000;
  for (int64_t frame = 0; frame < 40; ++frame) {
    Input input;
    for (int64_t row = 0; row < kKeys / 2; ++row) {
      input.keys.push_back(2 * row + frame % 2);
      input.times.push_back(frame * 10 + row % 10);
      input.values.push_back(row);
      input.numbers.push_back(0.5);
    }
    table->accumulate(input.columns(), nullptr);
    table->check_invariants();
    table->advance(frame * 10 - 10);
    table->check_invariants();
    while (table->emit(1 << 20).row_count > 0) {}
    const jetfast::MemoryUse use = table->memory();
    const auto given = static_cast<double>(arena.statistics().bytes_in_use);
    const double kept_keys = 8.0 * kKeys + 40 * 1024;  // and times of results: of the last batch
    CHECK(static_cast<double>(use.frame_bytes) >= given - 24 * kKeys - kept_keys);
    CHECK(static_cast<double>(use.frame_bytes) <= given * (1 + lists_max));
    if (frame < 30) continue;
    CHECK(use.keys == kKeys);
    CHECK(use.frames == shape.frames() + 1 || use.frames == shape.frames() + 2);
    CHECK(use.entries == use.frames * kKeys / 2);
  }
}

// Rows enough for the sums to be put aside: 4 M rows of 0.1 in one frame are further off with one double than with two.
void sums_of_many_rows_are_compensated() {
  Arena arena;
  for (const int64_t dense_bytes : {int64_t{1} << 26, int64_t{0}}) {
    WindowTable table(make_spec({100, 10, 0}), arena);
    table.set_dense_bytes(dense_bytes);
    const int64_t batch_rows = 1 << 16, batches = 64;
    for (int64_t batch = 0; batch < batches; ++batch) {
      Input input;
      for (int64_t row = 0; row < batch_rows; ++row) {
        input.keys.push_back(batch % 3 == 0 ? 1 : 2);
        input.times.push_back(5);
        input.values.push_back(1);
        input.numbers.push_back(0.1);
      }
      table.accumulate(input.columns(), nullptr);
      table.check_invariants();
    }
    table.advance(kMaxTime);
    table.check_invariants();
    Results found;
    collect(table, found, 64);
    CHECK(found.size() == 20);
    for (const auto& [group, result] : found) {
      const double exact = static_cast<double>(result.count) * 0.1;
      CHECK(std::fabs(result.number_sum - exact) <= 1e-11 * exact);
    }
  }
}

// Keys enough for pieces of windows by slot: without gaps, with few, with many, and windows of few keys among many slots.
void windows_of_many_keys_come_in_pieces(int64_t rows_max, Layout layout) {
  constexpr int64_t kKeys = 40000, kFrames = 12;
  const WindowShape shape{30, 10, 0};
  const auto rows_of = [](int64_t frame, int64_t key) -> int64_t {
    if (frame < 0 || frame >= kFrames) return 0;
    if (frame >= 9) return key % 1000 == 3;
    if (frame >= 6) return key % 2;
    if (frame >= 3) return key % 6000 == 17 ? 0 : 1 + key % 2;
    return 1 + (key + frame) % 3 / 2;
  };
  Arena arena;
  const std::unique_ptr<WindowTable> made = make_table(shape, layout, arena);
  WindowTable& table = *made;
  std::vector<int64_t> results_of_end(static_cast<size_t>(kFrames) + 3, 0);
  const auto check_results = [&] {
    while (true) {
      const Rows rows = table.emit(rows_max);
      if (rows.row_count == 0) return;
      CHECK(rows.row_count <= rows_max);
      const auto column = [&](size_t index) { return static_cast<const int64_t*>(rows.columns[index].view.values); };
      for (int64_t row = 0; row < rows.row_count; ++row) {
        const int64_t key = column(0)[row], last = column(2)[row] / 10 - 1;
        CHECK(column(1)[row] == column(2)[row] - shape.size);
        int64_t count = 0, sum = 0;
        for (int64_t frame = last - 2; frame <= last; ++frame) {
          count += rows_of(frame, key);
          sum += rows_of(frame, key) * (frame + key);
        }
        CHECK(count > 0 && column(3)[row] == count && column(4)[row] == sum);
        CHECK(static_cast<const double*>(rows.columns[5].view.values)[row] == static_cast<double>(sum) / 4);
        ++results_of_end[static_cast<size_t>(last)];
      }
    }
  };
  for (int64_t frame = 0; frame < kFrames; ++frame) {
    Input input;
    for (int64_t key = 0; key < kKeys; ++key)
      for (int64_t row = 0; row < rows_of(frame, key); ++row) {
        input.keys.push_back(key);
        input.times.push_back(frame * 10 + row);
        input.values.push_back(frame + key);
        input.numbers.push_back(static_cast<double>(frame + key) / 4);
      }
    table.accumulate(input.columns(), nullptr);
    table.check_invariants();
    table.advance(frame * 10 + 10);
    table.check_invariants();
    check_results();
  }
  table.advance(kMaxTime);
  table.check_invariants();
  check_results();
  for (int64_t last = 0; last < kFrames + 2; ++last) {
    int64_t wanted = 0;
    for (int64_t key = 0; key < kKeys; ++key)
      wanted += rows_of(last, key) + rows_of(last - 1, key) + rows_of(last - 2, key) > 0;
    CHECK(results_of_end[static_cast<size_t>(last)] == wanted);
  }
}

void frames_saturate_and_are_right_for_negative_times() {
  const WindowShape shape{30, 10, 3};
  CHECK(shape.floor(-1) == -7 && shape.frame_of(-1) == 3 && shape.frame_of(3) == 13 && shape.floor(3) == 3);
  CHECK(shape.ceil(3) == 3 && shape.ceil(4) == 13);
  CHECK(shape.floor(kMinTime) == kMinTime && shape.frame_of(kMaxTime) == kMaxTime);
  CHECK(shape.frame_of(kMinTime) > kMinTime && shape.past_boundary(shape.frame_of(kMinTime)) == 0);
  CHECK(shape.last_window_of_frame(kMaxTime - 5) == kMaxTime && shape.last_due(kMaxTime) == kMaxTime);
  uint64_t state = 3;
  for (const int64_t slide : {int64_t{1}, int64_t{3}, int64_t{10}, int64_t{100000}, int64_t{1} << 51, int64_t{1} << 60}) {
    const jetfast::FrameDivider divider(slide);
    for (int round = 0; round < 5000; ++round) {
      const uint64_t value = next_random(state) >> (next_random(state) % 64);
      const uint64_t near = value - value % static_cast<uint64_t>(slide);
      for (const uint64_t tried : {value, near, near - (near > 0), near + 1})
        CHECK(divider.divide(tried) == tried / static_cast<uint64_t>(slide));
    }
  }
}

void halves_survive_the_way_through_double() {
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto bits = static_cast<uint16_t>(half);
    const bool nan = (bits & 0x7c00) == 0x7c00 && (bits & 0x3ff) != 0;
    if (!nan) CHECK(jetfast::double_to_half(jetfast::half_to_double(bits)) == bits);
  }
}

}  // namespace

int main() {
  const int64_t all_dense = int64_t{1} << 26;
  const uint32_t never_far = 1u << 30;
  for (const WindowShape shape : {WindowShape{10, 10, 0}, WindowShape{50, 10, 3}, WindowShape{12, 1, 0}, WindowShape{400, 20, 7},
                                  WindowShape{390, 10, 0}})
    for (const bool with_restores : {false, true})
      for (const bool rounded : {false, true}) {
        for (const int64_t dense_bytes : {all_dense, int64_t{0}, int64_t{9000}})
          windows_equal_sums_over_all_rows(shape, with_restores, {dense_bytes, never_far, true}, rounded, 12);
        for (const int64_t dense_bytes : {all_dense, int64_t{0}})
          for (const uint64_t keys : {uint64_t{12}, uint64_t{500}})
            windows_equal_sums_over_all_rows(shape, with_restores, {dense_bytes, 0, false}, rounded, keys);
      }
  for (const int64_t rows_max : {int64_t{1000}, int64_t{65536}})
    for (const Layout layout : {Layout{all_dense, never_far, true}, Layout{0, 0, false}, Layout{all_dense, 0, false}})
      windows_of_many_keys_come_in_pieces(rows_max, layout);
  memory_is_what_the_arena_gave({all_dense, never_far, true}, 0.05);  // with a middle
  memory_is_what_the_arena_gave({all_dense, 0, false}, 0.05);         // by blocks
  memory_is_what_the_arena_gave({0, never_far, true}, 0.5);           // packed
  memory_is_what_the_arena_gave({0, 0, false}, 0.5);                  // logs by blocks
  sums_of_many_rows_are_compensated();
  frames_saturate_and_are_right_for_negative_times();
  halves_survive_the_way_through_double();
  return 0;
}
