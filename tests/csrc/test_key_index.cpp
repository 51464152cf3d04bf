// The key index: every variant of the probe gives the same slots, keys come and go, long and short, and come out unchanged.
#include <cstring>
#include <string>
#include <unordered_map>
#include <vector>

#include "check.hpp"
#include "jetfast/key_index.hpp"

using jetfast::Arena;
using jetfast::Column;
using jetfast::ColumnView;
using jetfast::KeyIndex;
using jetfast::Kind;
using jetfast::Layout;
using jetfast::SimdLevel;

namespace {

ColumnView int64_type() { return jetfast::fixed_type(Kind::int64, 8); }

ColumnView string_type() {
  ColumnView type;
  type.kind = Kind::string;
  type.layout = Layout::offsets32;
  return type;
}

uint64_t next_random(uint64_t& state) {  // splitmix64 (Vigna 2015)
  uint64_t value = state += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

std::vector<SimdLevel> levels() {
  std::vector<SimdLevel> result{SimdLevel::plain};
  if (jetfast::available_simd() >= SimdLevel::avx2) result.push_back(SimdLevel::avx2);
  if (jetfast::available_simd() >= SimdLevel::avx512) result.push_back(SimdLevel::avx512);
  return result;
}

// Random keys of a small and of a large range, with releases in between, against std::unordered_map. In two columns they are
// quotient and remainder.
void words_equal_a_plain_map(SimdLevel level, size_t column_count) {
  KeyIndex index(std::vector<ColumnView>(column_count, int64_type()));
  index.set_simd(level);
  std::unordered_map<int64_t, uint32_t> wanted;
  uint64_t state = 7;
  for (int round = 0; round < 60; ++round) {
    std::vector<int64_t> keys(500);
    for (int64_t& key : keys) key = static_cast<int64_t>(next_random(state) % (round % 2 ? 300 : 20000)) - 100;
    std::vector<int64_t> parts[2] = {keys, {}};
    if (column_count == 2)
      for (size_t row = 0; row < keys.size(); ++row) {
        parts[0][row] = keys[row] / 7;
        parts[1].push_back(keys[row] - keys[row] / 7 * 7);
      }
    std::vector<ColumnView> views(column_count, int64_type());
    for (size_t column = 0; column < column_count; ++column) {
      views[column].values = parts[column].data();
      views[column].row_count = static_cast<int64_t>(keys.size());
    }
    std::vector<uint32_t> slots(keys.size());
    index.find(views.data(), nullptr, static_cast<int64_t>(keys.size()), slots.data());
    for (size_t row = 0; row < keys.size(); ++row) {
      const auto found = wanted.find(keys[row]);
      CHECK(slots[row] == (found == wanted.end() ? jetfast::kNoSlot : found->second));
    }
    CHECK(index.live() == static_cast<int64_t>(wanted.size()));
    index.find_or_insert(views.data(), nullptr, static_cast<int64_t>(keys.size()), slots.data());
    index.check_invariants();
    for (size_t row = 0; row < keys.size(); ++row) {
      const auto found = wanted.emplace(keys[row], slots[row]);
      CHECK(found.first->second == slots[row]);
      CHECK(slots[row] < index.slot_limit());
    }
    CHECK(index.live() == static_cast<int64_t>(wanted.size()));
    for (auto item = wanted.begin(); item != wanted.end();) {
      if (next_random(state) % 3) {
        ++item;
      } else {
        index.release(item->second);
        item = wanted.erase(item);
      }
    }
  }
  CHECK(index.slot_limit() < 20000);
  Arena arena;
  for (const auto& [key, slot] : wanted) {
    const std::vector<Column> columns = index.keys_of(&slot, 1, arena);
    int64_t found = static_cast<const int64_t*>(columns[0].view.values)[0];
    if (column_count == 2) found = found * 7 + static_cast<const int64_t*>(columns[1].view.values)[0];
    CHECK(found == key);
  }
}

// Beyond 2^15 lines a table grows step by step, with keys in its old and its new half, while others leave it.
void a_large_table_keeps_its_keys_while_it_grows(SimdLevel level, size_t column_count) {
  KeyIndex index(std::vector<ColumnView>(column_count, int64_type()));
  index.set_simd(level);
  constexpr int64_t kRows = 1000;
  std::vector<uint32_t> slot_of_key(220'000, jetfast::kNoSlot);
  std::vector<int64_t> parts[2];
  std::vector<ColumnView> views(column_count, int64_type());
  const auto find = [&](int64_t first, int64_t stride, uint32_t* slots) {
    for (std::vector<int64_t>& part : parts) part.clear();
    for (int64_t row = 0; row < kRows; ++row) {
      parts[0].push_back(first + row * stride);
      parts[1].push_back((first + row * stride) % 5);
    }
    for (size_t column = 0; column < column_count; ++column) {
      views[column].values = parts[column].data();
      views[column].row_count = kRows;
    }
    index.find_or_insert(views.data(), nullptr, kRows, slots);
    index.check_invariants();
  };
  std::vector<uint32_t> slots(kRows);
  int64_t live = 0;
  uint64_t state = 3;
  for (int64_t end = 0; end < static_cast<int64_t>(slot_of_key.size());) {
    find(end, 1, slots.data());
    for (int64_t row = 0; row < kRows; ++row) slot_of_key[static_cast<size_t>(end + row)] = slots[static_cast<size_t>(row)];
    end += kRows;
    live += kRows;
    for (int count = 0; count < 100; ++count) {  // some leave
      uint32_t& slot = slot_of_key[next_random(state) % static_cast<uint64_t>(end)];
      if (slot == jetfast::kNoSlot) continue;
      index.release(slot);
      slot = jetfast::kNoSlot;
      --live;
    }
    const int64_t stride = end / kRows;  // keys of all times are found, or are new again
    find(0, stride, slots.data());
    std::vector<uint32_t> found(kRows);
    index.find(views.data(), nullptr, kRows, found.data());
    CHECK(found == slots);
    for (int64_t row = 0; row < kRows; ++row) {
      uint32_t& slot = slot_of_key[static_cast<size_t>(row * stride)];
      if (slot == jetfast::kNoSlot) {
        slot = slots[static_cast<size_t>(row)];
        ++live;
      }
      CHECK(slot == slots[static_cast<size_t>(row)]);
    }
    CHECK(index.live() == live);
    if (end == 110'000) index.reserve(200'000);  // in the middle of growing
  }
  CHECK(index.live() > 196'608);  // it has grown in steps again
}

// In a table of eight lines it happens that each counts a key that went past it: a probe must end all the same.
void a_probe_ends_although_no_line_says_so(SimdLevel level, size_t column_count, size_t key_count) {
  KeyIndex index(std::vector<ColumnView>(column_count, int64_type()));
  index.set_simd(level);
  std::vector<uint32_t> slots(key_count);
  uint64_t state = 1;
  for (size_t step = 0; step < 2'000'000; ++step) {
    uint32_t& slot = slots[step < key_count ? step : next_random(state) % key_count];
    if (step >= key_count) index.release(slot);
    const uint64_t key[2] = {next_random(state), next_random(state)};
    std::vector<ColumnView> views(column_count, int64_type());
    for (size_t column = 0; column < column_count; ++column) {
      views[column].values = &key[column];
      views[column].row_count = 1;
    }
    index.find_or_insert(views.data(), nullptr, 1, &slot);
    index.check_invariants();
    CHECK(index.slot_limit() <= key_count);
  }
}

void strings_come_and_go(SimdLevel level) {
  KeyIndex index({string_type(), int64_type()});
  index.set_simd(level);
  std::unordered_map<std::string, uint32_t> wanted;
  uint64_t state = 11;
  Arena arena;
  for (int round = 0; round < 40; ++round) {
    std::vector<int32_t> offsets{0};
    std::vector<int64_t> numbers;
    std::string bytes;
    std::vector<std::string> keys;
    for (int row = 0; row < 200; ++row) {
      const uint64_t number = next_random(state) % 700;
      const std::string key(number % 37, static_cast<char>('a' + number % 26));
      bytes += key;
      offsets.push_back(static_cast<int32_t>(bytes.size()));
      numbers.push_back(static_cast<int64_t>(number));
      keys.push_back(key + "/" + std::to_string(number));
    }
    ColumnView views[2] = {string_type(), int64_type()};
    views[0].offsets = offsets.data();
    views[0].bytes = reinterpret_cast<const uint8_t*>(bytes.data());
    views[1].values = numbers.data();
    views[0].row_count = views[1].row_count = 200;
    std::vector<uint32_t> slots(200);
    index.find_or_insert(views, nullptr, 200, slots.data());
    index.check_invariants();
    for (size_t row = 0; row < keys.size(); ++row) CHECK(wanted.emplace(keys[row], slots[row]).first->second == slots[row]);
    CHECK(index.live() == static_cast<int64_t>(wanted.size()));
    const std::vector<Column> columns = index.keys_of(slots.data(), 200, arena);
    for (int64_t row = 0; row < 200; ++row) {
      const int64_t start = jetfast::offset_at(columns[0].view, row), end = jetfast::offset_at(columns[0].view, row + 1);
      const std::string key(reinterpret_cast<const char*>(columns[0].view.bytes) + start, static_cast<size_t>(end - start));
      CHECK(key + "/" + std::to_string(static_cast<const int64_t*>(columns[1].view.values)[row]) == keys[static_cast<size_t>(row)]);
    }
    for (auto item = wanted.begin(); item != wanted.end();) {
      if (next_random(state) % 2) {
        ++item;
      } else {
        index.release(item->second);
        item = wanted.erase(item);
      }
    }
  }
  CHECK(index.slot_limit() <= 700);
}

void rows_may_be_chosen_and_nulls_are_one_key() {
  const std::vector<int64_t> keys{5, 6, 5, 7, 0, 5};
  const uint8_t validity = 0b101111;  // row 4 is null
  KeyIndex index({int64_type()});
  ColumnView view = int64_type();
  view.values = keys.data();
  view.row_count = 6;
  view.null_count = 1;
  view.validity = &validity;
  const std::vector<int32_t> rows{4, 0, 2, 4};
  std::vector<uint32_t> slots(4);
  index.find_or_insert(&view, rows.data(), 4, slots.data());
  index.check_invariants();
  CHECK(slots[0] == slots[3] && slots[1] == slots[2] && slots[0] != slots[1]);
  CHECK(index.live() == 2);
  Arena arena;
  const std::vector<Column> columns = index.keys_of(slots.data(), 4, arena);
  CHECK(columns[0].view.null_count == 2);
  CHECK(!columns[0].view.is_valid(0) && columns[0].view.is_valid(1));
}

// Of keys that are null, short or long: some get new slots, list by list, the others are gone.
void keys_get_new_slots(SimdLevel level) {
  KeyIndex index({string_type()});
  index.set_simd(level);
  constexpr int64_t kCount = 3000;
  std::string bytes;
  std::vector<int32_t> offsets{0};
  std::vector<uint8_t> validity(kCount / 8, 0xff);
  validity[0] = 0xfe;
  for (int64_t key = 0; key < kCount; ++key) {
    bytes += std::to_string(key) + std::string(key % 3 == 0 ? 40 : 0, 'x');
    offsets.push_back(static_cast<int32_t>(bytes.size()));
  }
  ColumnView view = string_type();
  view.row_count = kCount;
  view.null_count = 1;
  view.validity = validity.data();
  view.offsets = offsets.data();
  view.bytes = reinterpret_cast<const uint8_t*>(bytes.data());
  std::vector<uint32_t> slots(kCount), again(kCount);
  index.find_or_insert(&view, nullptr, kCount, slots.data());
  index.check_invariants();
  const uint64_t releases = index.releases();
  std::vector<std::vector<uint32_t>> lists(2);
  for (int64_t key = 0; key < kCount; ++key)
    if (key % 10 != 9) lists[key % 4 == 0].push_back(slots[key]);
  Arena arena;
  const std::vector<uint32_t> moved = index.renumber(lists, arena);
  CHECK(index.live() == kCount / 10 * 9 && index.slot_limit() == kCount / 10 * 9 && index.releases() > releases);
  index.find(&view, nullptr, kCount, again.data());
  for (int64_t key = 0; key < kCount; ++key) {
    CHECK(again[key] == moved[slots[key]]);
    if (key % 10 == 9) CHECK(again[key] == jetfast::kNoSlot);
    else CHECK((again[key] >= lists[0].size()) == (key % 4 == 0));
  }
  const Column keys = index.keys_of(moved.data() + slots[3], 1, arena)[0];
  CHECK(std::string(reinterpret_cast<const char*>(keys.view.bytes), 41) == "3" + std::string(40, 'x'));
}

}  // namespace

int main() {
  for (const SimdLevel level : levels()) {
    words_equal_a_plain_map(level, 1);
    words_equal_a_plain_map(level, 2);
    a_large_table_keeps_its_keys_while_it_grows(level, 1);
    a_large_table_keeps_its_keys_while_it_grows(level, 2);
    strings_come_and_go(level);
    keys_get_new_slots(level);
  }
  a_probe_ends_although_no_line_says_so(jetfast::available_simd(), 1, 24);
  a_probe_ends_although_no_line_says_so(jetfast::available_simd(), 2, 16);
  rows_may_be_chosen_and_nulls_are_one_key();
  return 0;
}
