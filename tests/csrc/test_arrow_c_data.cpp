// The C data interface: owners live exactly as long as needed, children can be moved out, malformed arrays are refused.
#include <string>
#include <vector>

#include "check.hpp"
#include "message_bytes.hpp"
#include "jetfast/arrow_c_data.hpp"
#include "jetfast/framing.hpp"

using namespace jetfast;

namespace {

int released = 0;

// A struct array of columns that own nothing; counts releases of the parent.
struct Producer {
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> pointers;
  std::vector<std::vector<const void*>> buffers;
  const void* no_validity[1] = {nullptr};
  ArrowArray array{};

  void add(int64_t length, std::vector<const void*> column_buffers, int64_t null_count = 0, int64_t offset = 0) {
    buffers.push_back(std::move(column_buffers));
    ArrowArray child{};
    child.length = length;
    child.null_count = null_count;
    child.offset = offset;
    child.n_buffers = static_cast<int64_t>(buffers.back().size());
    child.release = [](ArrowArray* self) { self->release = nullptr; };
    children.push_back(child);
  }

  ArrowArray* finish(int64_t length) {
    for (size_t i = 0; i < children.size(); ++i) {
      children[i].buffers = buffers[i].data();
      pointers.push_back(&children[i]);
    }
    array.length = length;
    array.n_buffers = 1;
    array.buffers = no_validity;
    array.n_children = static_cast<int64_t>(children.size());
    array.children = pointers.data();
    array.release = [](ArrowArray* self) {
      ++released;
      self->release = nullptr;
    };
    return &array;
  }
};

ColumnType type_named(const char* name, const char* format) {
  ColumnType type;
  type.name = name;
  CHECK(parse_format(format, type.view));
  return type;
}

const int64_t kLongs[4] = {10, 11, 12, 13};
const int32_t kOffsets[4] = {0, 1, 1, 3};
const char kText[] = "xyz";
const uint8_t kBitmap[1] = {0b0101};

void the_owner_lives_as_long_as_its_last_column() {
  released = 0;
  Producer producer;
  producer.add(4, {kBitmap, kLongs}, -1);
  producer.add(3, {nullptr, kOffsets, kText});
  Rows rows = import_rows({type_named("a", "l"), type_named("b", "u")}, producer.finish(3));
  CHECK(producer.array.release == nullptr);  // moved
  CHECK(rows.columns[0].view.null_count == 1 && rows.columns[1].view.validity == nullptr);
  Column kept = slice_column(rows.columns[0], 1, 2);
  CHECK(kept.view.null_count == 1 && static_cast<const int64_t*>(kept.view.values)[0] == 11);
  Arena arena;
  ArrowArray exported{};
  export_rows(rows, arena, &exported);
  rows = Rows();
  kept = Column();
  CHECK(released == 0);
  ArrowArray child = *exported.children[1];  // a consumer may move a child out
  exported.children[1]->release = nullptr;
  exported.release(&exported);
  CHECK(exported.release == nullptr && released == 0);
  CHECK(child.length == 3 && static_cast<const int32_t*>(child.buffers[1])[3] == 3);
  child.release(&child);
  CHECK(released == 1);
}

void malformed_arrays_are_refused_and_released() {
  released = 0;
  int made = 0;
  const auto refused = [&made](const std::vector<ColumnType>& types, Producer& producer, int64_t length) {
    ++made;
    ArrowArray* array = producer.finish(length);
    return throws<std::invalid_argument>([&] { import_rows(types, array); });
  };
  const auto longs = type_named("a", "l"), text = type_named("a", "u"), views = type_named("a", "vu");
  { Producer p; p.add(3, {nullptr, kLongs}); CHECK(refused({longs}, p, 4)); }           // too few rows
  { Producer p; p.add(3, {nullptr, kLongs}); CHECK(refused({longs, longs}, p, 3)); }    // a column is missing
  { Producer p; p.add(3, {nullptr, kLongs}); CHECK(refused({}, p, 3)); }                // a column too many
  { Producer p; p.add(3, {nullptr, nullptr}); CHECK(refused({longs}, p, 3)); }          // no values
  { Producer p; p.add(3, {nullptr}); CHECK(refused({longs}, p, 3)); }                   // no buffer of values
  { Producer p; p.add(3, {nullptr, kLongs}); CHECK(refused({text}, p, 3)); }            // no buffer of bytes
  { Producer p; p.add(3, {nullptr, nullptr, kText}); CHECK(refused({text}, p, 3)); }    // no offsets
  { Producer p; p.add(3, {nullptr, kOffsets, nullptr}); CHECK(refused({text}, p, 3)); } // no bytes
  { Producer p; p.add(3, {nullptr, kLongs}); CHECK(refused({views}, p, 3)); }           // no sizes of buffers
  { Producer p; p.add(3, {nullptr, kLongs}, 2); CHECK(refused({longs}, p, 3)); }        // nulls without bitmap
  { Producer p; p.add(-1, {nullptr, kLongs}); CHECK(refused({longs}, p, 0)); }
  { Producer p; p.add(3, {nullptr, kLongs}, 0, -1); CHECK(refused({longs}, p, 3)); }
  { Producer p; p.add(3, {nullptr, kLongs}, 0, INT64_MAX - 1); CHECK(refused({longs}, p, 3)); }
  { Producer p; p.add(3, {kBitmap, kLongs}, 4); CHECK(refused({longs}, p, 2)); }        // more nulls than rows
  { Producer p; p.add(3, {nullptr, kLongs}); p.array.offset = INT64_MAX - 1; CHECK(refused({longs}, p, 3)); }
  { Producer p; p.add(3, {nullptr, kLongs}); p.array.null_count = 1; CHECK(refused({longs}, p, 3)); }  // no bitmap
  { const int32_t empty[4] = {5, 5, 5, 5}; Producer p; p.add(3, {nullptr, empty, nullptr}); CHECK(refused({text}, p, 3)); }
  ColumnType list = type_named("a", "+l");  // what Arrow looks into later
  list.nested_buffers = 2;
  list.children = {longs};
  { Producer p; p.add(3, {nullptr, kOffsets}); CHECK(refused({list}, p, 3)); }          // no child
  { Producer p; p.add(3, {nullptr, nullptr}); CHECK(refused({list}, p, 3)); }           // no offsets
  { Producer p, items;
    items.add(3, {nullptr, kLongs});
    items.finish(3);
    p.add(3, {nullptr, kOffsets});
    p.children[0].n_children = 1;
    p.children[0].children = items.pointers.data();
    items.children[0].release = nullptr;
    CHECK(refused({list}, p, 3)); }                                                     // a child already released
  { Producer p; p.add(3, {nullptr, kLongs}); CHECK(refused({longs}, p, -1)); }
  { Producer p; p.add(3, {nullptr, kLongs}); p.children[0].n_children = 1; CHECK(refused({longs}, p, 3)); }
  { Producer p; p.add(3, {nullptr, kLongs}); p.children[0].release = nullptr; CHECK(refused({longs}, p, 3)); }
  { const int32_t backwards[4] = {3, 2, 1, 0}; Producer p; p.add(3, {nullptr, backwards, kText}); CHECK(refused({text}, p, 3)); }
  { Producer p; p.add(3, {nullptr, kLongs});
    ColumnType dictionary = longs;
    dictionary.view.layout = Layout::dictionary;
    dictionary.dictionary = std::make_shared<ColumnType>(text);
    CHECK(refused({dictionary}, p, 3)); }                                               // no dictionary
  CHECK(released == made);
  ArrowArray gone{};
  CHECK(throws<std::invalid_argument>([&] { import_rows({}, &gone); }));
}

void unknown_formats_are_refused() {
  ColumnView view;
  for (const char* format : {"", "x", "?", "d:", "d:3", "d:3,1,77", "w:-1", "w:", "w:3x", "w:99999999999", "d:99999999999,1", "tiX", "tsX:", "ttX", "tx", "vx", "tdX"})
    CHECK(!parse_format(format, view));
  CHECK(!parse_format(nullptr, view));
  CHECK(parse_format("d:38,10", view) && view.kind == Kind::decimal128 && view.precision == 38 && view.scale == 10);
  CHECK(parse_format("d:50,-3,256", view) && view.kind == Kind::decimal256 && view.scale == -3);
  CHECK(parse_format("tsn:Asia/Tokyo", view) && view.unit == TimeUnit::nano);
  CHECK(parse_format("w:0", view) && view.width == 0);
}

void messages_survive_damage() {
  released = 0;
  Arena arena;
  std::vector<uint8_t> bytes;
  const std::vector<ColumnType> types = {type_named("a", "l"), type_named("b", "u")};
  {
    Producer producer;
    producer.add(3, {kBitmap, kLongs}, -1);
    producer.add(3, {nullptr, kOffsets, kText});
    const Rows rows = import_rows(types, producer.finish(3));
    bytes = message_bytes(encode_rows(arena, slice_rows(rows, 1, 2), {}));
  }
  CHECK(released == 1);
  const auto decode = [&](const std::vector<uint8_t>& from) {  // into memory of exactly its size, so that any overrun shows
    auto owner = std::shared_ptr<uint8_t>(new uint8_t[from.size() + 1], [](uint8_t* memory) { delete[] memory; });
    if (!from.empty()) std::memcpy(owner.get(), from.data(), from.size());
    const Rows rows = decode_rows(arena, types, owner.get(), static_cast<int64_t>(from.size()), owner);
    std::vector<int32_t> order;
    for (int64_t row = rows.row_count - 1; row >= 0; --row) order.push_back(static_cast<int32_t>(row));
    for (const Column& column : rows.columns) take_column(arena, column, order.data(), rows.row_count);
    return rows;
  };
  const Rows back = decode(bytes);
  CHECK(back.row_count == 2 && back.columns[0].view.null_count == 1);
  CHECK(static_cast<const int64_t*>(back.columns[0].view.values)[1] == 12);
  CHECK(std::string(reinterpret_cast<const char*>(back.columns[1].view.bytes), 2) == "yz");
  for (size_t position = 0; position < bytes.size(); ++position)
    for (uint8_t value : {0x00, 0x01, 0x7f, 0x80, 0xff}) {
      auto damaged = bytes;
      damaged[position] = value;
      try {
        decode(damaged);
      } catch (const std::invalid_argument&) {
      }
    }
  for (size_t size = 0; size < bytes.size(); ++size)
    CHECK(throws<std::invalid_argument>([&] { decode(std::vector<uint8_t>(bytes.begin(), bytes.begin() + static_cast<long>(size))); }));
}

}  // namespace

int main() {
  the_owner_lives_as_long_as_its_last_column();
  malformed_arrays_are_refused_and_released();
  unknown_formats_are_refused();
  messages_survive_damage();
  return 0;
}
