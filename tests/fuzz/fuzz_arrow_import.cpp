// libFuzzer target: rows of any Arrow type, made from the fuzzer's bytes, through everything that the headers do to a batch.
//
// Structurally valid arrays (offsets, bitmaps or none, null_count -1, missing buffers, misaligned ones, dictionaries, views,
// nesting, garbage in null rows) must come through import, slice, take, concatenate, split, hash, message and export with
// the values that a reader of plain Arrow structs sees. Contradicting ones must be refused. Damaged messages must be refused
// or decode to columns whose every row can be read. Each array and schema is released exactly once; every buffer has exactly
// the bytes that Arrow says, so that the address sanitizer sees any read beyond.
//
//     clang++ -std=c++17 -O1 -g -fsanitize=fuzzer,address,undefined -Icsrc tests/fuzz/fuzz_arrow_import.cpp
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "../csrc/message_bytes.hpp"
#include "jetfast/framing.hpp"
#include "jetfast/partition.hpp"

// libFuzzer keeps the input of what aborts.
#define CHECK(condition)                                                   \
  do {                                                                     \
    if (!(condition)) {                                                    \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                        \
    }                                                                      \
  } while (false)

using namespace jetfast;

namespace {

using Value = std::optional<std::string>;  // a value's bytes; none: null

// The fuzzer's bytes decide about structure; contents come from a generator that they seed.
class Choices {
 public:
  Choices(const uint8_t* bytes, size_t size) : next_(bytes), end_(bytes + size) {
    for (int i = 0; i < 4; ++i) state_ = state_ << 8 | byte();
    state_ |= 1;
  }

  uint8_t byte() { return next_ < end_ ? *next_++ : 0; }
  int64_t below(int64_t limit) { return limit <= 256 ? byte() % limit : (byte() << 8 | byte()) % limit; }
  bool one_in(int64_t limit) { return below(limit) == limit - 1; }

  uint64_t content() {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return state_;
  }
  int64_t content_below(int64_t limit) { return static_cast<int64_t>(content() >> 8) % limit; }

 private:
  const uint8_t* next_;
  const uint8_t* end_;
  uint64_t state_ = 0x9e3779b97f4a7c15;
};

// A schema and its array, of the producer that we import from.
struct Node {
  std::string format, name;
  ArrowSchema schema{};
  ArrowArray array{};
  std::vector<std::unique_ptr<Node>> children;
  std::unique_ptr<Node> dictionary;
  std::vector<ArrowSchema*> schema_children;
  std::vector<ArrowArray*> array_children;
  std::vector<const void*> buffers;
  std::vector<std::unique_ptr<uint8_t[]>> memory;
  std::vector<uint8_t*> writable;  // by buffer
  int width = 0;                   // bytes a value, where they are fixed
  int schema_releases = 0, array_releases = 0;
};

void release_schema(ArrowSchema* schema) {
  auto* node = static_cast<Node*>(schema->private_data);
  ++node->schema_releases;
  for (auto& child : node->children)
    if (child->schema.release) child->schema.release(&child->schema);
  if (node->dictionary && node->dictionary->schema.release) node->dictionary->schema.release(&node->dictionary->schema);
  schema->release = nullptr;
}

void release_array(ArrowArray* array) {
  auto* node = static_cast<Node*>(array->private_data);
  ++node->array_releases;
  for (auto& child : node->children)
    if (child->array.release) child->array.release(&child->array);
  if (node->dictionary && node->dictionary->array.release) node->dictionary->array.release(&node->dictionary->array);
  node->memory.clear();
  node->buffers = {};
  node->array_children = {};
  array->release = nullptr;
}

// ---- valid rows -----------------------------------------------------------------------------------------------------------

uint8_t* add_buffer(Node& node, Choices& choices, int64_t bytes, int64_t alignment = 1) {
  if (bytes == 0 && choices.one_in(2)) {
    node.buffers.push_back(nullptr);
    node.writable.push_back(nullptr);
    return nullptr;
  }
  const int64_t shift = alignment > 1 && choices.one_in(8) ? 1 + choices.below(alignment - 1) : 0;
  node.memory.emplace_back(new uint8_t[static_cast<size_t>(bytes + shift)]);
  uint8_t* memory = node.memory.back().get() + shift;
  for (int64_t i = 0; i < bytes; ++i) memory[i] = static_cast<uint8_t>(choices.content());
  node.buffers.push_back(memory);
  node.writable.push_back(memory);
  return memory;
}

bool bit(const uint8_t* bitmap, int64_t index) { return bitmap == nullptr || (bitmap[index >> 3] >> (index & 7) & 1); }

void add_validity(Node& node, Choices& choices, bool may_have_nulls) {
  const int64_t slots = node.array.offset + node.array.length;
  const int64_t kind = choices.below(4);
  node.array.null_count = choices.one_in(2) ? 0 : -1;
  if (kind == 0) {
    node.buffers.push_back(nullptr);
    node.writable.push_back(nullptr);
    return;
  }
  uint8_t* bitmap = add_buffer(node, choices, (slots + 7) / 8);
  if (bitmap == nullptr) return;
  int64_t nulls = 0;
  for (int64_t slot = 0; slot < slots; ++slot) {
    const bool valid = !may_have_nulls || kind == 1 || choices.content_below(kind == 2 ? 2 : 8) != 0;
    if (valid) bitmap[slot >> 3] = static_cast<uint8_t>(bitmap[slot >> 3] | 1 << (slot & 7));
    else bitmap[slot >> 3] = static_cast<uint8_t>(bitmap[slot >> 3] & ~(1 << (slot & 7)));
    nulls += !valid && slot >= node.array.offset;
  }
  node.array.null_count = choices.one_in(2) ? nulls : -1;
}

struct FixedType {
  const char* format;
  int width;
};
const FixedType kFixedTypes[] = {
    {"c", 1}, {"C", 1}, {"s", 2}, {"S", 2}, {"i", 4}, {"I", 4}, {"l", 8}, {"L", 8},  // the integers first: codes
    {"e", 2}, {"f", 4}, {"g", 8}, {"d:5,2", 16}, {"d:18,3", 16}, {"d:38,10", 16}, {"d:50,-3,256", 32}, {"d:9,1,32", 4},
    {"d:18,2,64", 8}, {"w:0", 0}, {"w:3", 3}, {"w:16", 16}, {"w:33", 33}, {"tdD", 4}, {"tdm", 8}, {"tts", 4}, {"ttm", 4},
    {"ttu", 8}, {"ttn", 8}, {"tss:", 8}, {"tsm:", 8}, {"tsu:UTC", 8}, {"tsn:Asia/Tokyo", 8}, {"tDs", 8}, {"tDm", 8},
    {"tDu", 8}, {"tDn", 8}};
constexpr int kFixedCount = static_cast<int>(sizeof(kFixedTypes) / sizeof(kFixedTypes[0]));

void make_node(Node& node, Choices& choices, int64_t rows_needed, int depth, bool values_of_dictionary = false);

std::unique_ptr<Node> make_child(Choices& choices, int64_t rows_needed, int depth, bool values_of_dictionary = false) {
  auto child = std::make_unique<Node>();
  make_node(*child, choices, rows_needed, depth, values_of_dictionary);
  return child;
}

void make_fixed(Node& node, Choices& choices, const FixedType& type) {
  node.format = type.format;
  node.width = type.width;
  add_validity(node, choices, true);
  const int64_t alignment = type.width == 2 || type.width == 4 || type.width == 8 ? type.width : 1;
  add_buffer(node, choices, (node.array.offset + node.array.length) * type.width, alignment);
}

template <typename Offset>
void fill_offsets(Choices& choices, uint8_t* offsets, int64_t slots, Offset first, int64_t longest, Offset* last) {
  Offset position = first;
  for (int64_t slot = 0; slot <= slots; ++slot) {
    std::memcpy(offsets + slot * static_cast<int64_t>(sizeof(Offset)), &position, sizeof(Offset));
    if (slot < slots) position += static_cast<Offset>(choices.content_below(longest + 1));
  }
  *last = position;
}

// Offsets of `width` bytes for each slot and one more; returns where the last one ends. Without slots they may be missing.
int64_t make_offsets(Node& node, Choices& choices, int64_t width, int64_t longest) {
  const int64_t slots = node.array.offset + node.array.length;
  if (slots == 0 && choices.one_in(2)) {
    node.buffers.push_back(nullptr);
    node.writable.push_back(nullptr);
    return 0;
  }
  uint8_t* offsets = add_buffer(node, choices, (slots + 1) * width, width);
  const int64_t first = choices.one_in(2) ? choices.below(20) : 0;
  if (width == 8) {
    int64_t last;
    fill_offsets<int64_t>(choices, offsets, slots, first, longest, &last);
    return last;
  }
  int32_t last;
  fill_offsets<int32_t>(choices, offsets, slots, static_cast<int32_t>(first), longest, &last);
  return last;
}

void make_strings(Node& node, Choices& choices, const char* format) {
  node.format = format;
  add_validity(node, choices, true);
  const int64_t longest = choices.one_in(4) ? 0 : choices.one_in(3) ? 40 : 9;
  const int64_t bytes = make_offsets(node, choices, format[0] == 'Z' || format[0] == 'U' ? 8 : 4, longest);
  add_buffer(node, choices, bytes);
}

void make_views(Node& node, Choices& choices, const char* format) {
  node.format = format;
  add_validity(node, choices, true);
  const int64_t slots = node.array.offset + node.array.length;
  uint8_t* views = add_buffer(node, choices, slots * 16);
  const int64_t count = choices.below(4);
  std::vector<int64_t> sizes;
  std::vector<const uint8_t*> texts;
  for (int64_t index = 0; index < count; ++index) {
    sizes.push_back(choices.below(80));
    texts.push_back(add_buffer(node, choices, sizes.back()));
  }
  uint8_t* size_buffer = add_buffer(node, choices, count * 8);
  if (count > 0) std::memcpy(size_buffer, sizes.data(), static_cast<size_t>(count * 8));
  const auto* validity = static_cast<const uint8_t*>(node.buffers[0]);
  for (int64_t slot = 0; slot < slots; ++slot) {
    if (!bit(validity, slot)) continue;  // garbage
    auto length = static_cast<int32_t>(choices.content_below(13));
    const auto buffer = static_cast<int32_t>(count > 0 ? choices.content_below(count) : 0);
    if (count > 0 && choices.content_below(2) && sizes[static_cast<size_t>(buffer)] > 12) {
      const auto size = static_cast<int32_t>(sizes[static_cast<size_t>(buffer)]);
      length = 13 + static_cast<int32_t>(choices.content_below(size - 12));
      const auto offset = static_cast<int32_t>(choices.content_below(size - length + 1));
      std::memcpy(views + slot * 16 + 4, texts[static_cast<size_t>(buffer)] + offset, 4);
      std::memcpy(views + slot * 16 + 8, &buffer, 4);
      std::memcpy(views + slot * 16 + 12, &offset, 4);
    }
    std::memcpy(views + slot * 16, &length, 4);
  }
}

void make_dictionary(Node& node, Choices& choices, int depth) {
  const FixedType& code = kFixedTypes[choices.below(8)];
  make_fixed(node, choices, code);
  const int64_t slots = node.array.offset + node.array.length;
  const auto* validity = static_cast<const uint8_t*>(node.buffers[0]);
  bool any = false;
  for (int64_t slot = node.array.offset; slot < slots; ++slot) any |= bit(validity, slot);
  const int64_t wanted = any ? 1 + choices.below(choices.one_in(4) ? 100 : 6) : choices.below(3);
  node.dictionary = make_child(choices, wanted, depth + 1, !choices.one_in(8));
  const int64_t limit = node.dictionary->array.length;
  for (int64_t slot = node.array.offset; slot < slots; ++slot) {
    if (!bit(validity, slot)) continue;  // garbage
    const auto value = static_cast<uint64_t>(choices.content_below(limit < 127 ? limit : 127));
    std::memcpy(node.writable[1] + slot * code.width, &value, static_cast<size_t>(code.width));
  }
}

void make_nested(Node& node, Choices& choices, int depth) {
  const int64_t slots = node.array.offset + node.array.length;
  switch (choices.below(7)) {
    case 0:
    case 1: {
      const bool wide = choices.one_in(2);
      node.format = wide ? "+L" : "+l";
      add_validity(node, choices, true);
      node.children.push_back(make_child(choices, make_offsets(node, choices, wide ? 8 : 4, 3), depth + 1));
      return;
    }
    case 2: {
      node.format = "+s";
      add_validity(node, choices, true);
      const int64_t count = choices.below(4);
      for (int64_t index = 0; index < count; ++index) node.children.push_back(make_child(choices, slots, depth + 1));
      return;
    }
    case 3:
      node.format = "+w:2";
      add_validity(node, choices, true);
      node.children.push_back(make_child(choices, slots * 2, depth + 1));
      return;
    case 4: {
      node.format = "+m";
      add_validity(node, choices, true);
      const int64_t entries = make_offsets(node, choices, 4, 3);
      auto pairs = std::make_unique<Node>();
      pairs->array.length = entries + choices.below(3);
      pairs->format = "+s";
      pairs->array.null_count = 0;
      pairs->buffers.push_back(nullptr);
      pairs->writable.push_back(nullptr);
      for (int index = 0; index < 2; ++index) pairs->children.push_back(make_child(choices, pairs->array.length, depth + 1));
      node.children.push_back(std::move(pairs));
      return;
    }
    default: {
      const bool dense = choices.one_in(2);
      node.format = dense ? "+ud:0,1" : "+us:0,1";
      uint8_t* types = add_buffer(node, choices, slots);
      for (int64_t slot = 0; slot < slots; ++slot) types[slot] &= 1;
      if (dense) {
        uint8_t* offsets = add_buffer(node, choices, slots * 4, 4);
        for (int64_t slot = 0; slot < slots; ++slot) {
          const auto offset = static_cast<int32_t>(choices.content_below(3));
          std::memcpy(offsets + slot * 4, &offset, 4);
        }
      }
      for (int index = 0; index < 2; ++index) node.children.push_back(make_child(choices, dense ? 3 : slots, depth + 1));
      return;
    }
  }
}

// A node of at least `rows_needed` rows, somewhere in longer buffers.
void make_node(Node& node, Choices& choices, int64_t rows_needed, int depth, bool values_of_dictionary) {
  node.name = std::string(static_cast<size_t>(choices.below(3)), 'c');
  node.array.offset = choices.one_in(2) ? choices.below(20) : 0;
  node.array.length = rows_needed + (choices.one_in(3) ? choices.below(9) : 0);
  const int64_t kind = choices.below(values_of_dictionary || depth >= 3 ? 10 : 14);
  switch (kind) {
    case 0:
      node.format = "n";
      node.array.null_count = choices.one_in(2) ? node.array.length : -1;
      return;
    case 1:
      node.format = "b";
      add_validity(node, choices, true);
      add_buffer(node, choices, (node.array.offset + node.array.length + 7) / 8);
      return;
    case 2: return make_strings(node, choices, choices.one_in(2) ? "u" : "z");
    case 3: return make_strings(node, choices, choices.one_in(2) ? "U" : "Z");
    case 4: return make_views(node, choices, choices.one_in(2) ? "vu" : "vz");
    case 10:
    case 11: return make_dictionary(node, choices, depth);
    case 12:
    case 13: return make_nested(node, choices, depth);
    default: return make_fixed(node, choices, kFixedTypes[choices.below(kFixedCount)]);
  }
}

// Point the C structs at what the node holds.
void connect(Node& node) {
  node.schema.format = node.format.c_str();
  node.schema.name = node.name.c_str();
  node.schema.flags = 2;
  node.schema.release = release_schema;
  node.schema.private_data = &node;
  node.array.release = release_array;
  node.array.private_data = &node;
  for (auto& child : node.children) {
    connect(*child);
    node.schema_children.push_back(&child->schema);
    node.array_children.push_back(&child->array);
  }
  node.schema.n_children = node.array.n_children = static_cast<int64_t>(node.children.size());
  node.schema.children = node.schema_children.data();
  node.array.children = node.array_children.data();
  if (node.dictionary) {
    connect(*node.dictionary);
    node.schema.dictionary = &node.dictionary->schema;
    node.array.dictionary = &node.dictionary->array;
  }
  node.array.n_buffers = static_cast<int64_t>(node.buffers.size());
  node.array.buffers = node.buffers.data();
}

// ---- what a reader of plain Arrow structs sees ----------------------------------------------------------------------------

int64_t load_integer(const void* memory, int64_t index, int64_t width) {
  int64_t value = 0;
  std::memcpy(&value, static_cast<const uint8_t*>(memory) + index * width, static_cast<size_t>(width));
  return width == 4 ? static_cast<int32_t>(value) : value;
}

uint64_t load_code(const void* memory, int64_t index, int64_t width) {
  uint64_t value = 0;
  std::memcpy(&value, static_cast<const uint8_t*>(memory) + index * width, static_cast<size_t>(width));
  return value;
}

std::string text_at(const void* bytes, int64_t from, int64_t to) {
  return to == from ? std::string() : std::string(static_cast<const char*>(bytes) + from, static_cast<size_t>(to - from));
}

Value read_arrow(const Node& node, const ArrowArray& array, int64_t row);

std::string shown(const Value& value) { return value ? "(" + *value + ")" : "null"; }

std::string read_list(const Node& node, const ArrowArray& array, int64_t from, int64_t to) {
  std::string all;
  for (int64_t row = from; row < to; ++row) all += shown(read_arrow(*node.children[0], *array.children[0], row)) + ",";
  return all;
}

// Row `row` of an array that has the type of `node`.
Value read_arrow(const Node& node, const ArrowArray& array, int64_t row) {
  const std::string& format = node.format;
  const int64_t slot = array.offset + row;
  if (format == "n") return std::nullopt;
  const void* const* buffers = array.buffers;
  if (format[0] == '+' && format[1] == 'u') {
    const int64_t type = static_cast<const uint8_t*>(buffers[0])[slot];
    const int64_t index = format[2] == 'd' ? load_integer(buffers[1], slot, 4) : slot;
    return shown(read_arrow(*node.children[static_cast<size_t>(type)], *array.children[type], index));
  }
  if (array.null_count != 0 && !bit(static_cast<const uint8_t*>(buffers[0]), slot)) return std::nullopt;
  if (node.dictionary)
    return read_arrow(*node.dictionary, *array.dictionary, static_cast<int64_t>(load_code(buffers[1], slot, node.width)));
  switch (format[0]) {
    case 'b': return bit(static_cast<const uint8_t*>(buffers[1]), slot) ? "1" : "0";
    case 'u':
    case 'z': return text_at(buffers[2], load_integer(buffers[1], slot, 4), load_integer(buffers[1], slot + 1, 4));
    case 'U':
    case 'Z': return text_at(buffers[2], load_integer(buffers[1], slot, 8), load_integer(buffers[1], slot + 1, 8));
    case 'v': {
      const auto* view = static_cast<const uint8_t*>(buffers[1]) + slot * 16;
      const int64_t length = load_integer(view, 0, 4);
      if (length <= 12) return text_at(view + 4, 0, length);
      const int64_t offset = load_integer(view, 3, 4);
      return text_at(buffers[2 + load_integer(view, 2, 4)], offset, offset + length);
    }
    case '+': break;
    default:
      if (node.width == 0) return std::string();
      return text_at(buffers[1], slot * node.width, (slot + 1) * node.width);
  }
  switch (format[1]) {
    case 'l':
    case 'm': return read_list(node, array, load_integer(buffers[1], slot, 4), load_integer(buffers[1], slot + 1, 4));
    case 'L': return read_list(node, array, load_integer(buffers[1], slot, 8), load_integer(buffers[1], slot + 1, 8));
    case 'w': return read_list(node, array, slot * 2, slot * 2 + 2);
    default: {
      std::string all;
      for (size_t index = 0; index < node.children.size(); ++index)
        all += shown(read_arrow(*node.children[index], *array.children[index], slot)) + ";";
      return all;
    }
  }
}

// ---- what jetfast sees ----------------------------------------------------------------------------------------------------

Value read_view(const ColumnView& view, int64_t row) {
  if (!view.is_valid(row)) return std::nullopt;
  switch (view.layout) {
    case Layout::bits: return get_bit(static_cast<const uint8_t*>(view.values), view.bits_offset + row) ? "1" : "0";
    case Layout::fixed:
      if (view.width == 0) return std::string();
      return text_at(view.values, row * view.width, (row + 1) * view.width);
    case Layout::offsets32:
    case Layout::offsets64: return text_at(view.bytes, offset_at(view, row), offset_at(view, row + 1));
    case Layout::views: {
      int32_t length;
      const uint8_t* bytes = view_bytes(view, row, &length);
      return text_at(bytes, 0, length);
    }
    case Layout::dictionary: {
      const auto code = static_cast<int64_t>(load_code(view.values, row, view.width));
      CHECK(code >= 0 && code < view.dictionary->row_count);
      return read_view(*view.dictionary, code);
    }
    default: CHECK(false); return std::nullopt;
  }
}

using Values = std::vector<std::vector<Value>>;  // by column, by row

void check_column(const Column& column, const std::vector<Value>& expected) {
  CHECK(column.view.row_count == static_cast<int64_t>(expected.size()));
  int64_t nulls = 0;
  for (size_t row = 0; row < expected.size(); ++row) {
    CHECK(read_view(column.view, static_cast<int64_t>(row)) == expected[row]);
    nulls += !column.view.is_valid(static_cast<int64_t>(row));
  }
  CHECK(column.view.null_count == nulls);
  CHECK(column_bytes(column.view) >= 0);
}

bool is_opaque(const Column& column) { return column.view.layout == Layout::opaque; }

void check_rows(const Rows& rows, const Values& expected) {
  CHECK(rows.columns.size() == expected.size());
  for (size_t index = 0; index < expected.size(); ++index)
    if (!is_opaque(rows.columns[index])) check_column(rows.columns[index], expected[index]);
}

template <typename Index>
std::vector<Value> picked(const std::vector<Value>& values, const std::vector<Index>& rows) {
  std::vector<Value> result;
  for (Index row : rows) result.push_back(values[static_cast<size_t>(row)]);
  return result;
}

Arena& arena() {
  static Arena pool(1 << 20);
  return pool;
}

std::vector<uint32_t> hashes_of(const Column& column) {
  std::vector<uint32_t> hashes(static_cast<size_t>(column.view.row_count), kHashSeed);
  std::vector<int32_t> scratch(static_cast<size_t>(hash_scratch_values(column.view)));
  hash_column(column.view, true, kHashSeed, hashes.data(), scratch.data());
  return hashes;
}

void check_slices_and_concatenation(const Rows& rows, const Values& expected, Choices& choices) {
  const int64_t first = choices.below(rows.row_count + 1);
  const int64_t second = first + choices.below(rows.row_count - first + 1);
  const std::vector<std::pair<int64_t, int64_t>> ranges = {{0, first}, {first, second}, {second, rows.row_count}};
  std::vector<Rows> slices;
  for (const auto& [from, to] : ranges) {
    slices.push_back(slice_rows(rows, from, to - from));
    Values part;
    for (const auto& column : expected) part.emplace_back(column.begin() + from, column.begin() + to);
    check_rows(slices.back(), part);
    const Rows again = slice_rows(slices.back(), (to - from) / 2, to - from - (to - from) / 2);
    for (auto& column : part) column.erase(column.begin(), column.begin() + (to - from) / 2);
    check_rows(again, part);
  }
  for (size_t index = 0; index < expected.size(); ++index) {
    std::vector<Column> moved;  // one part from another owner, so that dictionaries and views differ
    std::vector<int32_t> all;
    for (int64_t row = 0; row < slices[1].row_count; ++row) all.push_back(static_cast<int32_t>(row));
    if (!is_opaque(rows.columns[index]))
      moved.push_back(take_column(arena(), slices[1].columns[index], all.data(), slices[1].row_count));
    const Column& middle = moved.empty() ? slices[1].columns[index] : moved[0];
    bool done = false;
    const Column joined =
        concatenate_columns(arena(), {&slices[0].columns[index], &middle, &slices[2].columns[index]}, &done);
    CHECK(done != is_opaque(rows.columns[index]));
    if (done) check_column(joined, expected[index]);
  }
}

void check_take_and_hash(const Rows& rows, const Values& expected, Choices& choices) {
  std::vector<int32_t> order;
  const int64_t count = rows.row_count == 0 ? 0 : choices.below(2 * rows.row_count);
  for (int64_t i = 0; i < count; ++i) order.push_back(static_cast<int32_t>(choices.content_below(rows.row_count)));
  CHECK(first_out_of_range(order.data(), count, rows.row_count) == -1);
  for (size_t index = 0; index < expected.size(); ++index) {
    const Column& column = rows.columns[index];
    if (is_opaque(column)) continue;
    const Column taken = take_column(arena(), column, order.data(), count);
    check_column(taken, picked(expected[index], order));
    if (is_hashable(column.view)) {
      const std::vector<uint32_t> hashes = hashes_of(column), of_taken = hashes_of(taken);
      for (size_t i = 0; i < order.size(); ++i) CHECK(of_taken[i] == hashes[static_cast<size_t>(order[i])]);
    }
    if (is_time_kind(column.view.kind) && column.view.layout == Layout::fixed) {
      std::vector<int64_t> times(static_cast<size_t>(column.view.row_count));
      convert_to_microseconds(column.view, times.data());
    }
  }
}

void check_split(const Rows& rows, const Values& expected, Choices& choices) {
  std::vector<int32_t> keys;
  for (size_t index = 0; index < rows.columns.size(); ++index)
    if (is_hashable(rows.columns[index].view) && choices.one_in(2)) keys.push_back(static_cast<int32_t>(index));
  const auto owner_count = static_cast<int32_t>(choices.one_in(4) ? 1 + choices.below(400) : 1 + choices.below(6));
  std::vector<int32_t> owners(static_cast<size_t>(choices.one_in(3) ? 1 + choices.below(700) : 271));
  for (int32_t& owner : owners) owner = static_cast<int32_t>(choices.content_below(owner_count));
  Block order;
  std::vector<int64_t> starts;
  if (rows.row_count == 0) return;  // the caller gives none
  const std::vector<Rows> parts = split_rows(arena(), rows, keys, owners, owner_count, &order, &starts);
  std::vector<int32_t> ids(static_cast<size_t>(rows.row_count));
  assign_row_partitions(arena(), rows, keys, static_cast<int32_t>(owners.size()), ids.data());
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    std::vector<int32_t> theirs;
    for (int64_t row = 0; row < rows.row_count; ++row)
      if (owners[static_cast<size_t>(ids[static_cast<size_t>(row)])] == owner) theirs.push_back(static_cast<int32_t>(row));
    const Rows& part = parts[static_cast<size_t>(owner)];
    CHECK(part.row_count == static_cast<int64_t>(theirs.size()));
    if (theirs.empty()) continue;
    for (size_t index = 0; index < expected.size(); ++index)
      if (!is_opaque(rows.columns[index])) check_column(part.columns[index], picked(expected[index], theirs));
  }
}

// Read, move and hash every row of what came out of a damaged message.
void touch(const Rows& rows, const std::vector<ColumnType>& types) {
  if (rows.row_count > 5000) return;
  std::vector<int32_t> order;
  for (int64_t row = rows.row_count - 1; row >= 0; --row) order.push_back(static_cast<int32_t>(row));
  std::vector<OpaqueBytes> opaque;
  for (size_t index = 0; index < types.size(); ++index) {
    const Column& column = rows.columns[index];
    if (is_opaque(column)) {
      opaque.push_back({column.view.values, column.view.bits_offset});
      continue;
    }
    std::vector<Value> values;
    for (int64_t row = 0; row < rows.row_count; ++row) values.push_back(read_view(column.view, row));
    check_column(column, values);
    std::vector<Value> backwards(values.rbegin(), values.rend());
    check_column(take_column(arena(), column, order.data(), rows.row_count), backwards);
    if (is_hashable(column.view)) hashes_of(column);
  }
  encode_rows(arena(), rows, opaque);
}

Rows decode_copy(const std::vector<ColumnType>& types, const std::vector<uint8_t>& bytes, ReceivedColumns& received) {
  std::shared_ptr<uint8_t> owner(new uint8_t[bytes.size()], [](uint8_t* memory) { delete[] memory; });
  if (!bytes.empty()) std::memcpy(owner.get(), bytes.data(), bytes.size());
  return decode_rows(arena(), types, owner.get(), static_cast<int64_t>(bytes.size()), owner, &received);
}

void check_messages(const Rows& rows, const Values& expected, const std::vector<ColumnType>& types, Choices& choices) {
  const std::string nested = "as Arrow writes it";
  std::vector<OpaqueBytes> opaque;
  for (const Column& column : rows.columns)
    if (is_opaque(column)) opaque.push_back({nested.data(), static_cast<int64_t>(nested.size())});
  Rows sent_rows = rows;
  for (Column& column : sent_rows.columns) column.comes_again = choices.one_in(2);
  SentColumns sent;
  ReceivedColumns received;
  std::vector<uint8_t> bytes;
  for (int turn = 0; turn < 2; ++turn) {
    bytes = message_bytes(encode_rows(arena(), sent_rows, opaque, &sent));
    sent.settle();
    const Rows decoded = decode_copy(types, bytes, received);
    CHECK(decoded.row_count == rows.row_count);
    check_rows(decoded, expected);
    for (const Column& column : decoded.columns)
      if (is_opaque(column))
        CHECK(std::string(static_cast<const char*>(column.view.values), static_cast<size_t>(column.view.bits_offset)) == nested);
  }

  const int64_t changes = choices.below(6);
  if (changes == 0 || bytes.empty()) return;
  int64_t header_words;
  std::memcpy(&header_words, bytes.data() + 8, 8);
  const int64_t telling[17] = {0, 1, 2, 7, 8, 9, 63, 64, 65, 1000, INT32_MAX, int64_t{1} << 31, int64_t{1} << 40,
                               int64_t{1} << 62, INT64_MAX, -1, INT64_MIN};
  for (int64_t i = 0; i < changes; ++i) {
    if (choices.one_in(2)) {
      const int64_t word = choices.below(header_words);
      int64_t value;
      std::memcpy(&value, bytes.data() + word * 8, 8);
      value = choices.one_in(2) ? telling[choices.below(17)] : value ^ (int64_t{1} << choices.below(64));
      std::memcpy(bytes.data() + word * 8, &value, 8);
    } else {
      bytes[static_cast<size_t>(choices.content_below(static_cast<int64_t>(bytes.size())))] = choices.byte();
    }
  }
  if (choices.one_in(3)) bytes.resize(static_cast<size_t>(choices.content_below(static_cast<int64_t>(bytes.size()) + 1)));
  try {
    touch(decode_copy(types, bytes, received), types);
  } catch (const std::invalid_argument&) {
  }
}

void check_export(const Node& root, const Rows& rows, const Values& expected, Choices& choices) {
  ArrowArray exported{};
  export_rows(rows, arena(), &exported);
  CHECK(exported.length == rows.row_count && exported.offset == 0);
  ArrowArray moved{};
  if (exported.n_children > 0 && choices.one_in(2)) {
    ArrowArray* child = exported.children[choices.below(exported.n_children)];
    const auto index = static_cast<size_t>(child - exported.children[0]);
    moved = *child;
    child->release = nullptr;
    exported.release(&exported);
    for (int64_t row = 0; row < rows.row_count; ++row)
      CHECK(read_arrow(*root.children[index], moved, row) == expected[index][static_cast<size_t>(row)]);
    moved.release(&moved);
    return;
  }
  for (size_t index = 0; index < expected.size(); ++index)
    for (int64_t row = 0; row < rows.row_count; ++row)
      CHECK(read_arrow(*root.children[index], *exported.children[index], row) == expected[index][static_cast<size_t>(row)]);
  if (choices.one_in(4)) {  // in again
    std::vector<ColumnType> types = parse_schema(root.schema);
    check_rows(import_rows(types, &exported), expected);
    CHECK(exported.release == nullptr);
    return;
  }
  exported.release(&exported);
}

// ---- contradictions -------------------------------------------------------------------------------------------------------

struct Spoiled {
  bool schema = false, array = false;  // which must be refused
};

void write_offset(Node& node, int64_t slot, int64_t value) {
  const bool wide = node.format == "U" || node.format == "Z";
  if (wide) std::memcpy(node.writable[1] + slot * 8, &value, 8);
  const auto narrow = static_cast<int32_t>(value);
  if (!wide) std::memcpy(node.writable[1] + slot * 4, &narrow, 4);
}

Spoiled spoil_schema(Node& root, Node& node, Choices& choices) {
  const char* unknown[16] = {"",   "?",    "x",             "d:",   "d:3", "d:3,1,77", "d:99999999999,1", "w:",
                             "w:-1", "w:3x", "w:99999999999", "tsX:", "ttX", "tx",       "vx",              "tiX"};
  Spoiled refused;
  refused.schema = true;
  switch (choices.below(6)) {
    case 0: node.schema.format = nullptr; break;
    case 1: root.schema.format = "+l"; break;
    case 2: root.schema.n_children = -1; break;
    case 3: root.schema.children = nullptr; break;
    case 4: root.schema_children[0] = nullptr; break;
    default: node.schema.format = unknown[choices.below(16)]; break;
  }
  return refused;
}

// Make the array contradict its schema; `rows` are needed of it.
Spoiled spoil_array(Node& root, Node& node, int64_t rows, Choices& choices) {
  Spoiled refused;
  refused.array = true;
  ArrowArray& array = node.array;
  const bool nested = node.format[0] == '+' && node.dictionary == nullptr;
  const bool strings = node.dictionary == nullptr && std::strchr("uUzZ", node.format[0]) != nullptr;
  const bool has_values = node.format != "n" && !nested && node.format != "w:0";
  switch (choices.below(22)) {
    case 0: array.length = choices.one_in(2) ? -1 : INT64_MIN; break;
    case 1: array.offset = choices.one_in(2) ? -1 : INT64_MIN; break;
    case 2: array.offset = INT64_MAX - choices.below(30); break;
    case 3: root.array.length = INT64_MAX - choices.below(30); break;
    case 4: root.array.offset = choices.one_in(2) ? -1 : INT64_MAX - choices.below(30); break;
    case 5: array.n_children += choices.one_in(2) ? 1 : -1; break;
    case 6: root.array.n_children += choices.one_in(2) ? 1 : -1; break;
    case 7: root.array.children = nullptr; break;
    case 8: root.array_children[0] = nullptr; break;
    case 9:
      if (choices.one_in(2)) array.n_buffers = -1;
      else if (node.format[0] == 'v' || nested) array.n_buffers = node.format[0] == 'v' ? 2 : -2;  // views have any number
      else array.n_buffers += 1;
      break;
    case 10: if (array.n_buffers > 0) array.buffers = nullptr; else array.length = -1; break;
    case 11:
      if (rows == 0 || node.buffers.empty() || (nested && node.format[1] == 'u')) { array.length = -1; break; }
      node.buffers[0] = nullptr;
      array.null_count = 1;
      break;
    case 12: array.null_count = array.length + 1; break;
    case 13:
      if (rows == 0 || !has_values) { array.length = -1; break; }
      node.buffers[1] = nullptr;
      break;
    case 14:
      if (node.dictionary) array.dictionary = nullptr;
      else array.dictionary = &array;
      break;
    case 15:
      if (strings && rows > 0) {  // the first of our rows begins behind the end of the last
        write_offset(node, array.offset + root.array.offset, 1 << 20);
      } else {
        array.length = -1;
      }
      break;
    case 16:
      if (strings && rows > 0) write_offset(node, array.offset + root.array.offset, -1);
      else array.length = -1;
      break;
    case 17:
      if (strings && rows > 0) {
        const int64_t end = array.offset + root.array.offset + rows;
        refused.array = load_integer(node.writable[1], end, node.format == "U" || node.format == "Z" ? 8 : 4) > 0;
        node.buffers[2] = nullptr;
      } else {
        array.length = -1;
      }
      break;
    case 18:
      if (node.format[0] == 'v' && node.buffers.size() > 3) node.buffers.back() = nullptr;
      else array.length = -1;
      break;
    case 19:
      if (rows == 0) { array.length = -1; break; }
      root.memory.emplace_back(new uint8_t[static_cast<size_t>(root.array.offset + rows + 7) / 8]());
      root.buffers[0] = root.memory.back().get();
      root.array.null_count = -1;
      break;
    case 20:
      if (!node.children.empty()) node.array_children[0] = nullptr;
      else array.length = -1;
      break;
    default:
      if (!node.children.empty()) node.children[0]->array.length = -1;
      else if (node.dictionary) node.dictionary->array.offset = -1;
      else array.length = -1;
      break;
  }
  return refused;
}

void check_released(const Node& node) {
  CHECK(node.schema_releases == 1 && node.array_releases == 1);
  for (const auto& child : node.children) check_released(*child);
  if (node.dictionary) check_released(*node.dictionary);
}

void run(Choices& choices) {
  Node root;
  root.format = "+s";
  const int64_t rows_count = choices.one_in(8) ? choices.below(300) : choices.below(24);
  root.array.length = rows_count;
  root.array.offset = choices.one_in(3) ? choices.below(12) : 0;
  add_validity(root, choices, false);
  const int64_t column_count = choices.below(5);
  for (int64_t index = 0; index < column_count; ++index)
    root.children.push_back(make_child(choices, root.array.offset + rows_count, 0));
  connect(root);

  Values expected;
  for (const auto& child : root.children) {
    expected.emplace_back();
    for (int64_t row = 0; row < rows_count; ++row)
      expected.back().push_back(read_arrow(*child, child->array, root.array.offset + row));
  }

  Spoiled refused;
  if (column_count > 0 && choices.one_in(4)) {
    Node& node = *root.children[static_cast<size_t>(choices.below(column_count))];
    refused = choices.one_in(4) ? spoil_schema(root, node, choices) : spoil_array(root, node, rows_count, choices);
  }
  std::vector<ColumnType> types;
  bool imported = false;
  try {
    types = parse_schema(root.schema);
    CHECK(!refused.schema);
    Rows rows = import_rows(types, &root.array);
    CHECK(root.array.release == nullptr);
    CHECK(root.array_releases == (column_count == 0));  // nothing to keep
    CHECK(!refused.array);
    imported = true;
    CHECK(rows.row_count == rows_count);
    if (choices.one_in(16)) rows = Rows();  // nobody looks
    else {
      check_rows(rows, expected);
      check_slices_and_concatenation(rows, expected, choices);
      check_take_and_hash(rows, expected, choices);
      check_split(rows, expected, choices);
      check_messages(rows, expected, types, choices);
      check_export(root, rows, expected, choices);
      CHECK(root.array_releases == (column_count == 0));
    }
  } catch (const std::invalid_argument& error) {
    if (imported || !(refused.schema || refused.array)) std::fprintf(stderr, "refused: %s\n", error.what());
    CHECK((refused.schema || refused.array) && !imported);
  }
  // What a consumer moved out or refused to take, its producer releases.
  if (refused.schema) {
    root.schema.release(&root.schema);
    root.array.release(&root.array);
  } else {
    CHECK(root.array.release == nullptr);
    root.schema.release(&root.schema);
  }
  check_released(root);
}

// Any bytes as a format: known or not, never a crash.
void parse_any_format(const uint8_t* bytes, size_t size) {
  ColumnView view;
  if (parse_format(std::string(reinterpret_cast<const char*>(bytes), size).c_str(), view)) CHECK(view.width >= 0);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* bytes, size_t size) {
  if (size < 5) return 0;
  if (bytes[0] == 255) {
    parse_any_format(bytes + 1, size - 1);
    return 0;
  }
  Choices choices(bytes + 1, size - 1);
  run(choices);
  return 0;
}
