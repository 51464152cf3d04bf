// Bitmaps, slices, take, concatenate and split against plain loops over random rows.
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "jetfast/partition.hpp"

using namespace jetfast;

namespace {

std::mt19937 random_bits(1);

void bitmaps_touch_only_their_bits() {
  for (int round = 0; round < 300; ++round) {
    const int64_t length = static_cast<int64_t>(random_bits() % 150), from = random_bits() % 20, to = random_bits() % 20;
    // exactly as many bytes as the bits need: an overrun shows under the address sanitizer
    std::vector<uint8_t> source(static_cast<size_t>(bitmap_bytes(from + length)));
    std::vector<uint8_t> target(static_cast<size_t>(bitmap_bytes(to + length)));
    for (uint8_t& byte : source) byte = static_cast<uint8_t>(random_bits());
    for (uint8_t& byte : target) byte = static_cast<uint8_t>(random_bits());
    const auto before = target;
    int64_t ones = 0;
    for (int64_t i = 0; i < length; ++i) ones += get_bit(source.data(), from + i);
    CHECK(count_ones(source.data(), from, length) == ones);
    copy_bits(source.data(), from, length, target.data(), to);
    for (int64_t bit = 0; bit < static_cast<int64_t>(target.size()) * 8; ++bit) {
      const bool inside = bit >= to && bit < to + length;
      CHECK(get_bit(target.data(), bit) == (inside ? get_bit(source.data(), from + bit - to) : get_bit(before.data(), bit)));
    }
    fill_bits(target.data(), to, length, round & 1);
    CHECK(count_ones(target.data(), to, length) == (round & 1 ? length : 0));
    for (int64_t bit = 0; bit < to; ++bit) CHECK(get_bit(target.data(), bit) == get_bit(before.data(), bit));
  }
}

Column random_longs(Arena& arena, int64_t row_count, bool nullable) {
  Column column = allocate_fixed(arena, fixed_type(Kind::int64, 8), row_count, nullable);
  for (int64_t row = 0; row < row_count; ++row) {
    column.mutable_values<int64_t>()[row] = random_bits() % 50;
    if (nullable) set_bit_to(column.mutable_validity(), row, random_bits() % 3);
  }
  settle_nulls(column.view);
  return column;
}

Column random_texts(Arena& arena, int64_t row_count) {
  ColumnView type;
  type.kind = Kind::string;
  type.layout = Layout::offsets32;
  Column column = allocate_strings(arena, type, row_count, row_count * 3, true);
  int32_t position = 0;
  for (int64_t row = 0; row < row_count; ++row) {
    const uint32_t length = random_bits() % 4;
    for (uint32_t i = 0; i < length; ++i) column.mutable_bytes()[position++] = static_cast<uint8_t>('a' + random_bits() % 3);
    column.mutable_offsets<int32_t>()[row + 1] = position;
    set_bit_to(column.mutable_validity(), row, random_bits() % 4);
  }
  settle_nulls(column.view);
  return column;
}

Column random_flags(Arena& arena, int64_t row_count) {
  Column column = allocate_fixed(arena, fixed_type(Kind::boolean, 0), row_count, false);
  for (int64_t row = 0; row < row_count; ++row) set_bit_to(column.mutable_values<uint8_t>(), row, random_bits() % 2);
  return column;
}

// A row of a column as text; "-" for null.
std::string cell(const Column& column, int64_t row) {
  const ColumnView& view = column.view;
  if (!view.is_valid(row)) return "-";
  switch (view.layout) {
    case Layout::bits: return get_bit(static_cast<const uint8_t*>(view.values), view.bits_offset + row) ? "1" : "0";
    case Layout::fixed: return std::to_string(static_cast<const int64_t*>(view.values)[row]);
    default:
      return "'" + std::string(reinterpret_cast<const char*>(view.bytes) + offset_at(view, row),
                               static_cast<size_t>(offset_at(view, row + 1) - offset_at(view, row)));
  }
}

Rows random_rows(Arena& arena, int64_t row_count) {
  Rows rows;
  rows.row_count = row_count;
  rows.columns = {random_longs(arena, row_count, false), random_longs(arena, row_count, true), random_texts(arena, row_count),
                  random_flags(arena, row_count), null_column(row_count)};
  return rows;
}

void moving_rows_keeps_them() {
  Arena arena;
  for (int round = 0; round < 60; ++round) {
    const int64_t row_count = static_cast<int64_t>(random_bits() % 100);
    const Rows rows = random_rows(arena, row_count);
    const int64_t start = row_count ? random_bits() % row_count : 0;
    const Rows slice = slice_rows(rows, start, row_count - start);
    std::vector<int32_t> order;
    for (int64_t i = 0; row_count > start && i < row_count; ++i) order.push_back(static_cast<int32_t>(random_bits() % (row_count - start)));
    CHECK(first_out_of_range(order.data(), static_cast<int64_t>(order.size()), row_count - start) == -1);
    for (size_t index = 0; index < rows.columns.size(); ++index) {
      const Column& column = rows.columns[index];
      const Column& part = slice.columns[index];
      int64_t nulls = 0;
      for (int64_t row = 0; row < part.view.row_count; ++row) {
        CHECK(cell(part, row) == cell(column, start + row));
        nulls += !part.view.is_valid(row);
      }
      CHECK(part.view.null_count == nulls);
      const Column taken = take_column(arena, part, order.data(), static_cast<int64_t>(order.size()));
      for (size_t i = 0; i < order.size(); ++i) CHECK(cell(taken, static_cast<int64_t>(i)) == cell(part, order[i]));
      const Column front = slice_column(column, 0, start);
      bool done = false;
      const Column whole = concatenate_columns(arena, {&front, &part}, &done);
      CHECK(done && whole.view.row_count == row_count && whole.view.null_count == column.view.null_count);
      for (int64_t row = 0; row < row_count; ++row) CHECK(cell(whole, row) == cell(column, row));
    }
  }
  const int32_t wrong[3] = {0, 5, -1};
  CHECK(first_out_of_range(wrong, 3, 5) == 1 && first_out_of_range(wrong, 3, 6) == 2 && first_out_of_range(wrong, 1, 1) == -1);
}

void each_owner_gets_its_rows_in_order() {
  Arena arena;
  for (int round = 0; round < 60; ++round) {
    const int64_t row_count = static_cast<int64_t>(random_bits() % 300);
    const int32_t owner_count = 1 + static_cast<int32_t>(random_bits() % 20);
    const Rows rows = slice_rows(random_rows(arena, row_count + 3), 3, row_count);
    std::vector<int32_t> owners(271);
    for (int32_t& owner : owners) owner = static_cast<int32_t>(random_bits() % static_cast<uint32_t>(owner_count));
    const std::vector<int32_t> keys = {0, 2};
    std::vector<int32_t> ids(static_cast<size_t>(row_count) + 1);
    assign_row_partitions(arena, rows, keys, 271, ids.data());
    Block order;
    std::vector<int64_t> starts;
    const std::vector<Rows> parts = split_rows(arena, rows, keys, owners, owner_count, &order, &starts);
    for (int32_t owner = 0; owner < owner_count; ++owner) {
      int64_t position = 0;
      const Rows& part = parts[static_cast<size_t>(owner)];
      for (int64_t row = 0; row < row_count; ++row) {
        if (owners[static_cast<size_t>(ids[static_cast<size_t>(row)])] != owner) continue;
        CHECK(position < part.row_count);
        for (size_t index = 0; index < rows.columns.size(); ++index)
          CHECK(cell(part.columns[index], position) == cell(rows.columns[index], row));
        ++position;
      }
      CHECK(position == part.row_count);
      if (part.row_count == row_count) break;  // one owner has all: the rest were left out
    }
  }
}

// Columns of 8 bytes without nulls take another way, in tiles; partitions are few, so that some owners get more than a tile holds.
void each_owner_gets_its_rows_of_wide_columns() {
  Arena arena;
  for (int round = 0; round < 200; ++round) {
    const int64_t row_count = 1 + static_cast<int64_t>(random_bits() % (round % 10 == 0 ? 9000 : 300));
    const int32_t owner_count = 1 + static_cast<int32_t>(random_bits() % 20);
    const size_t column_count = 1 + random_bits() % 6;
    Rows rows;
    rows.row_count = row_count;
    for (size_t index = 0; index < column_count; ++index) {
      Column column = allocate_fixed(arena, fixed_type(index % 2 ? Kind::float64 : Kind::int64, 8), row_count);
      for (int64_t row = 0; row < row_count; ++row) column.mutable_values<uint64_t>()[row] = random_bits() >> (random_bits() % 64);
      rows.columns.push_back(column);
    }
    std::vector<int32_t> owners(1 + random_bits() % (round % 3 == 0 ? 600 : 12));
    for (int32_t& owner : owners) owner = static_cast<int32_t>(random_bits() % static_cast<uint32_t>(owner_count));
    std::vector<int32_t> keys = {static_cast<int32_t>(random_bits() % column_count)};
    if (round % 4 == 0) keys.push_back(0);
    if (round % 7 == 0) keys.clear();  // then all rows are in one partition
    std::vector<int32_t> ids(static_cast<size_t>(row_count));
    assign_row_partitions(arena, rows, keys, static_cast<int32_t>(owners.size()), ids.data());
    Block order;
    std::vector<int64_t> starts;
    const std::vector<Rows> parts = split_rows(arena, rows, keys, owners, owner_count, &order, &starts);
    std::vector<int64_t> positions(static_cast<size_t>(owner_count), 0);
    for (int64_t row = 0; row < row_count; ++row) {
      const auto owner = static_cast<size_t>(owners[static_cast<size_t>(ids[static_cast<size_t>(row)])]);
      const int64_t position = positions[owner]++;
      CHECK(position < parts[owner].row_count);
      for (size_t index = 0; index < column_count; ++index) {
        const ColumnView& part = parts[owner].columns[index].view;
        const ColumnView& whole = rows.columns[index].view;
        CHECK(part.row_count == parts[owner].row_count && part.kind == whole.kind && part.null_count == 0);
        CHECK(static_cast<const uint64_t*>(part.values)[position] == static_cast<const uint64_t*>(whole.values)[row]);
      }
    }
    for (size_t owner = 0; owner < positions.size(); ++owner) CHECK(positions[owner] == parts[owner].row_count);
  }
}

}  // namespace

int main() {
  bitmaps_touch_only_their_bits();
  moving_rows_keeps_them();
  each_owner_gets_its_rows_in_order();
  each_owner_gets_its_rows_of_wide_columns();
  return 0;
}
