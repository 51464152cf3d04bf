// A batch as one message: a header of 64-bit little-endian words, then the buffers, each from a multiple of 64 bytes on.
//
//     header   magic, number of header words, number of columns, number of rows, then each column:
//     column   layout, rows, first bit of the bitmap, first bit of the values (bits only), number of buffers,
//              the bytes of each; Layout::dictionary: then its dictionary, as a column
//     buffers  validity (0 bytes: none is null), then what the layout has: values | codes | offsets, bytes | views, bytes
//
// Types do not travel: both ends know the schema. Only the rows of a slice are sent; a dictionary with more values than
// there are rows is cut down to those in use. Opaque columns are one buffer that Arrow makes and reads.
#pragma once

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "jetfast/arrow_c_data.hpp"
#include "jetfast/gather.hpp"

namespace jetfast {

constexpr int64_t kMessageRowsMax = INT32_MAX;  // row numbers are int32, and rows times any width fits int64
constexpr int64_t kMessageMagic = 0x317473616674656a;  // "jetfast1"

struct MessagePiece {
  const void* bytes;
  int64_t size;
};

struct Message {
  std::vector<int64_t> header;
  std::vector<MessagePiece> pieces;
  std::vector<Column> owners;  // keep the pieces alive
};

struct OpaqueBytes {
  const void* bytes;
  int64_t size;
};

inline void encode_column(Arena& arena, const Column& column, const OpaqueBytes* opaque, Message* message);

inline void encode_dictionary(Arena& arena, const Column& column, Message* message) {
  const ColumnView& view = column.view;
  if (view.row_count == 0 || view.dictionary->row_count <= view.row_count) {
    encode_column(arena, column, nullptr, message);
    return;
  }
  // Codes 0, 1, 2, ... into a dictionary of the rows' values: fits any code type, as rows < dictionary values.
  Block picked = arena.allocate(view.row_count * 4);
  auto* rows = reinterpret_cast<int32_t*>(picked.get());
  Column compact = allocate_fixed(arena, type_of(view), view.row_count);
  compact.view.null_count = view.null_count;
  compact.view.validity = view.validity;
  compact.view.validity_offset = view.validity_offset;
  for (int64_t row = 0; row < view.row_count; ++row) {
    uint64_t code = 0;
    if (view.is_valid(row)) std::memcpy(&code, static_cast<const uint8_t*>(view.values) + row * view.width, static_cast<size_t>(view.width));
    rows[row] = static_cast<int32_t>(code);
    std::memcpy(compact.mutable_values<uint8_t>() + row * view.width, &row, static_cast<size_t>(view.width));
  }
  compact.dictionary = std::make_shared<const Column>(take_column(arena, *column.dictionary, rows, view.row_count));
  compact.view.dictionary = &compact.dictionary->view;
  message->owners.push_back(column);  // its bitmap
  encode_column(arena, compact, nullptr, message);
}

inline void encode_column(Arena& arena, const Column& column, const OpaqueBytes* opaque, Message* message) {
  const ColumnView& view = column.view;
  std::vector<int64_t>& header = message->header;
  message->owners.push_back(column);
  const auto add = [message](const void* bytes, int64_t size) {
    message->header.push_back(size);
    message->pieces.push_back({bytes, size});
  };
  const int64_t rows = view.row_count;
  header.push_back(static_cast<int64_t>(view.layout));
  header.push_back(rows);
  header.push_back(view.validity ? view.validity_offset & 7 : 0);
  header.push_back(view.layout == Layout::bits ? view.bits_offset & 7 : 0);
  if (view.layout == Layout::none) {
    header.push_back(0);
    return;
  }
  if (view.layout == Layout::opaque) {
    header.push_back(1);
    add(opaque->bytes, opaque->size);
    return;
  }
  header.push_back(is_string_layout(view.layout) || view.layout == Layout::views ? 3 : 2);
  if (view.validity)
    add(view.validity + (view.validity_offset >> 3), bitmap_bytes((view.validity_offset & 7) + rows));
  else
    add(nullptr, 0);
  switch (view.layout) {
    case Layout::bits:
      if (rows == 0) add(nullptr, 0);
      else add(static_cast<const uint8_t*>(view.values) + (view.bits_offset >> 3), bitmap_bytes((view.bits_offset & 7) + rows));
      break;
    case Layout::fixed: add(view.values, rows * view.width); break;
    case Layout::dictionary:
      add(view.values, rows * view.width);
      encode_column(arena, *column.dictionary, nullptr, message);
      break;
    case Layout::offsets32:
    case Layout::offsets64: {
      if (rows == 0) {
        add(nullptr, 0);
        add(nullptr, 0);
        break;
      }
      const bool wide = view.layout == Layout::offsets64;
      const int64_t from = offset_at(view, 0), bytes = offset_at(view, rows) - from;
      if (from == 0) {
        add(view.offsets, (rows + 1) * (wide ? 8 : 4));
      } else {
        Column rebased;
        rebased.owner = arena.allocate((rows + 1) * (wide ? 8 : 4));
        if (wide) {
          auto* target = static_cast<int64_t*>(const_cast<void*>(rebased.owner.get()));
          for (int64_t row = 0; row <= rows; ++row) target[row] = static_cast<const int64_t*>(view.offsets)[row] - from;
        } else {
          auto* target = static_cast<int32_t*>(const_cast<void*>(rebased.owner.get()));
          const auto base = static_cast<int32_t>(from);
          for (int64_t row = 0; row <= rows; ++row) target[row] = static_cast<const int32_t*>(view.offsets)[row] - base;
        }
        add(rebased.owner.get(), (rows + 1) * (wide ? 8 : 4));
        message->owners.push_back(std::move(rebased));
      }
      add(bytes > 0 ? view.bytes + from : nullptr, bytes);
      break;
    }
    case Layout::views: {
      const int64_t bytes = column_bytes(view) - rows * 16 - (view.validity ? bitmap_bytes(rows) : 0);
      if (bytes > INT32_MAX) throw std::overflow_error("a column of views with more than 2 GiB of text needs shorter batches");
      Column packed;
      Block block = arena.allocate(aligned_bytes(rows * 16) + bytes);
      uint8_t* views = block.get();
      uint8_t* target = views + aligned_bytes(rows * 16);
      int32_t position = 0;
      if (rows > 0) std::memcpy(views, view.values, static_cast<size_t>(rows * 16));
      for (int64_t row = 0; row < rows; ++row) {
        int32_t fields[4];  // length, prefix, buffer, offset
        std::memcpy(fields, views + row * 16, 16);
        if (!view.is_valid(row)) {
          std::memset(views + row * 16, 0, 16);
        } else if (fields[0] > 12) {
          std::memcpy(target + position, view.view_buffers[fields[2]] + fields[3], static_cast<size_t>(fields[0]));
          fields[2] = 0;
          fields[3] = position;
          std::memcpy(views + row * 16, fields, 16);
          position += fields[0];
        }
      }
      packed.owner = std::move(block);
      message->owners.push_back(std::move(packed));
      add(views, rows * 16);
      add(target, position);
      break;
    }
    default: break;
  }
}

// `opaque` has the bytes of each opaque column, in order; they must outlive the message.
inline Message encode_rows(Arena& arena, const Rows& rows, const std::vector<OpaqueBytes>& opaque) {
  Message message;
  message.header = {kMessageMagic, 0, static_cast<int64_t>(rows.columns.size()), rows.row_count};
  message.header.reserve(4 + rows.columns.size() * 8);
  message.pieces.reserve(rows.columns.size() * 3);
  message.owners.reserve(rows.columns.size() + 2);
  size_t next_opaque = 0;
  for (const Column& column : rows.columns) {
    if (column.view.layout == Layout::dictionary) encode_dictionary(arena, column, &message);
    else encode_column(arena, column, column.view.layout == Layout::opaque ? &opaque.at(next_opaque++) : nullptr, &message);
  }
  message.header[1] = static_cast<int64_t>(message.header.size());
  return message;
}

// ---- decoding -------------------------------------------------------------------------------------------------------------

// Reads a message; every size and offset in it is checked, so that a damaged message cannot make us read outside of it.
class MessageReader {
 public:
  MessageReader(const uint8_t* bytes, int64_t size, std::shared_ptr<const void> owner)
      : bytes_(bytes), size_(size), owner_(std::move(owner)) {}

  // Opaque columns come back with view.values at their bytes in the message and view.bits_offset their number.
  Rows read(const std::vector<ColumnType>& types) {
    if (size_ < 32) damaged("is shorter than a header");
    if (word_at(0) != kMessageMagic) damaged("does not begin as a message does");
    header_words_ = word_at(1);
    if (header_words_ < 4 || header_words_ > size_ / 8) damaged("has a header that is longer than itself");
    if (word_at(2) != static_cast<int64_t>(types.size()))
      throw std::invalid_argument("the message has " + std::to_string(word_at(2)) + " columns, the schema " + std::to_string(types.size()));
    Rows rows;
    rows.row_count = word_at(3);
    if (rows.row_count < 0 || rows.row_count > kMessageRowsMax) damaged("has an impossible number of rows");
    next_word_ = 4;
    position_ = aligned_bytes(header_words_ * 8);
    rows.columns.reserve(types.size());
    for (const ColumnType& type : types) {
      Column column = read_column(type);
      if (column.view.row_count != rows.row_count) malformed(type.name, "has another number of rows than the message");
      rows.columns.push_back(std::move(column));
    }
    return rows;
  }

 private:
  [[noreturn]] static void damaged(const std::string& what) { throw std::invalid_argument("the message " + what); }

  int64_t word_at(int64_t index) const {
    int64_t word;
    std::memcpy(&word, bytes_ + index * 8, 8);
    return word;
  }

  int64_t next_word() {
    if (next_word_ >= header_words_) damaged("has a header that ends too early");
    return word_at(next_word_++);
  }

  // The next buffer; it must have `expected` bytes unless that is negative.
  const uint8_t* next_buffer(const std::string& name, int64_t expected, int64_t* size) {
    *size = next_word();
    if (*size < 0 || (expected >= 0 && *size != expected)) malformed(name, "has a buffer of a wrong size in the message");
    if (*size == 0) return nullptr;
    if (position_ > size_ || *size > size_ - position_) malformed(name, "reaches beyond the end of the message");
    const uint8_t* buffer = bytes_ + position_;
    position_ = aligned_bytes(position_ + *size);
    return buffer;
  }

  template <typename Offset>
  void check_offsets(const std::string& name, const ColumnView& view, int64_t byte_count) {
    const auto* offsets = static_cast<const Offset*>(view.offsets);
    bool wrong = offsets[0] != 0 || offsets[view.row_count] != byte_count;
    for (int64_t row = 0; row < view.row_count; ++row) wrong |= offsets[row] > offsets[row + 1];
    if (wrong) malformed(name, "has offsets in the message that are out of order");
  }

  template <typename Code>
  void check_codes(const std::string& name, const ColumnView& view) {
    const auto* codes = static_cast<const Code*>(view.values);  // negative ones become large
    const auto limit = static_cast<uint64_t>(view.dictionary->row_count);
    bool wrong = false;
    if (view.validity == nullptr) {
      for (int64_t row = 0; row < view.row_count; ++row) wrong |= codes[row] >= limit;
    } else {
      for (int64_t row = 0; row < view.row_count; ++row) wrong |= codes[row] >= limit && get_bit(view.validity, view.validity_offset + row);
    }
    if (wrong) malformed(name, "has codes in the message that are not in its dictionary");
  }

  Column read_column(const ColumnType& type) {
    Column column;
    column.view = type_of(type.view);
    ColumnView& view = column.view;
    if (next_word() != static_cast<int64_t>(view.layout)) malformed(type.name, "has another layout in the message than in the schema");
    view.row_count = next_word();
    if (view.row_count < 0 || view.row_count > kMessageRowsMax) malformed(type.name, "has an impossible number of rows");
    const int64_t validity_offset = next_word();
    const int64_t bits_offset = next_word();
    if (((validity_offset | bits_offset) & ~int64_t{7}) != 0) malformed(type.name, "has a bit offset above 7 in the message");
    const int64_t buffer_count = next_word();
    const int64_t needed = view.layout == Layout::none ? 0
                           : view.layout == Layout::opaque ? 1
                           : is_string_layout(view.layout) || view.layout == Layout::views ? 3 : 2;
    if (buffer_count != needed) malformed(type.name, "has a wrong number of buffers in the message");
    const int64_t rows = view.row_count;
    column.owner = owner_;
    int64_t size = 0;
    if (view.layout == Layout::none) {
      view.null_count = rows;
      return column;
    }
    if (view.layout == Layout::opaque) {
      view.values = next_buffer(type.name, -1, &size);
      if (size == 0) malformed(type.name, "has no bytes in the message");
      view.bits_offset = size;
      return column;
    }
    const uint8_t* validity = next_buffer(type.name, -1, &size);
    if (size != 0) {
      if (size != bitmap_bytes(validity_offset + rows)) malformed(type.name, "has a bitmap of a wrong size in the message");
      view.validity = validity;
      view.validity_offset = validity_offset;
      settle_nulls(view);
    }
    switch (view.layout) {
      case Layout::bits:
        view.values = next_buffer(type.name, rows == 0 ? 0 : bitmap_bytes(bits_offset + rows), &size);
        view.bits_offset = bits_offset;
        break;
      case Layout::fixed: view.values = next_buffer(type.name, rows * view.width, &size); break;
      case Layout::dictionary: {
        view.values = next_buffer(type.name, rows * view.width, &size);
        column.dictionary = std::make_shared<const Column>(read_column(*type.dictionary));
        view.dictionary = &column.dictionary->view;
        if (view.kind == Kind::null) view.null_count = rows;
        switch (view.width) {
          case 1: check_codes<uint8_t>(type.name, view); break;
          case 2: check_codes<uint16_t>(type.name, view); break;
          case 4: check_codes<uint32_t>(type.name, view); break;
          default: check_codes<uint64_t>(type.name, view); break;
        }
        break;
      }
      case Layout::offsets32:
      case Layout::offsets64: {
        const int64_t width = view.layout == Layout::offsets64 ? 8 : 4;
        view.offsets = next_buffer(type.name, rows == 0 ? 0 : (rows + 1) * width, &size);
        view.bytes = next_buffer(type.name, rows == 0 ? 0 : -1, &size);
        if (rows == 0) break;
        if (width == 8) check_offsets<int64_t>(type.name, view, size);
        else check_offsets<int32_t>(type.name, view, size);
        break;
      }
      case Layout::views: {
        view.values = next_buffer(type.name, rows * 16, &size);
        const uint8_t* text = next_buffer(type.name, -1, &size);
        auto buffers = std::make_shared<ViewBuffers>();
        buffers->pointers.push_back(text);
        buffers->sizes.push_back(size);
        buffers->owners.push_back(owner_);
        for (int64_t row = 0; row < rows; ++row) {
          int32_t fields[4];
          std::memcpy(fields, static_cast<const uint8_t*>(view.values) + row * 16, 16);
          const bool inside = fields[0] >= 0 && (fields[0] <= 12 || (fields[2] == 0 && fields[3] >= 0 &&
                                                                     int64_t{fields[3]} + fields[0] <= size));
          if (!inside) malformed(type.name, "has views in the message that point outside of it");
        }
        view.view_buffers = buffers->pointers.data();
        column.view_buffers = std::move(buffers);
        break;
      }
      default: break;
    }
    return column;
  }

  const uint8_t* bytes_;
  int64_t size_;
  std::shared_ptr<const void> owner_;
  int64_t header_words_ = 0, next_word_ = 0, position_ = 0;
};

inline Rows decode_rows(const std::vector<ColumnType>& types, const uint8_t* bytes, int64_t size,
                        const std::shared_ptr<const void>& owner) {
  return MessageReader(bytes, size, owner).read(types);
}

}  // namespace jetfast
