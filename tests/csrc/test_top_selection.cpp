// The best results of windows against a sort of all results: packed and dense frames, nulls, groups, ties, every vector level.
#include <algorithm>
#include <map>
#include <tuple>
#include <vector>

#include "check.hpp"
#include "jetfast/window_table.hpp"

using jetfast::AggregateKind;
using jetfast::Arena;
using jetfast::BatchColumns;
using jetfast::ColumnView;
using jetfast::kMaxTime;
using jetfast::Kind;
using jetfast::Rows;
using jetfast::TopSpec;
using jetfast::WindowTable;

namespace {

uint64_t next_random(uint64_t& state) {  // splitmix64 (Vigna 2015)
  uint64_t value = state += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

jetfast::TableSpec make_spec() {
  jetfast::TableSpec spec;
  spec.shape = {30, 10, 0};
  spec.key_types = {jetfast::fixed_type(Kind::int64, 8), jetfast::fixed_type(Kind::int64, 8)};
  spec.value_types = {jetfast::fixed_type(Kind::int64, 8)};
  spec.aggregates = {{AggregateKind::count, -1, jetfast::fixed_type(Kind::int64, 8)},
                     {AggregateKind::maximum, 0, jetfast::fixed_type(Kind::int64, 8)}};
  return spec;
}

struct Result {
  int64_t end, group, key, count, greatest;

  auto fields() const { return std::tie(end, group, key, count, greatest); }
  bool operator<(const Result& other) const { return fields() < other.fields(); }
  bool operator==(const Result& other) const { return fields() == other.fields(); }
};

std::vector<Result> collect(WindowTable& table, int64_t rows_max) {
  std::vector<Result> found;
  while (true) {
    const Rows rows = table.emit(rows_max);
    if (rows.row_count == 0) return found;
    CHECK(rows.row_count <= rows_max);
    const auto column = [&](size_t index) { return static_cast<const int64_t*>(rows.columns[index].view.values); };
    for (int64_t row = 0; row < rows.row_count; ++row)
      found.push_back({column(3)[row], column(0)[row], column(1)[row], column(4)[row], column(5)[row]});
  }
}

// The results that a sort puts first: by value, then by key.
std::vector<Result> slow_top(std::vector<Result> all, const TopSpec& spec) {
  std::map<std::pair<int64_t, int64_t>, std::vector<Result>> groups;
  for (const Result& result : all) groups[{result.end, spec.group_keys.empty() ? 0 : result.group}].push_back(result);
  std::vector<Result> best;
  for (auto& item : groups) {
    std::vector<Result>& results = item.second;
    std::sort(results.begin(), results.end(), [&](const Result& one, const Result& other) {
      const int64_t left = spec.aggregate == 0 ? one.count : one.greatest;
      const int64_t right = spec.aggregate == 0 ? other.count : other.greatest;
      if (left != right) return spec.ascending ? left < right : left > right;
      return std::tie(one.group, one.key) < std::tie(other.group, other.key);
    });
    results.resize(std::min(results.size(), static_cast<size_t>(spec.count)));
    best.insert(best.end(), results.begin(), results.end());
  }
  return best;
}

void the_best_are_those_that_a_sort_puts_first(const TopSpec& spec, int64_t keys, int64_t dense_bytes, int64_t rows_max) {
  Arena arena;
  WindowTable everything(make_spec(), arena), best(make_spec(), arena);
  everything.set_dense_bytes(dense_bytes);
  best.set_dense_bytes(dense_bytes);
  best.set_far_slots(static_cast<uint32_t>(rows_max));  // a few: the window slides block by block while it is read
  best.keep_top(spec);
  uint64_t state = 5;
  for (int64_t frame = 0; frame < 12; ++frame) {
    std::vector<int64_t> columns[4];  // group, key, time, value
    // After three frames without rows all keys have left, and their slots are used again for others.
    const int64_t first_key = frame < 8 ? 0 : keys;
    if (frame < 5 || frame > 7)
      for (int64_t row = 0; row < keys * 2; ++row) {
        const auto key = first_key + static_cast<int64_t>(next_random(state) % static_cast<uint64_t>(keys));
        columns[0].push_back(key % 7);
        columns[1].push_back(key);
        columns[2].push_back(frame * 10);
        columns[3].push_back(static_cast<int64_t>(next_random(state) % 40) - 20);  // many ties
      }
    BatchColumns batch;
    batch.row_count = static_cast<int64_t>(columns[0].size());
    ColumnView views[4];
    for (int column = 0; column < 4; ++column) {
      views[column] = jetfast::fixed_type(column == 2 ? Kind::timestamp : Kind::int64, 8);
      views[column].values = columns[column].data();
      views[column].row_count = batch.row_count;
    }
    batch.keys = {views[0], views[1]};
    batch.time = views[2];
    batch.values = {views[3]};
    const int64_t watermark = frame == 11 ? kMaxTime : frame * 10 + 10;
    for (WindowTable* table : {&everything, &best}) {
      table->accumulate(batch, nullptr);
      table->advance(watermark);
    }
    std::vector<Result> wanted = slow_top(collect(everything, 1000), spec), found = collect(best, rows_max);
    std::sort(wanted.begin(), wanted.end());
    std::sort(found.begin(), found.end());
    CHECK(found == wanted);
  }
}

void ranks_that_pass_are_marked_alike_on_every_level() {
  uint64_t state = 9;
  for (int64_t count : {0, 1, 63, 64, 65, 512}) {
    std::vector<uint64_t> ranks;
    for (int64_t i = 0; i < count; ++i) ranks.push_back(next_random(state) >> (next_random(state) % 64));
    for (const uint64_t limit : {uint64_t{0}, uint64_t{1000}, ~uint64_t{0}}) {
      std::vector<uint64_t> plain(8, 0), chosen(8, 0);
      jetfast::mark_passing_plain(ranks.data(), count, limit, plain.data());
      jetfast::mark_passing(ranks.data(), count, limit, chosen.data());
      CHECK(plain == chosen);
      for (int64_t i = 0; i < count; ++i) CHECK(((plain[i / 64] >> (i % 64)) & 1) == (ranks[i] <= limit));
    }
  }
}

}  // namespace

int main() {
  for (const bool ascending : {false, true})
    for (const int aggregate : {0, 1})
      for (const bool grouped : {false, true})
        for (const int64_t dense_bytes : {int64_t{1} << 26, int64_t{0}})
          for (const int64_t count : {int64_t{1}, int64_t{5}, int64_t{2000}}) {
            TopSpec spec;
            spec.aggregate = aggregate;
            spec.count = count;
            spec.ascending = ascending;
            if (grouped) spec.group_keys = {0};
            the_best_are_those_that_a_sort_puts_first(spec, 30, dense_bytes, 4);
            the_best_are_those_that_a_sort_puts_first(spec, 6000, dense_bytes, 65536);
          }
  ranks_that_pass_are_marked_alike_on_every_level();
  return 0;
}
