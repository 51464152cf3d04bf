// State by slot, row by row: every state has the rows of one key, none of which comes more than the time to live after the last.
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "jetfast/keyed_state.hpp"

#include "check.hpp"

using namespace jetfast;

namespace {

struct Rows {
  std::vector<uint32_t> slots;
  std::vector<int64_t> times;
  std::vector<uint8_t> valid;
};

Rows random_rows(int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(count));
  Rows rows;
  for (int64_t i = 0; i < count; ++i) {
    rows.slots.push_back(static_cast<uint32_t>(random() % 7));
    rows.times.push_back(static_cast<int64_t>(random() % 50) + i);
    rows.valid.push_back(random() % 3 != 0);
  }
  return rows;
}

void states_end_after_the_time_to_live(int64_t count, int64_t ttl) {
  const Rows rows = random_rows(count);
  std::vector<int64_t> seen(7, kNeverSeen), groups(rows.slots.size()), ended(rows.slots.size());
  std::vector<int32_t> scratch(7, -1), before(rows.slots.size());
  std::vector<uint32_t> slots_of(rows.slots.size());
  const int64_t made = number_states(rows.slots.data(), rows.times.data(), count, ttl, seen.data(), scratch.data(),
                                     groups.data(), slots_of.data(), before.data(), ended.data());
  std::vector<int64_t> last(7, kNeverSeen), group(7, -1);
  for (size_t row = 0; row < rows.slots.size(); ++row) {
    const uint32_t slot = rows.slots[row];
    const bool over = last[slot] != kNeverSeen && ttl < 1000 && rows.times[row] > last[slot] + ttl;
    if (over) CHECK(groups[row] > group[slot] && before[static_cast<size_t>(groups[row])] == group[slot]);
    else CHECK(group[slot] < 0 || groups[row] == group[slot]);
    if (over) CHECK(ended[static_cast<size_t>(groups[row])] == last[slot] + ttl);
    CHECK(slots_of[static_cast<size_t>(groups[row])] == slot && groups[row] < made);
    group[slot] = groups[row];
    last[slot] = std::max(last[slot], rows.times[row]);
  }
  CHECK(last == seen && scratch == std::vector<int32_t>(7, -1));

  std::vector<int64_t> kept_times(7, kNeverSeen);
  std::vector<int32_t> kept(rows.slots.size() + 1);
  const int64_t kept_count =
      keep_first(rows.slots.data(), rows.times.data(), count, ttl, kept_times.data(), kept.data());
  CHECK(count == 0 || kept_count > 0);
  note_times(rows.slots.data(), rows.times.data(), count, kept_times.data());
  CHECK(kept_times == seen);
}

void running_results_follow_each_row(int64_t count) {
  const Rows rows = random_rows(count);
  std::vector<double> values(rows.slots.size()), sums(7), greatest(7), sum_results(values.size()), greatest_results(values.size());
  for (size_t row = 0; row < values.size(); ++row) values[row] = row % 11 == 0 ? std::nan("") : static_cast<double>(rows.times[row]);
  std::vector<int64_t> counts(7), met(7), count_results(values.size());
  run_counts(rows.slots.data(), rows.valid.data(), count, counts.data(), count_results.data());
  CHECK(run_sums(rows.slots.data(), values.data(), rows.valid.data(), count, sums.data(), sum_results.data()) == -1);
  run_extremes(rows.slots.data(), values.data(), rows.valid.data(), count, true, met.data(), greatest.data(), greatest_results.data());
  CHECK(met == counts);
  std::vector<bool> nan(7);
  for (size_t row = 0; row < values.size(); ++row) {
    if (rows.valid[row] && std::isnan(values[row])) nan[rows.slots[row]] = true;
    if (count_results[row] > 0) CHECK(std::isnan(greatest_results[row]) == nan[rows.slots[row]]);
    CHECK(std::isnan(sum_results[row]) == nan[rows.slots[row]]);
  }
  const int64_t largest = std::numeric_limits<int64_t>::max();
  const std::vector<int64_t> numbers = {largest, -1, 1, 1};
  const std::vector<uint32_t> slots(4, 0);
  std::vector<int64_t> total(1), results(4);
  CHECK(run_sums(slots.data(), numbers.data(), nullptr, 4, total.data(), results.data()) == 3);
}

}  // namespace

int main() {
  for (int64_t count : {0, 1, 10, 500})
    for (int64_t ttl : {int64_t{0}, int64_t{5}, int64_t{30}, std::numeric_limits<int64_t>::max()})
      states_end_after_the_time_to_live(count, ttl);
  for (int64_t count : {0, 1, 500}) running_results_follow_each_row(count);
}
