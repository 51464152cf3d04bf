// A channel's two ends: what comes again is sent once, whatever leaves and however places change; garbage is refused.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <vector>

#include "check.hpp"
#include "message_bytes.hpp"
#include "jetfast/framing.hpp"

using namespace jetfast;

namespace {

Column numbers(Arena& arena, int64_t first, int64_t count) {
  Column column = allocate_fixed(arena, fixed_type(Kind::int64, 8), count);
  std::iota(column.mutable_values<int64_t>(), column.mutable_values<int64_t>() + count, first);
  column.comes_again = true;
  return column;
}

Column words(Arena& arena, int64_t count) {
  ColumnView type;
  type.kind = Kind::string;
  type.layout = Layout::offsets32;
  Column column = allocate_strings(arena, type, count, count, true);
  for (int64_t row = 0; row < count; ++row) {
    column.mutable_bytes()[row] = static_cast<uint8_t>('a' + row % 26);
    column.mutable_offsets<int32_t>()[row + 1] = static_cast<int32_t>(row + 1);
    if (row % 7 == 0) set_bit_to(column.mutable_validity(), row, false);
  }
  settle_nulls(column.view);
  column.comes_again = true;
  return column;
}

// A column of one value: codes that come again, into a dictionary that does not.
Column repeated(Arena& arena, const Column& zeros, int64_t value) {
  auto dictionary = std::make_shared<Column>(numbers(arena, value, 1));
  dictionary->comes_again = false;
  Column column = zeros;
  column.view.layout = Layout::dictionary;
  column.view.dictionary = &dictionary->view;
  column.dictionary = std::move(dictionary);
  return column;
}

ColumnType type_for(const Column& column) {
  ColumnType type;
  type.name = "a";
  type.view = type_of(column.view);
  if (column.dictionary) type.dictionary = std::make_shared<ColumnType>(type_for(*column.dictionary));
  return type;
}

std::vector<ColumnType> types_of(const Rows& rows) {
  std::vector<ColumnType> types;
  for (const Column& column : rows.columns) types.push_back(type_for(column));
  return types;
}

Rows rows_of(std::vector<Column> columns) {
  Rows rows;
  rows.row_count = columns[0].view.row_count;
  rows.columns = std::move(columns);
  return rows;
}

std::vector<uint8_t> encoded(Arena& arena, const Rows& rows, SentColumns& sent) {
  return message_bytes(encode_rows(arena, rows, {}, &sent));
}

// From memory of exactly its size, so that any overrun shows.
Rows decoded(Arena& arena, const std::vector<ColumnType>& types, const std::vector<uint8_t>& bytes, ReceivedColumns& received) {
  auto owner = std::shared_ptr<uint8_t>(new uint8_t[bytes.size() + 1], [](uint8_t* memory) { delete[] memory; });
  if (!bytes.empty()) std::memcpy(owner.get(), bytes.data(), bytes.size());
  return decode_rows(arena, types, owner.get(), static_cast<int64_t>(bytes.size()), owner, &received);
}

void check_same(Arena& arena, const Rows& found, const Rows& wanted) {
  CHECK(found.row_count == wanted.row_count);
  std::vector<int32_t> order(static_cast<size_t>(found.row_count));
  std::iota(order.begin(), order.end(), 0);
  for (size_t index = 0; index < wanted.columns.size(); ++index) {
    const Column left = take_column(arena, found.columns[index], order.data(), found.row_count);
    const Column right = take_column(arena, wanted.columns[index], order.data(), found.row_count);
    CHECK(left.view.null_count == right.view.null_count);
    CHECK(same_values(left.dictionary ? left.dictionary->view : left.view, right.dictionary ? right.dictionary->view : right.view));
  }
}

void what_comes_again_is_the_same_memory() {
  Arena arena;
  SentColumns sent;
  ReceivedColumns received;
  const Column keys = words(arena, 1000);
  Column zeros = numbers(arena, 0, 1000);
  std::fill_n(zeros.mutable_values<int64_t>(), 1000, 0);
  const void* offsets = nullptr;
  for (int64_t turn = 0; turn < 5; ++turn) {
    const Rows rows = rows_of({keys, repeated(arena, zeros, turn), zeros});
    const std::vector<uint8_t> bytes = encoded(arena, rows, sent);
    sent.settle();
    sent.check_invariants();
    CHECK((bytes.size() < 1000) == (turn > 0));
    const Rows back = decoded(arena, types_of(rows), bytes, received);
    check_same(arena, back, rows);
    CHECK(*static_cast<const int64_t*>(back.columns[1].view.dictionary->values) == turn);
    if (turn > 0) CHECK(back.columns[0].view.offsets == offsets);
    offsets = back.columns[0].view.offsets;
  }
}

void places_change_and_messages_stay_behind(uint32_t seed) {
  Arena arena;
  SentColumns sent;
  ReceivedColumns received;
  std::mt19937 random(seed);
  std::vector<Column> columns;
  for (int64_t number = 0; number < 150; ++number) columns.push_back(number % 3 ? numbers(arena, number, 20) : words(arena, 20 + number));
  size_t first = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    if (random() % 100 == 0) first = random() % columns.size();
    const Column& column = columns[(first + random() % 40) % columns.size()];
    const bool cut = random() % 4 == 0;
    const Rows rows = rows_of({cut ? slice_column(column, 5, 10) : column});
    const std::vector<uint8_t> bytes = encoded(arena, rows, sent);
    if (random() % 3 == 0) continue;
    sent.settle();
    sent.check_invariants();
    check_same(arena, decoded(arena, types_of(rows), bytes, received), rows);
  }
}

// Channels whose messages are damaged, here and there, go on being read.
void damaged_messages_are_survived(uint32_t seed) {
  Arena arena;
  SentColumns sent;
  ReceivedColumns received;
  std::mt19937 random(seed);
  const Column keys = words(arena, 100), counts = numbers(arena, 0, 100);
  Column zeros = numbers(arena, 0, 100);
  std::fill_n(zeros.mutable_values<int64_t>(), 100, 0);
  const int64_t telling[] = {0, 1, 2, 3, 63, 64, 65, 100, 101, 1000, INT32_MAX, INT64_MAX, -1, -2, -64, -65, INT64_MIN};
  for (int turn = 0; turn < 4000; ++turn) {
    const Rows rows = rows_of({keys, repeated(arena, zeros, turn), counts});
    if (random() % 50 == 0) sent = SentColumns();
    std::vector<uint8_t> bytes = encoded(arena, rows, sent);
    sent.settle();
    sent.check_invariants();
    int64_t header_words;
    std::memcpy(&header_words, bytes.data() + 8, 8);
    for (uint32_t change = random() % 3; change > 0; --change) {
      const int64_t value = telling[random() % (sizeof(telling) / sizeof(telling[0]))];
      std::memcpy(bytes.data() + random() % static_cast<uint64_t>(header_words) * 8, &value, 8);
    }
    if (random() % 8 == 0) bytes[random() % bytes.size()] = static_cast<uint8_t>(random());
    if (random() % 20 == 0) bytes.resize(random() % bytes.size());
    std::vector<int32_t> order(100);
    std::iota(order.rbegin(), order.rend(), 0);
    try {
      const Rows back = decoded(arena, types_of(rows), bytes, received);
      for (const Column& column : back.columns) take_column(arena, column, order.data(), std::min<int64_t>(back.row_count, 100));
    } catch (const std::invalid_argument&) {
    }
  }
}

}  // namespace

int main() {
  what_comes_again_is_the_same_memory();
  for (uint32_t seed = 0; seed < 4; ++seed) {
    places_change_and_messages_stay_behind(seed);
    damaged_messages_are_survived(seed);
  }
  return 0;
}
