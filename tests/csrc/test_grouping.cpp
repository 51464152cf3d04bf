// Rows by group: places are numbered, and rows ordered, as sorting all of them would do.
#include "jetfast/grouping.hpp"

#include <algorithm>
#include <map>
#include <numeric>
#include <random>
#include <tuple>

#include "check.hpp"

using jetfast::number_places;
using jetfast::order_by_group;

namespace {

void places_are_numbered_ascending_in_each_span(int64_t greatest) {
  std::mt19937_64 random(static_cast<uint64_t>(greatest));
  const std::vector<int64_t> starts = {0, 0, 5, 400, 401};
  std::vector<int64_t> places(401), groups(401), group_places, bounds(starts.size());
  for (auto& place : places) place = static_cast<int64_t>(random() % static_cast<uint64_t>(greatest));
  number_places(places.data(), starts.data(), 4, groups.data(), group_places, bounds.data());
  int64_t number = 0;
  for (size_t span = 0; span < 4; ++span) {
    CHECK(bounds[span] == number);
    std::map<int64_t, int64_t> expected;
    for (int64_t row = starts[span]; row < starts[span + 1]; ++row) expected[places[static_cast<size_t>(row)]] = 0;
    for (auto& [place, group] : expected) {
      CHECK(group_places[static_cast<size_t>(number)] == place);
      group = number++;
    }
    for (int64_t row = starts[span]; row < starts[span + 1]; ++row)
      CHECK(groups[static_cast<size_t>(row)] == expected[places[static_cast<size_t>(row)]]);
  }
  CHECK(bounds[4] == number);
  CHECK(static_cast<int64_t>(group_places.size()) == number);
}

void rows_are_ordered_by_group_then_keys_then_arrival(int64_t count, int64_t group_count) {
  std::mt19937_64 random(static_cast<uint64_t>(count));
  std::vector<int64_t> groups(static_cast<size_t>(count)), keys(groups), second(groups), order(groups), expected(groups);
  for (size_t row = 0; row < groups.size(); ++row) {
    groups[row] = static_cast<int64_t>(random() % static_cast<uint64_t>(group_count));
    keys[row] = static_cast<int64_t>(random() % 5) - 2;
    second[row] = static_cast<int64_t>(random() % 3);
  }
  for (int given = 0; given < 3; ++given) {
    const int64_t* first_keys = given > 0 ? keys.data() : nullptr;
    const int64_t* second_keys = given > 1 ? second.data() : nullptr;
    order_by_group(groups.data(), first_keys, second_keys, count, group_count, order.data());
    std::iota(expected.begin(), expected.end(), 0);
    std::sort(expected.begin(), expected.end(), [&](int64_t left, int64_t right) {
      const auto sorted_by = [&](int64_t row) {
        const auto at = static_cast<size_t>(row);
        return std::make_tuple(groups[at], given > 0 ? keys[at] : 0, given > 1 ? second[at] : 0, row);
      };
      return sorted_by(left) < sorted_by(right);
    });
    CHECK(order == expected);
  }
}

}  // namespace

int main() {
  for (int64_t greatest : {1, 2, 64, 65, 1000, 1'000'000'000}) places_are_numbered_ascending_in_each_span(greatest);
  for (int64_t count : {0, 1, 2, 7, 300}) {
    for (int64_t group_count : {1, 3, 500}) rows_are_ordered_by_group_then_keys_then_arrival(count, group_count);
  }
  return 0;
}
