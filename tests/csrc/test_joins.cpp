// Pairs by slot, and by slot and time, as comparing all rows with all would find them.
#include <algorithm>
#include <random>
#include <tuple>
#include <vector>

#include "jetfast/slot_matches.hpp"
#include "jetfast/time_chains.hpp"

#include "check.hpp"

using jetfast::kJoinsNothing;
using jetfast::SlotMatches;
using jetfast::TimeChains;

namespace {

using Pair = std::pair<int32_t, int32_t>;

std::vector<uint32_t> random_slots(std::mt19937_64& random, int64_t count, uint32_t limit) {
  std::vector<uint32_t> slots(static_cast<size_t>(count));
  for (auto& slot : slots) slot = random() % 10 == 0 ? kJoinsNothing : static_cast<uint32_t>(random() % limit);
  return slots;
}

void pairs_come_by_left_row_in_portions_of_any_size(int64_t left_count, int64_t right_count, int64_t portion, bool keep_left) {
  std::mt19937_64 random(static_cast<uint64_t>(left_count * 31 + right_count));
  const auto left = random_slots(random, left_count, 9), right = random_slots(random, right_count, 7);
  std::vector<Pair> expected;
  std::vector<uint8_t> met(right.size());
  for (size_t i = 0; i < left.size(); ++i) {
    const size_t before = expected.size();
    for (size_t k = 0; k < right.size(); ++k)
      if (left[i] != kJoinsNothing && left[i] == right[k]) {
        expected.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(k));
        met[k] = 1;
      }
    if (expected.size() == before && keep_left) expected.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(right_count));
  }
  SlotMatches matches(right.data(), right_count, 7);
  matches.probe(left.data(), left_count);
  std::vector<Pair> found;
  std::vector<int32_t> left_rows(static_cast<size_t>(portion)), right_rows(static_cast<size_t>(portion));
  for (;;) {
    const int64_t promised = matches.count_next(portion, keep_left);
    const int64_t made =
        matches.next(portion, keep_left, static_cast<int32_t>(right_count), left_rows.data(), right_rows.data());
    CHECK(made == promised);
    if (made == 0) break;
    for (int64_t i = 0; i < made; ++i) found.emplace_back(left_rows[static_cast<size_t>(i)], right_rows[static_cast<size_t>(i)]);
  }
  CHECK(found == expected);
  std::vector<int32_t> rest(right.size() + 1);
  rest.resize(static_cast<size_t>(matches.unmatched(rest.data())));
  for (int32_t row : rest) CHECK(!met[static_cast<size_t>(row)]);
  CHECK(static_cast<int64_t>(rest.size()) == right_count - std::count(met.begin(), met.end(), 1));
}

struct Side {
  std::vector<uint32_t> slots;
  std::vector<int64_t> times;
};

Side random_side(std::mt19937_64& random, int64_t count) {
  Side side{random_slots(random, count, 5), std::vector<int64_t>(static_cast<size_t>(count))};
  for (size_t i = 0; i < side.times.size(); ++i) side.times[i] = static_cast<int64_t>(i + random() % 20);
  return side;
}

void rows_meet_those_of_their_slot_that_are_near_in_time(int64_t count, int64_t lower, int64_t upper, int64_t portion) {
  std::mt19937_64 random(static_cast<uint64_t>(count + upper));
  const Side kept = random_side(random, count), probed = random_side(random, 200);
  TimeChains chains;
  for (int64_t start = 0; start < count; start += 1000) {
    const int64_t size = std::min<int64_t>(1000, count - start);
    chains.append(kept.slots.data() + start, kept.times.data() + start, nullptr, size, 5);
    chains.check_invariants();
  }
  CHECK(chains.size() == count && chains.bytes() > 0);
  std::vector<Pair> expected, found;
  std::vector<uint8_t> expected_found(probed.slots.size());
  for (size_t i = 0; i < probed.slots.size(); ++i)
    for (size_t k = 0; k < kept.slots.size(); ++k)
      if (probed.slots[i] != kJoinsNothing && probed.slots[i] == kept.slots[k] &&
          kept.times[k] >= probed.times[i] + lower && kept.times[k] <= probed.times[i] + upper) {
        expected.emplace_back(static_cast<int32_t>(i), static_cast<int32_t>(k));
        expected_found[i] = 1;
      }
  std::vector<uint8_t> was_found(probed.slots.size());
  chains.probe(probed.slots.data(), probed.times.data(), static_cast<int64_t>(probed.slots.size()), lower, upper, was_found.data());
  std::vector<int32_t> left(static_cast<size_t>(portion)), right(static_cast<size_t>(portion));
  while (const int64_t made = chains.next(portion, left.data(), right.data()))
    for (int64_t i = 0; i < made; ++i) found.emplace_back(left[static_cast<size_t>(i)], right[static_cast<size_t>(i)]);
  std::sort(found.begin(), found.end());
  CHECK(found == expected);
  CHECK(was_found == expected_found);

  // What met nobody expires once, when the bound has passed it.
  std::vector<uint8_t> met(kept.slots.size());
  for (const Pair& pair : expected) met[static_cast<size_t>(pair.second)] = 1;
  std::vector<int32_t> expired(kept.slots.size() + 1);
  for (int64_t bound : {int64_t{50}, int64_t{50}, count / 2, count + 100}) {
    const int64_t made = chains.expire(bound, expired.data());
    for (int64_t i = 0; i < made; ++i) {
      const auto row = static_cast<size_t>(expired[static_cast<size_t>(i)]);
      CHECK(kept.times[row] < bound && !met[row]);
      met[row] = 1;
    }
    for (size_t row = 0; row < met.size(); ++row) CHECK(met[row] || kept.times[row] >= bound);
  }
  CHECK(chains.count_before(count + 100) == count);
  CHECK(chains.count_before(-1) == 0);
}

void the_latest_row_before_each_time_is_found_and_kept(int64_t count, int64_t reach) {
  std::mt19937_64 random(static_cast<uint64_t>(count));
  const Side kept = random_side(random, count), probed = random_side(random, 200);
  TimeChains chains;
  chains.append(kept.slots.data(), kept.times.data(), nullptr, count, 5);
  chains.check_invariants();
  std::vector<int32_t> rows(probed.slots.size());
  chains.find_latest(probed.slots.data(), probed.times.data(), static_cast<int64_t>(rows.size()), reach, rows.data());
  for (size_t i = 0; i < rows.size(); ++i) {
    int32_t best = -1;
    for (size_t k = 0; k < kept.slots.size(); ++k) {
      const bool fits = probed.slots[i] != kJoinsNothing && probed.slots[i] == kept.slots[k] &&
                        kept.times[k] <= probed.times[i] && probed.times[i] - kept.times[k] <= reach;
      if (fits && (best < 0 || kept.times[k] >= kept.times[static_cast<size_t>(best)])) best = static_cast<int32_t>(k);
    }
    CHECK(rows[i] == best);
  }
  const int64_t bound = count / 2;
  std::vector<int32_t> found(kept.slots.size() + 1);
  found.resize(static_cast<size_t>(chains.keep(bound, bound - reach, found.data())));
  CHECK(std::is_sorted(found.begin(), found.end()));
  for (uint32_t slot = 0; slot < 5; ++slot) {
    int32_t best = -1;
    for (size_t k = 0; k < kept.slots.size(); ++k)
      if (kept.slots[k] == slot && kept.times[k] < bound && kept.times[k] >= bound - reach &&
          (best < 0 || kept.times[k] >= kept.times[static_cast<size_t>(best)]))
        best = static_cast<int32_t>(k);
    const auto before = std::count_if(found.begin(), found.end(), [&](int32_t row) {
      return kept.slots[static_cast<size_t>(row)] == slot && kept.times[static_cast<size_t>(row)] < bound;
    });
    CHECK(before == (best < 0 ? 0 : 1));
    if (best >= 0) CHECK(std::find(found.begin(), found.end(), best) != found.end());
  }
  for (size_t k = 0; k < kept.times.size(); ++k)
    if (kept.times[k] >= bound) CHECK(std::binary_search(found.begin(), found.end(), static_cast<int32_t>(k)));
}

}  // namespace

int main() {
  for (int64_t portion : {1, 3, 64, 5000})
    for (bool keep_left : {false, true})
      for (int64_t count : {0, 1, 40, 300}) pairs_come_by_left_row_in_portions_of_any_size(count, 300 - count, portion, keep_left);
  for (int64_t portion : {1, 4096})
    for (int64_t count : {1, 100, 9000}) {
      rows_meet_those_of_their_slot_that_are_near_in_time(count, -10, 10, portion);
      rows_meet_those_of_their_slot_that_are_near_in_time(count, 3, 30, portion);
    }
  for (int64_t reach : {0, 5, 100'000}) {
    the_latest_row_before_each_time_is_found_and_kept(300, reach);
    the_latest_row_before_each_time_is_found_and_kept(1, reach);
  }
}
