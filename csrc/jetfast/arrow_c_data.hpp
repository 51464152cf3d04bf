// In and out of Arrow through its C data interface, without copying: column types from format strings, foreign arrays as
// columns, columns as arrays.
//
// An imported array is moved into a ForeignArray that every column made from it holds; its release callback runs on
// whatever thread drops the last of them, with or without the GIL. An exported array holds copies of our handles; its
// release callback only drops those. Malformed input throws std::invalid_argument with a message that names the column.
// The interface carries no buffer sizes, so that a buffer is as long as its array says cannot be checked.
#pragma once

#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "jetfast/batch.hpp"

extern "C" {
#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE
struct ArrowSchema {
  const char* format;
  const char* name;
  const char* metadata;
  int64_t flags;
  int64_t n_children;
  struct ArrowSchema** children;
  struct ArrowSchema* dictionary;
  void (*release)(struct ArrowSchema*);
  void* private_data;
};
struct ArrowArray {
  int64_t length;
  int64_t null_count;
  int64_t offset;
  int64_t n_buffers;
  int64_t n_children;
  const void** buffers;
  struct ArrowArray** children;
  struct ArrowArray* dictionary;
  void (*release)(struct ArrowArray*);
  void* private_data;
};
#endif
#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE
struct ArrowArrayStream {
  int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema*);
  int (*get_next)(struct ArrowArrayStream*, struct ArrowArray*);
  const char* (*get_last_error)(struct ArrowArrayStream*);
  void (*release)(struct ArrowArrayStream*);
  void* private_data;
};
#endif
}

namespace jetfast {

// ---- types ----------------------------------------------------------------------------------------------------------------

// A column's name and type; `view` has no rows. Layout::dictionary has the type of its values too.
struct ColumnType {
  std::string name;
  ColumnView view;
  std::shared_ptr<const ColumnType> dictionary;
  std::vector<ColumnType> children;  // of what is nested
  int64_t nested_buffers = -1;       // that an array of a nested type has; -1: not known
  bool is_converted = false;   // must be converted before it can be imported: jetfast/kernels/carried.py says what and how
  bool has_metadata = false;   // it, or something in it, may be an extension type
};

inline bool time_unit_of(char letter, TimeUnit* unit) {
  switch (letter) {
    case 's': *unit = TimeUnit::second; return true;
    case 'm': *unit = TimeUnit::milli; return true;
    case 'u': *unit = TimeUnit::micro; return true;
    case 'n': *unit = TimeUnit::nano; return true;
    default: return false;
  }
}

inline void set_fixed(ColumnView& view, Kind kind, int32_t width) {
  view.kind = kind;
  view.layout = Layout::fixed;
  view.width = width;
}

// Read numbers with commas between them, to the end of the text; returns how many, or -1 if it is anything else.
inline int parse_numbers(const char* text, int32_t* numbers, int count_max) {
  for (int count = 0; count < count_max; ++count) {
    if (*text != '-' && (*text < '0' || *text > '9')) return -1;
    char* end = nullptr;
    errno = 0;
    const long value = std::strtol(text, &end, 10);
    if (end == text || errno != 0 || value < INT32_MIN || value > INT32_MAX) return -1;
    numbers[count] = static_cast<int32_t>(value);
    if (*end == '\0') return count + 1;
    if (*end != ',') return -1;
    text = end + 1;
  }
  return -1;
}

// Read a format string of the C data interface; false if it is none that we know.
inline bool parse_format(const char* format, ColumnView& view) {
  const std::string text = format ? format : "";
  if (text.empty()) return false;
  if (text.size() == 1) {
    switch (text[0]) {
      case 'n': view.kind = Kind::null; view.layout = Layout::none; return true;
      case 'b': view.kind = Kind::boolean; view.layout = Layout::bits; return true;
      case 'c': set_fixed(view, Kind::int8, 1); return true;
      case 'C': set_fixed(view, Kind::uint8, 1); return true;
      case 's': set_fixed(view, Kind::int16, 2); return true;
      case 'S': set_fixed(view, Kind::uint16, 2); return true;
      case 'i': set_fixed(view, Kind::int32, 4); return true;
      case 'I': set_fixed(view, Kind::uint32, 4); return true;
      case 'l': set_fixed(view, Kind::int64, 8); return true;
      case 'L': set_fixed(view, Kind::uint64, 8); return true;
      case 'e': set_fixed(view, Kind::float16, 2); return true;
      case 'f': set_fixed(view, Kind::float32, 4); return true;
      case 'g': set_fixed(view, Kind::float64, 8); return true;
      case 'z': view.kind = Kind::binary; view.layout = Layout::offsets32; return true;
      case 'Z': view.kind = Kind::binary; view.layout = Layout::offsets64; return true;
      case 'u': view.kind = Kind::string; view.layout = Layout::offsets32; return true;
      case 'U': view.kind = Kind::string; view.layout = Layout::offsets64; return true;
      default: return false;
    }
  }
  if (text == "vz" || text == "vu") {
    view.kind = text == "vz" ? Kind::binary : Kind::string;
    view.layout = Layout::views;
    return true;
  }
  if (text[0] == 'd' && text[1] == ':') {
    int32_t numbers[3] = {0, 0, 128};  // precision, scale, bits
    if (parse_numbers(text.c_str() + 2, numbers, 3) < 2) return false;
    const int32_t bits = numbers[2];
    const Kind kind = bits == 32 ? Kind::decimal32 : bits == 64 ? Kind::decimal64 : bits == 256 ? Kind::decimal256 : Kind::decimal128;
    if (bits != 32 && bits != 64 && bits != 128 && bits != 256) return false;
    set_fixed(view, kind, bits / 8);
    view.precision = numbers[0];
    view.scale = numbers[1];
    return true;
  }
  if (text[0] == 'w' && text[1] == ':') {
    int32_t width = 0;
    if (parse_numbers(text.c_str() + 2, &width, 1) != 1 || width < 0) return false;
    set_fixed(view, Kind::fixed_binary, width);
    return true;
  }
  if (text[0] == 't' && text.size() >= 3) {
    if (text == "tdD") { set_fixed(view, Kind::date32, 4); return true; }
    if (text == "tdm") { set_fixed(view, Kind::date64, 8); return true; }
    TimeUnit unit;
    if (text == "tiM" || text == "tiD" || text == "tin") {  // intervals have no place in the kernels: Arrow moves them
      view.kind = Kind::nested;
      view.layout = Layout::opaque;
      return true;
    }
    if (!time_unit_of(text[2], &unit)) return false;
    if (text[1] == 't') {
      if (unit == TimeUnit::second || unit == TimeUnit::milli) set_fixed(view, Kind::time32, 4);
      else set_fixed(view, Kind::time64, 8);
    } else if (text[1] == 's') {
      set_fixed(view, Kind::timestamp, 8);
    } else if (text[1] == 'D') {
      set_fixed(view, Kind::duration, 8);
    } else {
      return false;
    }
    view.unit = unit;
    return true;
  }
  if (text[0] == '+') {
    view.kind = Kind::nested;
    view.layout = Layout::opaque;
    return true;
  }
  return false;
}

// Buffers that an array of a nested type has; -1 for those we leave to Arrow, and unions, which had one more once.
inline int64_t nested_buffer_count(const char* format) {
  if (format[0] == 't') return 2;  // intervals
  switch (format[1]) {
    case 's':
    case 'w': return 1;
    case 'l':
    case 'L':
    case 'm': return 2;
    case 'r': return 0;
    default: return -1;
  }
}

inline std::vector<ColumnType> parse_children(const ArrowSchema& schema, bool inside);

// `inside`: of something nested, or of a dictionary.
inline ColumnType parse_column_type(const ArrowSchema& schema, bool inside = false) {
  ColumnType type;
  type.name = schema.name ? schema.name : "";
  type.has_metadata = schema.metadata != nullptr;
  if (!parse_format(schema.format, type.view))
    throw std::invalid_argument("column '" + type.name + "' has the Arrow format '" +
                                (schema.format ? schema.format : "") + "', which is not known");
  const bool is_nested = schema.format[0] == '+';
  type.is_converted = (is_nested && (schema.format[1] == 'r' || schema.format[1] == 'v')) ||  // run ends, list views
                      (inside && type.view.layout == Layout::views);
  type.children = parse_children(schema, true);
  for (const ColumnType& child : type.children) {
    type.is_converted |= child.is_converted;
    type.has_metadata |= child.has_metadata;
  }
  if (type.view.layout == Layout::opaque) type.nested_buffers = nested_buffer_count(schema.format);
  else if (!type.children.empty()) throw std::invalid_argument("column '" + type.name + "' has children, which its type has not");
  if (schema.dictionary == nullptr) return type;
  if (schema.dictionary->release == nullptr)
    throw std::invalid_argument("column '" + type.name + "' has a dictionary whose type was already released");
  const ColumnView codes = type.view;
  switch (codes.kind) {
    case Kind::int8: case Kind::int16: case Kind::int32: case Kind::int64: break;
    case Kind::uint8: case Kind::uint16: case Kind::uint32: case Kind::uint64: break;
    default: throw std::invalid_argument("column '" + type.name + "' has dictionary codes that are not integers");
  }
  ColumnType values = parse_column_type(*schema.dictionary, true);
  const bool is_flat = values.view.layout != Layout::opaque && values.view.layout != Layout::dictionary;
  type.is_converted = inside || !is_flat || values.is_converted;
  type.has_metadata |= values.has_metadata;
  if (!is_flat) {
    type.view = ColumnView();  // a dictionary of lists, say
    type.view.kind = Kind::nested;
    type.view.layout = Layout::opaque;
    type.nested_buffers = 2;
    type.dictionary = std::make_shared<const ColumnType>(std::move(values));
    return type;
  }
  type.view = values.view;
  type.view.layout = Layout::dictionary;
  type.view.width = codes.width;
  type.view.code_unsigned = codes.kind >= Kind::uint8 && codes.kind <= Kind::uint64;
  type.dictionary = std::make_shared<const ColumnType>(std::move(values));
  return type;
}

inline std::vector<ColumnType> parse_children(const ArrowSchema& schema, bool inside) {
  if (schema.n_children < 0 || (schema.n_children > 0 && schema.children == nullptr))
    throw std::invalid_argument("the Arrow schema has no children");
  std::vector<ColumnType> types;
  types.reserve(static_cast<size_t>(schema.n_children));
  for (int64_t index = 0; index < schema.n_children; ++index) {
    if (schema.children[index] == nullptr || schema.children[index]->release == nullptr)
      throw std::invalid_argument("the Arrow schema has a missing child");
    types.push_back(parse_column_type(*schema.children[index], inside));
  }
  return types;
}

// The columns of a struct schema (a record batch).
inline std::vector<ColumnType> parse_schema(const ArrowSchema& schema) {
  if (schema.release == nullptr) throw std::invalid_argument("the Arrow schema was already released");
  if (schema.format == nullptr || std::strcmp(schema.format, "+s") != 0)
    throw std::invalid_argument(std::string("rows must come as an Arrow struct (a record batch), got the format '") +
                                (schema.format ? schema.format : "") + "'");
  return parse_children(schema, false);
}

// ---- import ---------------------------------------------------------------------------------------------------------------

// Owns an array that somebody else made; moved in.
struct ForeignArray {
  ArrowArray array;

  explicit ForeignArray(ArrowArray* source) : array(*source) { source->release = nullptr; }
  ForeignArray(const ForeignArray&) = delete;
  ForeignArray& operator=(const ForeignArray&) = delete;
  ~ForeignArray() {
    if (array.release) array.release(&array);
  }
};

[[noreturn]] inline void malformed(const std::string& name, const std::string& what) {
  throw std::invalid_argument("column '" + name + "': " + what);
}

// No array has more rows: sums and products with their numbers, and with widths, do not overflow.
constexpr int64_t kArrayRowsMax = int64_t{1} << 40;
constexpr int32_t kValueBytesMax = 1 << 22;

inline void check_extent(const std::string& name, const ArrowArray& array) {
  if (array.length < 0 || array.offset < 0) malformed(name, "negative length or offset");
  if (array.length > kArrayRowsMax || array.offset > kArrayRowsMax) malformed(name, "has an impossible number of rows");
  if (array.null_count > array.length) malformed(name, "has more nulls than rows");
}

// Buffers of an array of this type (views: at least); -1: not known.
inline int64_t buffers_of(const ColumnType& type) {
  switch (type.view.layout) {
    case Layout::none: return 0;
    case Layout::opaque: return type.nested_buffers;
    case Layout::offsets32:
    case Layout::offsets64:
    case Layout::views: return 3;
    default: return 2;
  }
}

// As many buffers as the type has, and those that rows need.
inline void check_buffers(const ColumnType& type, const std::string& name, const ArrowArray& array, int64_t rows) {
  const ColumnView& view = type.view;
  const int64_t needed = buffers_of(type);
  const bool as_many = needed < 0 || view.layout == Layout::views ? array.n_buffers >= needed : array.n_buffers == needed;
  if (array.n_buffers < 0 || !as_many)
    malformed(name, "has " + std::to_string(array.n_buffers) + " buffers where its type has " + std::to_string(needed));
  if (array.n_buffers > 0 && array.buffers == nullptr) malformed(name, "has no list of buffers");
  if (needed < 0 || rows == 0) return;
  if (needed >= 1 && array.null_count > 0 && array.buffers[0] == nullptr) malformed(name, "has nulls but no validity bitmap");
  if (needed >= 2 && array.buffers[1] == nullptr && !(view.layout == Layout::fixed && view.width == 0))
    malformed(name, is_string_layout(view.layout) ? "has rows but no offsets" : "has rows but no values");
}

// What Arrow itself looks into later: no pointer that is missing, no list shorter than the type says.
inline void check_nested(const ColumnType& type, const std::string& name, const ArrowArray& array) {
  check_extent(name, array);
  check_buffers(type, name, array, array.length);
  if (array.n_children != static_cast<int64_t>(type.children.size()))
    malformed(name, "has " + std::to_string(array.n_children) + " children where its type has " + std::to_string(type.children.size()));
  for (size_t index = 0; index < type.children.size(); ++index) {
    if (array.children == nullptr || array.children[index] == nullptr || array.children[index]->release == nullptr)
      malformed(name, "lacks a child");
    check_nested(type.children[index], name, *array.children[index]);
  }
  if ((array.dictionary != nullptr) != (type.dictionary != nullptr))
    malformed(name, array.dictionary ? "has a dictionary that its type does not have" : "lacks its dictionary");
  if (array.dictionary == nullptr) return;
  if (array.dictionary->release == nullptr) malformed(name, "has a dictionary that was already released");
  check_nested(*type.dictionary, name, *array.dictionary);
}

// `bytes` bytes at `source`, aligned for values of `width` bytes: itself where it is. Kernels load whole values; the
// interface only wishes for alignment. A copy has room in front for the rows by which export steps back.
inline const uint8_t* align_buffer(const uint8_t* source, int64_t bytes, int64_t width, std::shared_ptr<const void>* owner) {
  if ((width != 2 && width != 4 && width != 8) || (reinterpret_cast<uintptr_t>(source) & static_cast<uintptr_t>(width - 1)) == 0)
    return source;
  struct Copy {
    std::shared_ptr<const void> original;
    std::unique_ptr<uint8_t[]> memory;  // operator new aligns it for any number
  };
  auto copy = std::make_shared<Copy>();
  copy->original = *owner;
  copy->memory.reset(new uint8_t[static_cast<size_t>(bytes + 8 * width)]());
  uint8_t* target = copy->memory.get() + 8 * width;
  if (bytes > 0) std::memcpy(target, source, static_cast<size_t>(bytes));
  *owner = std::move(copy);
  return target;
}

// Rows [start, start + row_count) of `array` as a column; `owner` keeps the array alive.
inline Column import_column(const ColumnType& type, const ArrowArray& array, int64_t start, int64_t row_count,
                            const std::shared_ptr<const void>& owner) {
  const std::string& name = type.name;
  check_extent(name, array);
  if (array.length < start + row_count)
    malformed(name, "has " + std::to_string(array.length) + " rows where the batch needs " + std::to_string(start + row_count));
  Column column;
  column.view = type.view;
  ColumnView& view = column.view;
  view.row_count = row_count;
  column.owner = owner;
  if (view.layout == Layout::opaque) {
    check_nested(type, name, array);
    view.values = &array;
    view.bits_offset = start;
    view.null_count = 0;  // only Arrow looks inside
    return column;
  }
  if (array.n_children != 0) malformed(name, "has " + std::to_string(array.n_children) + " children where its type has none");
  if ((array.dictionary != nullptr) != (view.layout == Layout::dictionary))
    malformed(name, array.dictionary ? "has a dictionary that its type does not have" : "lacks its dictionary");
  if (array.dictionary != nullptr && array.dictionary->release == nullptr) malformed(name, "has a dictionary that was already released");
  if (view.width > kValueBytesMax) malformed(name, "has values of " + std::to_string(view.width) + " bytes, more than 4 MiB");
  check_buffers(type, name, array, row_count);
  const int64_t offset = array.offset + start;
  if (view.kind == Kind::null && view.layout == Layout::none) {
    view.null_count = row_count;
    return column;
  }
  const auto* validity = static_cast<const uint8_t*>(array.buffers[0]);
  const bool whole = start == 0 && row_count == array.length;
  if (row_count > 0 && array.null_count != 0 && validity != nullptr) {
    view.null_count = whole && array.null_count > 0 ? array.null_count : row_count - count_ones(validity, offset, row_count);
    if (view.null_count > 0) {
      view.validity = validity;
      view.validity_offset = offset;
    }
  }
  const auto* first = static_cast<const uint8_t*>(array.buffers[1]);
  switch (view.layout) {
    case Layout::bits:
      view.values = first;
      view.bits_offset = offset;
      break;
    case Layout::fixed:
      view.values = first ? align_buffer(first + offset * view.width, row_count * view.width, view.width, &column.owner) : nullptr;
      break;
    case Layout::dictionary: {
      view.values = first ? align_buffer(first + offset * view.width, row_count * view.width, view.width, &column.owner) : nullptr;
      if (array.dictionary->length > INT32_MAX) malformed(name, "has a dictionary of more than 2^31 - 1 values");
      auto dictionary = std::make_shared<Column>(
          import_column(*type.dictionary, *array.dictionary, 0, array.dictionary->length, owner));
      view.dictionary = &dictionary->view;
      column.dictionary = std::move(dictionary);
      if (view.kind == Kind::null) view.null_count = row_count;  // the bitmap still tells which codes are any
      break;
    }
    case Layout::offsets32:
    case Layout::offsets64: {
      if (row_count == 0) break;
      const int64_t width = view.layout == Layout::offsets64 ? 8 : 4;
      view.offsets = align_buffer(first + offset * width, (row_count + 1) * width, width, &column.owner);
      view.bytes = static_cast<const uint8_t*>(array.buffers[2]);
      const int64_t from = offset_at(view, 0), to = offset_at(view, row_count);
      if (from < 0 || to < from) malformed(name, "has offsets that run backwards");
      if (to > 0 && view.bytes == nullptr) malformed(name, "has offsets but no bytes");
      break;
    }
    case Layout::views: {
      view.values = first ? first + offset * 16 : nullptr;
      auto buffers = std::make_shared<ViewBuffers>();
      const int64_t count = array.n_buffers - 3;
      const auto* sizes = static_cast<const int64_t*>(array.buffers[array.n_buffers - 1]);
      if (count > 0 && sizes == nullptr) malformed(name, "has no sizes of its view buffers");
      for (int64_t index = 0; index < count; ++index) {
        buffers->pointers.push_back(static_cast<const uint8_t*>(array.buffers[2 + index]));
        buffers->sizes.push_back(sizes[index]);
      }
      buffers->owners.push_back(owner);
      view.view_buffers = buffers->pointers.data();
      column.view_buffers = std::move(buffers);
      break;
    }
    default: break;
  }
  return column;
}

// Rows of a struct array, which is moved from (also when this throws).
inline Rows import_rows(const std::vector<ColumnType>& types, ArrowArray* source) {
  if (source->release == nullptr) throw std::invalid_argument("the Arrow array was already released");
  auto foreign = std::make_shared<ForeignArray>(source);
  const ArrowArray& array = foreign->array;
  if (array.length < 0 || array.offset < 0) throw std::invalid_argument("the batch has a negative length or offset");
  if (array.length > kArrayRowsMax || array.offset > kArrayRowsMax)
    throw std::invalid_argument("the batch has an impossible number of rows");
  if (array.n_children != static_cast<int64_t>(types.size()))
    throw std::invalid_argument("the batch has " + std::to_string(array.n_children) + " columns, its schema " +
                                std::to_string(types.size()));
  if (array.n_buffers != 1 || array.buffers == nullptr)
    throw std::invalid_argument("the batch has " + std::to_string(array.n_buffers) + " buffers where a struct array has 1");
  if (array.buffers[0] == nullptr ? array.null_count > 0 && array.length > 0
                                  : array.null_count != 0 && count_ones(static_cast<const uint8_t*>(array.buffers[0]), array.offset,
                                                                        array.length) != array.length)
    throw std::invalid_argument("the batch is a struct array with null rows, which no batch of rows can have");
  Rows rows;
  rows.row_count = array.length;
  rows.columns.reserve(types.size());
  for (size_t index = 0; index < types.size(); ++index) {
    if (array.children == nullptr || array.children[index] == nullptr || array.children[index]->release == nullptr)
      malformed(types[index].name, "is missing");
    rows.columns.push_back(import_column(types[index], *array.children[index], array.offset, array.length, foreign));
  }
  return rows;
}

// A single array that is not a struct (a key column, say), moved from.
inline Column import_single(const ColumnType& type, ArrowArray* source) {
  if (source->release == nullptr) throw std::invalid_argument("the Arrow array was already released");
  auto foreign = std::make_shared<ForeignArray>(source);
  return import_column(type, foreign->array, 0, foreign->array.length, foreign);
}

// ---- export ---------------------------------------------------------------------------------------------------------------

// What an exported array owns: handles, and the lists that its pointers point to.
struct ExportedArray {
  Column column;
  std::shared_ptr<const void> extra;
  std::vector<const void*> buffers;
  std::vector<ArrowArray> children;
  std::vector<ArrowArray*> child_pointers;
  ArrowArray dictionary{};
};

inline void release_exported(ArrowArray* array) {
  auto* exported = static_cast<ExportedArray*>(array->private_data);
  for (int64_t index = 0; index < array->n_children; ++index)  // one that the consumer moved out has no release
    if (array->children[index]->release) array->children[index]->release(array->children[index]);
  if (array->dictionary && array->dictionary->release) array->dictionary->release(array->dictionary);
  array->release = nullptr;
  delete exported;
}

inline void finish_export(std::unique_ptr<ExportedArray> exported, ArrowArray* out) {
  for (ArrowArray& child : exported->children) exported->child_pointers.push_back(&child);
  out->n_buffers = static_cast<int64_t>(exported->buffers.size());
  out->buffers = exported->buffers.data();
  out->n_children = static_cast<int64_t>(exported->children.size());
  out->children = exported->child_pointers.empty() ? nullptr : exported->child_pointers.data();
  out->dictionary = exported->dictionary.release ? &exported->dictionary : nullptr;
  out->release = release_exported;
  out->private_data = exported.release();
}

// Children that were exported are released when a later step throws.
struct ExportGuard {
  std::unique_ptr<ExportedArray> exported = std::make_unique<ExportedArray>();
  ~ExportGuard() {
    if (!exported) return;
    for (ArrowArray& child : exported->children)
      if (child.release) child.release(&child);
    if (exported->dictionary.release) exported->dictionary.release(&exported->dictionary);
  }
};

// A foreign array once more, as often as wanted: the structs are ours, the buffers stay the owner's.
inline void export_foreign(const ArrowArray& source, int64_t start, int64_t row_count, bool whole,
                           const std::shared_ptr<const void>& owner, ArrowArray* out) {
  ExportGuard guard;
  ExportedArray& exported = *guard.exported;
  exported.extra = owner;
  for (int64_t index = 0; index < source.n_buffers; ++index) exported.buffers.push_back(source.buffers[index]);
  exported.children.resize(static_cast<size_t>(source.n_children));
  for (int64_t index = 0; index < source.n_children; ++index)
    export_foreign(*source.children[index], 0, 0, true, owner, &exported.children[static_cast<size_t>(index)]);
  if (source.dictionary) export_foreign(*source.dictionary, 0, 0, true, owner, &exported.dictionary);
  *out = ArrowArray{};
  out->length = whole ? source.length : row_count;
  // Arrow takes the buffers of an array without rows to be empty, and then fails on an offset into them.
  out->offset = out->length == 0 ? 0 : source.offset + (whole ? 0 : start);
  const bool same = whole || (start == 0 && row_count == source.length);
  out->null_count = same ? source.null_count : (source.null_count == 0 ? 0 : -1);
  finish_export(std::move(guard.exported), out);
}

inline constexpr int64_t kNoOffsets[1] = {0};

inline void export_column(const Column& column, Arena& arena, ArrowArray* out) {
  const ColumnView& view = column.view;
  if (view.layout == Layout::opaque) {
    export_foreign(*static_cast<const ArrowArray*>(view.values), view.bits_offset, view.row_count, false, column.owner, out);
    return;
  }
  ExportGuard guard;
  ExportedArray& exported = *guard.exported;
  exported.column = column;
  *out = ArrowArray{};
  out->length = view.row_count;
  if (view.layout == Layout::none) {
    out->null_count = view.row_count;
    finish_export(std::move(guard.exported), out);
    return;
  }
  out->null_count = view.validity == nullptr ? 0 : view.kind == Kind::null ? -1 : view.null_count;
  // Arrow has one offset for all buffers. Bitmaps cannot start in the middle of a byte, so the offset is the bitmap's
  // (below 8), and the other pointers step back by as much: nobody reads those rows.
  const uint8_t* validity = view.validity;
  int64_t validity_offset = view.validity_offset;
  int64_t shift = 0;
  if (view.row_count == 0) {
    validity = nullptr;
  } else if (view.layout == Layout::bits) {
    shift = view.bits_offset & 7;
  } else if (validity) {
    shift = validity_offset & 7;
  }
  if (validity && (validity_offset & 7) != shift) {  // only bits beside bits can disagree: move the bitmap
    Block block = arena.allocate(bitmap_bytes(shift + view.row_count));
    std::memset(block.get(), 0, static_cast<size_t>(bitmap_bytes(shift + view.row_count)));
    copy_bits(validity, validity_offset, view.row_count, block.get(), shift);
    validity = block.get();
    validity_offset = shift;
    exported.extra = std::move(block);
  }
  out->offset = shift;
  exported.buffers.push_back(validity ? validity + (validity_offset >> 3) : nullptr);
  const auto step_back = [shift](const void* pointer, int64_t width) -> const void* {
    return pointer ? static_cast<const uint8_t*>(pointer) - shift * width : nullptr;
  };
  switch (view.layout) {
    case Layout::bits:
      exported.buffers.push_back(view.values ? static_cast<const uint8_t*>(view.values) + (view.bits_offset >> 3) : nullptr);
      break;
    case Layout::fixed: exported.buffers.push_back(step_back(view.values, view.width)); break;
    case Layout::dictionary:
      exported.buffers.push_back(step_back(view.values, view.width));
      export_column(*column.dictionary, arena, &exported.dictionary);
      break;
    case Layout::offsets32:
    case Layout::offsets64:
      // one offset is there even without rows
      exported.buffers.push_back(view.row_count == 0 ? static_cast<const void*>(kNoOffsets)
                                                     : step_back(view.offsets, view.layout == Layout::offsets64 ? 8 : 4));
      exported.buffers.push_back(view.bytes);
      break;
    case Layout::views:
      exported.buffers.push_back(step_back(view.values, 16));
      for (const uint8_t* buffer : column.view_buffers->pointers) exported.buffers.push_back(buffer);
      exported.buffers.push_back(column.view_buffers->sizes.data());
      break;
    default: break;
  }
  finish_export(std::move(guard.exported), out);
}

// All columns as one struct array.
inline void export_rows(const Rows& rows, Arena& arena, ArrowArray* out) {
  ExportGuard guard;
  ExportedArray& exported = *guard.exported;
  exported.buffers.push_back(nullptr);
  exported.children.resize(rows.columns.size());
  for (size_t index = 0; index < rows.columns.size(); ++index)
    export_column(rows.columns[index], arena, &exported.children[index]);
  *out = ArrowArray{};
  out->length = rows.row_count;
  finish_export(std::move(guard.exported), out);
}

}  // namespace jetfast
