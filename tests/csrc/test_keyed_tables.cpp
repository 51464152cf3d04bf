// The first stage of two gives the second what all rows at once would; sessions equal those of rows sorted by time; the
// clock of kernels counts no more than passes.
#include <algorithm>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "check.hpp"
#include "jetfast/frame_table.hpp"
#include "jetfast/kernel_clock.hpp"
#include "jetfast/session_table.hpp"
#include "jetfast/window_table.hpp"

using namespace jetfast;

namespace {

uint64_t next_random(uint64_t& state) {  // splitmix64 (Vigna 2015)
  uint64_t value = state += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

struct Input {
  std::vector<int64_t> keys, times, values;

  void add(uint64_t& state, int64_t now, uint64_t key_count = 12) {
    keys.push_back(static_cast<int64_t>(next_random(state) % key_count));
    times.push_back(now + static_cast<int64_t>(next_random(state) % 90) - 70);
    values.push_back(static_cast<int64_t>(next_random(state) % 1000) - 500);
  }

  BatchColumns columns() const {
    BatchColumns batch;
    batch.row_count = static_cast<int64_t>(keys.size());
    const auto view = [&](Kind kind, const void* values_of) {
      ColumnView column = fixed_type(kind, 8);
      column.values = values_of;
      column.row_count = batch.row_count;
      return column;
    };
    batch.keys = {view(Kind::int64, keys.data())};
    batch.time = view(Kind::timestamp, times.data());
    batch.values = {view(Kind::int64, values.data())};
    return batch;
  }
};

TableSpec make_spec(WindowShape shape) {
  TableSpec spec;
  spec.shape = shape;
  spec.key_types = {fixed_type(Kind::int64, 8)};
  spec.value_types = {fixed_type(Kind::int64, 8)};
  spec.aggregates = {{AggregateKind::count, -1, fixed_type(Kind::int64, 8)},
                     {AggregateKind::sum, 0, fixed_type(Kind::int64, 8)}};
  return spec;
}

// (end, key) -> (start, rows, sum)
using Results = std::map<std::pair<int64_t, int64_t>, std::vector<int64_t>>;

template <typename Table>
void collect(Table& table, Results& results) {
  for (Rows rows = table.emit(7); rows.row_count > 0; rows = table.emit(7)) {
    const auto column = [&](size_t index) { return static_cast<const int64_t*>(rows.columns[index].view.values); };
    for (int64_t row = 0; row < rows.row_count; ++row)
      CHECK(results.emplace(std::make_pair(column(2)[row], column(0)[row]),
                            std::vector<int64_t>{column(1)[row], column(3)[row], column(4)[row]}).second);
  }
}

// Without owners one table takes all partials; else there is one for each. With many keys frames leave whole. `packed`: the
// second stage's frames are lists of keys. `shares`: whole frames leave as they lie.
void two_stages_equal_one(WindowShape shape, int32_t owner_count, uint64_t key_count, uint64_t rows_max, bool packed,
                          bool shares) {
  Arena arena;
  WindowTable all(make_spec(shape), arena);
  FrameTable first(make_spec(shape), arena);
  std::vector<std::unique_ptr<WindowTable>> second;
  for (int32_t owner = 0; owner < std::max(owner_count, 1); ++owner) {
    second.push_back(std::make_unique<WindowTable>(make_spec(shape), arena));
    if (packed) second.back()->set_dense_bytes(0);
  }
  std::vector<int32_t> owners(271);
  for (size_t partition = 0; partition < owners.size(); ++partition)
    owners[partition] = static_cast<int32_t>(partition) % std::max(owner_count, 1);
  if (owner_count > 0) first.set_owners(owners, owner_count);
  if (shares) first.share_frames();
  bool shared_any = false;
  Results wanted, found;
  uint64_t state = 5;
  const auto hand_over = [&] {
    for (Rows rows = first.emit(301); rows.row_count > 0; rows = first.emit(301)) {
      PartialColumns partials;
      partials.row_count = rows.row_count;
      partials.columns = &rows;
      partials.keys = {rows.columns[0].view};
      partials.frame = rows.columns[1].view;
      for (size_t field = 2; field < rows.columns.size(); ++field) partials.fields.push_back(rows.columns[field].view);
      WindowTable& table = *second[static_cast<size_t>(first.owner)];
      shared_any |= first.is_frame;
      if (first.is_frame) table.accumulate_frame(partials);
      else table.accumulate_partials(partials);
    }
  };
  int64_t now = -500;
  for (int round = 0; round < 100; ++round, now += 25) {
    Input input;
    for (uint64_t row = 0, rows = next_random(state) % rows_max; row < rows; ++row) input.add(state, now, key_count);
    all.accumulate(input.columns(), nullptr);
    all.check_invariants();
    first.accumulate(input.columns(), nullptr);
    first.check_invariants();
    const int64_t watermark = now - 80;  // no row is late
    first.advance(watermark);
    first.check_invariants();
    if (round % 9 == 8) first.flush();
    hand_over();
    all.advance(watermark);
    all.check_invariants();
    collect(all, wanted);
    for (auto& table : second) {
      table->advance(watermark);
      table->check_invariants();
      collect(*table, found);
    }
    if (round % 40 == 39) first.forget_keys();
  }
  first.flush();
  hand_over();
  all.advance(kMaxTime);
  all.check_invariants();
  collect(all, wanted);
  int64_t rows = 0;
  for (auto& table : second) {
    table->advance(kMaxTime);
    table->check_invariants();
    collect(*table, found);
    rows += table->rows;
  }
  CHECK(!wanted.empty() && found == wanted);
  CHECK(shared_any == (shares && key_count > 100));
  CHECK(rows == all.rows && rows == first.partial_rows && first.partials < rows);
  CHECK(first.memory().keys == 0);
  first.forget_keys();
  CHECK(first.keys().live() == 0);
}

void sessions_equal_rows_sorted_by_time(int64_t timeout) {
  Arena arena;
  SessionTable table(make_spec(WindowShape{1, 1, 0}), timeout, arena);
  std::map<int64_t, std::vector<std::pair<int64_t, int64_t>>> rows_of_key;  // (time, value)
  Results wanted, found;
  uint64_t state = 9;
  int64_t now = -500;
  for (int round = 0; round < 100; ++round, now += 25) {
    Input input;
    for (uint64_t row = 0, rows = next_random(state) % 20; row < rows; ++row) input.add(state, now);
    for (size_t row = 0; row < input.keys.size(); ++row)
      rows_of_key[input.keys[row]].emplace_back(input.times[row], input.values[row]);
    table.accumulate(input.columns(), nullptr);
    table.check_invariants();
    table.advance(now - 80);
    table.check_invariants();
    collect(table, found);
  }
  table.advance(kMaxTime);
  table.check_invariants();
  collect(table, found);
  for (auto& [key, rows] : rows_of_key) {
    std::sort(rows.begin(), rows.end());
    for (size_t row = 0; row < rows.size();) {
      std::vector<int64_t> session = {rows[row].first, 0, 0};
      int64_t last = rows[row].first;
      for (; row < rows.size() && rows[row].first - last <= timeout; ++row) {
        last = rows[row].first;
        ++session[1];
        session[2] += rows[row].second;
      }
      wanted[{last + timeout, key}] = session;
    }
  }
  CHECK(!wanted.empty() && found == wanted);
  CHECK(table.late_rows == 0 && table.memory().keys == 0);
}

void the_clock_counts_no_more_than_passes() {
  std::atomic<bool> turn_taken{false};
  KernelClock clock(&turn_taken);
  int64_t cpu_ns = -1, kernel_ns = -1;
  clock.enter();  // not in a sample
  clock.leave();
  clock.begin_sample();
  for (int call = 0; call < 3; ++call) {
    clock.enter();
    clock.leave();
  }
  clock.end_sample(&cpu_ns, &kernel_ns);
  CHECK(cpu_ns >= 0 && kernel_ns >= 0 && kernel_ns <= cpu_ns);
}

}  // namespace

int main() {
  for (const WindowShape shape : {WindowShape{10, 10, 0}, WindowShape{50, 10, 3}}) {
    two_stages_equal_one(shape, 0, 12, 60, false, false);
    two_stages_equal_one(shape, 3, 12, 60, false, true);
    for (const bool packed : {false, true})
      for (const bool shares : {false, true}) two_stages_equal_one(shape, 2, 700, 20000, packed, shares);
  }
  for (const int64_t timeout : {int64_t{1}, int64_t{7}, int64_t{40}}) sessions_equal_rows_sorted_by_time(timeout);
  the_clock_counts_no_more_than_passes();
  return 0;
}
