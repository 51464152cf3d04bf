// Rows of one key close to each other: whatever slots they get, all fields come to what they are without replicas and turns.
#include "jetfast/hot_slots.hpp"

#include <cmath>
#include <cstring>
#include <functional>
#include <numeric>
#include <random>
#include <vector>

#include "check.hpp"

using jetfast::Field;
using jetfast::FieldKind;
using jetfast::HotSlots;
using jetfast::ValueClass;

namespace {

constexpr uint32_t kSlots = 300;
constexpr uint32_t kRoom = kSlots + HotSlots::kReplicas * HotSlots::kHotSlots;

using Bytes = std::vector<uint64_t>;  // aligned as states are

std::vector<uint32_t> slots_by(int64_t count, const std::function<uint32_t(int64_t)>& slot_of) {
  std::vector<uint32_t> slots(static_cast<size_t>(count));
  for (int64_t row = 0; row < count; ++row) slots[static_cast<size_t>(row)] = slot_of(row);
  return slots;
}

std::vector<uint32_t> uniform(int64_t count) {
  std::mt19937 random(1);
  return slots_by(count, [&](int64_t) { return static_cast<uint32_t>(random() % kSlots); });
}

// A share of 60 % and one of 30, the others seldom.
std::vector<uint32_t> skewed(int64_t count) {
  std::mt19937 random(2);
  return slots_by(count, [&](int64_t) -> uint32_t {
    const auto draw = static_cast<uint32_t>(random() % 100);
    return draw < 60 ? 7 : draw < 90 ? 263 : static_cast<uint32_t>(random() % kSlots);  // 7 and 263 are counted together
  });
}

std::vector<uint32_t> runs(int64_t count, int64_t length) {
  return slots_by(count, [&](int64_t row) { return static_cast<uint32_t>(row / length * 7 % kSlots); });
}

// Values as words of the field's class: small whole numbers, so that sums are exact in any order.
Bytes values_of(ValueClass value_class, int64_t count) {
  std::mt19937_64 random(3);
  Bytes values;
  for (int64_t row = 0; row < count; ++row) {
    const auto number = static_cast<int64_t>(random() % 1000) - (value_class == ValueClass::u64 ? 0 : 500);
    uint64_t word = static_cast<uint64_t>(number);
    if (value_class == ValueClass::f64) {
      const auto real = static_cast<double>(number) / 8;
      std::memcpy(&word, &real, 8);
    }
    values.push_back(word);
    if (value_class == ValueClass::i128) values.push_back(number < 0 ? ~uint64_t{0} : 0);
  }
  return values;
}

Bytes states_of(const Field& field, std::vector<uint32_t> slots, HotSlots* hot_slots) {
  const auto count = static_cast<int64_t>(slots.size());
  Bytes states(size_t{kRoom} * static_cast<size_t>(field.width) / 8, 0x5555555555555555u);  // what was there before
  auto* bytes = reinterpret_cast<uint8_t*>(states.data());
  const Bytes values = values_of(field.value_class, count);
  jetfast::fill_identity(field, bytes, 0, kSlots);
  for (int batch = 0; batch < 2; ++batch) {
    std::vector<uint32_t> entries = slots;
    const int32_t* places = nullptr;
    if (hot_slots) {
      hot_slots->spread(entries.data(), count, kSlots);
      hot_slots->open(field, bytes);
      places = hot_slots->order(nullptr, count);
    }
    jetfast::accumulate_in_frames(field, nullptr, &bytes, nullptr, entries.data(), places, count, values.data());
    if (hot_slots) hot_slots->close(field, bytes);
  }
  states.resize(size_t{kSlots} * static_cast<size_t>(field.width) / 8);
  return states;
}

void every_field_is_what_it_is_without_replicas(const std::vector<uint32_t>& slots) {
  HotSlots hot_slots;
  for (const ValueClass value_class : {ValueClass::i64, ValueClass::u64, ValueClass::f64, ValueClass::i128})
    for (const FieldKind kind : {FieldKind::rows, FieldKind::nulls, FieldKind::sum128, FieldKind::sum192, FieldKind::sum_float,
                                 FieldKind::sum_double, FieldKind::minimum, FieldKind::maximum, FieldKind::moments}) {
      const bool is_float = kind == FieldKind::sum_float || kind == FieldKind::sum_double;
      if (is_float != (value_class == ValueClass::f64) && (is_float || kind == FieldKind::sum128)) continue;
      if ((kind == FieldKind::sum192) != (value_class == ValueClass::i128) && (kind == FieldKind::sum192 || kind == FieldKind::sum128))
        continue;
      const Field field(kind, value_class, 0);
      const Bytes found = states_of(field, slots, &hot_slots), wanted = states_of(field, slots, nullptr);
      if (kind != FieldKind::moments) {
        CHECK(found == wanted);
        continue;
      }
      for (size_t word = 0; word < wanted.size(); ++word) {  // counts, means and squares, rounded otherwise
        double left, right;
        std::memcpy(&left, &found[word], 8);
        std::memcpy(&right, &wanted[word], 8);
        CHECK(std::fabs(left - right) <= 1e-9 * (1 + std::fabs(right)));
      }
    }
}

void only_rows_of_hot_slots_move(const std::vector<uint32_t>& slots, const std::vector<uint32_t>& hot) {
  HotSlots hot_slots;
  std::vector<uint32_t> entries = slots;
  hot_slots.spread(entries.data(), static_cast<int64_t>(slots.size()), kSlots);
  CHECK(hot_slots.replica_count() == hot.size() * HotSlots::kReplicas);
  std::vector<int64_t> last_row(kRoom, -int64_t{HotSlots::kReplicas});
  for (size_t row = 0; row < slots.size(); ++row) {
    const bool is_hot = std::find(hot.begin(), hot.end(), slots[row]) != hot.end();
    CHECK(is_hot ? entries[row] >= kSlots && entries[row] < kSlots + hot_slots.replica_count() : entries[row] == slots[row]);
    const auto place = static_cast<int64_t>(row);
    CHECK(!is_hot || place - last_row[entries[row]] >= HotSlots::kReplicas);  // nobody waits for one just before
    last_row[entries[row]] = place;
  }
}

void all_levels_of_instructions_replace_the_same_rows() {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{15}, int64_t{16}, int64_t{1003}}) {
    const std::vector<uint32_t> slots = slots_by(count, [](int64_t row) { return static_cast<uint32_t>(row * row % 3); });
    std::vector<uint32_t> plain = slots;
    jetfast::replace_slot_body<8>(plain.data(), count, 1, 90);
    for (size_t row = 0; row < slots.size(); ++row) CHECK(plain[row] == (slots[row] == 1 ? 90 + row % 8 : slots[row]));
#if JETFAST_X86
    for (const jetfast::SimdLevel level : {jetfast::SimdLevel::avx2, jetfast::SimdLevel::avx512}) {
      if (level > jetfast::available_simd()) continue;
      std::vector<uint32_t> other = slots;
      if (level == jetfast::SimdLevel::avx2) jetfast::replace_slot_avx2<8>(other.data(), count, 1, 90);
      else jetfast::replace_slot_avx512<8>(other.data(), count, 1, 90);
      CHECK(other == plain);
    }
#endif
  }
}

void turns_are_all_places_and_part_neighbours() {
  for (const int64_t count : {int64_t{0}, int64_t{1}, int64_t{6}, int64_t{7}, int64_t{8192}}) {
    std::vector<int32_t> places(static_cast<size_t>(count)), turns, expected;
    std::iota(places.begin(), places.end(), 100);
    jetfast::take_turns(places.data(), count, turns);
    for (int64_t i = 1; i < count / jetfast::kTurns * jetfast::kTurns; ++i)
      CHECK(count < 2 * jetfast::kTurns || std::abs(turns[static_cast<size_t>(i)] - turns[static_cast<size_t>(i) - 1]) > 1);
    std::sort(turns.begin(), turns.end());
    CHECK(turns == places);
  }
}

// A batch of other rows, or of rows that have a value, after one of the same length.
void turns_are_those_of_the_places_at_hand() {
  HotSlots hot_slots;
  std::vector<uint32_t> slots = runs(8192, 64);
  hot_slots.spread(slots.data(), 8192, kSlots);
  CHECK(hot_slots.replica_count() == 0);
  std::vector<int32_t> odd(4096);
  for (size_t i = 0; i < odd.size(); ++i) odd[i] = static_cast<int32_t>(2 * i + 1);
  for (const int64_t count : {int64_t{8192}, int64_t{8191}, int64_t{4096}, int64_t{8192}}) {
    const int32_t* order = hot_slots.order(nullptr, count);
    int64_t sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += order[i];
    CHECK(sum == count * (count - 1) / 2);
    const int32_t* listed = hot_slots.order(odd.data(), 4096);
    CHECK(listed[0] == 1 && listed[1] == odd[4096 / jetfast::kTurns]);
  }
  slots = uniform(8192);
  hot_slots.spread(slots.data(), 8192, kSlots);
  CHECK(hot_slots.order(nullptr, 8192) == nullptr && hot_slots.order(odd.data(), 4096) == odd.data());
}

}  // namespace

int main() {
  for (const std::vector<uint32_t>& slots :
       {uniform(8192), skewed(8192), runs(8192, 64), runs(8192, 8192), skewed(100), std::vector<uint32_t>{}})
    every_field_is_what_it_is_without_replicas(slots);
  only_rows_of_hot_slots_move(runs(8192, 8192), {0});
  only_rows_of_hot_slots_move(slots_by(8192, [](int64_t row) { return static_cast<uint32_t>(row % 2); }), {0, 1});
  only_rows_of_hot_slots_move(uniform(8192), {});
  only_rows_of_hot_slots_move(skewed(100), {});  // too few to look
  all_levels_of_instructions_replace_the_same_rows();
  turns_are_all_places_and_part_neighbours();
  turns_are_those_of_the_places_at_hand();
  return 0;
}
