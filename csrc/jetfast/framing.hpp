// A batch as one message: a header of 64-bit little-endian words, then the buffers, each from a multiple of 64 bytes on.
//
//     header   magic, number of header words, number of columns, number of rows, then each column:
//     column   layout, place, rows, first bit of the bitmap, first bit of the values (bits only), number of buffers,
//              the bytes of each; Layout::dictionary: then its dictionary, as a column
//     place    0; or p + 1: the receiver keeps the column in place p; or -1 - p: it is what is kept there, only layout, place,
//              rows and a dictionary follow (sent_columns.hpp)
//     buffers  validity (0 bytes: none is null), then what the layout has: values | codes | offsets, bytes | views, bytes
//
// Types do not travel: both ends know the schema. Only the rows of a slice are sent; a dictionary with more values than
// there are rows is cut down to those in use. Opaque columns are one buffer that Arrow makes and reads.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "jetfast/arrow_c_data.hpp"
#include "jetfast/gather.hpp"
#include "jetfast/sent_columns.hpp"

namespace jetfast {

constexpr int64_t kMessageRowsMax = INT32_MAX;  // row numbers are int32, and rows times any width fits int64
constexpr int64_t kMessageMagic = 0x327473616674656a;  // "jetfast2"

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

// Writes the columns of one message.
class MessageWriter {
 public:
  MessageWriter(Arena& arena, SentColumns* sent, Message& message) : arena_(arena), sent_(sent), message_(message) {}

  // `opaque`: the bytes of an opaque column.
  void write(const Column& column, const OpaqueBytes* opaque) {
    const ColumnView& view = column.view;
    if (view.layout == Layout::dictionary && view.row_count > 0 && view.dictionary->row_count > view.row_count)
      write_column(cut_dictionary(column), nullptr);
    else
      write_column(column, opaque);
  }

 private:
  // A column with no more dictionary values than rows. Codes 0, 1, 2, ... fit any type, as rows < dictionary values.
  Column cut_dictionary(const Column& column) {
    const ColumnView& view = column.view;
    Block picked = arena_.allocate(view.row_count * 4);
    auto* rows = reinterpret_cast<int32_t*>(picked.get());
    Column compact = allocate_fixed(arena_, type_of(view), view.row_count);
    compact.view.null_count = view.null_count;
    compact.view.validity = view.validity;
    compact.view.validity_offset = view.validity_offset;
    for (int64_t row = 0; row < view.row_count; ++row) {
      uint64_t code = 0;
      if (view.is_valid(row)) std::memcpy(&code, static_cast<const uint8_t*>(view.values) + row * view.width, static_cast<size_t>(view.width));
      rows[row] = static_cast<int32_t>(code);
      std::memcpy(compact.mutable_values<uint8_t>() + row * view.width, &row, static_cast<size_t>(view.width));
    }
    compact.dictionary = std::make_shared<const Column>(take_column(arena_, *column.dictionary, rows, view.row_count));
    compact.view.dictionary = &compact.dictionary->view;
    message_.owners.push_back(column);  // its bitmap
    return compact;
  }

  void write_column(const Column& column, const OpaqueBytes* opaque) {
    const ColumnView& view = column.view;
    std::vector<int64_t>& header = message_.header;
    const bool comes_again = sent_ != nullptr && column.comes_again && view.layout != Layout::opaque;
    const int64_t known = comes_again ? sent_->find(column) : kNoPlace;
    header.push_back(static_cast<int64_t>(view.layout));
    const size_t place_word = header.size();
    header.push_back(known == kNoPlace ? 0 : -1 - known);
    header.push_back(view.row_count);
    if (known == kNoPlace) {
      message_.owners.push_back(column);
      const size_t first_piece = message_.pieces.size();
      write_buffers(column, opaque);
      int64_t bytes = 0;
      for (size_t piece = first_piece; piece < message_.pieces.size(); ++piece) bytes += aligned_bytes(message_.pieces[piece].size);
      if (comes_again && bytes > 0) header[place_word] = 1 + sent_->add(column, bytes);
    }
    if (view.layout == Layout::dictionary) write_column(*column.dictionary, nullptr);
  }

  void add(const void* bytes, int64_t size) {
    message_.header.push_back(size);
    message_.pieces.push_back({bytes, size});
  }

  void write_buffers(const Column& column, const OpaqueBytes* opaque) {
    const ColumnView& view = column.view;
    std::vector<int64_t>& header = message_.header;
    const int64_t rows = view.row_count;
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
      case Layout::fixed:
      case Layout::dictionary: add(view.values, rows * view.width); break;
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
          rebased.owner = arena_.allocate((rows + 1) * (wide ? 8 : 4));
          if (wide) {
            auto* target = static_cast<int64_t*>(const_cast<void*>(rebased.owner.get()));
            for (int64_t row = 0; row <= rows; ++row) target[row] = static_cast<const int64_t*>(view.offsets)[row] - from;
          } else {
            auto* target = static_cast<int32_t*>(const_cast<void*>(rebased.owner.get()));
            const auto base = static_cast<int32_t>(from);
            for (int64_t row = 0; row <= rows; ++row) target[row] = static_cast<const int32_t*>(view.offsets)[row] - base;
          }
          add(rebased.owner.get(), (rows + 1) * (wide ? 8 : 4));
          message_.owners.push_back(std::move(rebased));
        }
        add(bytes > 0 ? view.bytes + from : nullptr, bytes);
        break;
      }
      case Layout::views: {
        const int64_t bytes = column_bytes(view) - rows * 16 - (view.validity ? bitmap_bytes(rows) : 0);
        if (bytes > INT32_MAX) throw std::overflow_error("a column of views with more than 2 GiB of text needs shorter batches");
        Column packed;
        Block block = arena_.allocate(aligned_bytes(rows * 16) + bytes);
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
        message_.owners.push_back(std::move(packed));
        add(views, rows * 16);
        add(target, position);
        break;
      }
      default: break;
    }
  }

  Arena& arena_;
  SentColumns* sent_;
  Message& message_;
};

// `opaque` has the bytes of each opaque column, in order; they must outlive the message. `sent`: of the channel that the message is for,
// or nullptr: all columns are sent.
inline Message encode_rows(Arena& arena, const Rows& rows, const std::vector<OpaqueBytes>& opaque, SentColumns* sent = nullptr) {
  Message message;
  message.header = {kMessageMagic, 0, static_cast<int64_t>(rows.columns.size()), rows.row_count};
  message.header.reserve(4 + rows.columns.size() * 9);
  message.pieces.reserve(rows.columns.size() * 3);
  message.owners.reserve(rows.columns.size() + 2);
  if (sent != nullptr) sent->begin();
  MessageWriter writer(arena, sent, message);
  size_t next_opaque = 0;
  for (const Column& column : rows.columns)
    writer.write(column, column.view.layout == Layout::opaque ? &opaque.at(next_opaque++) : nullptr);
  message.header[1] = static_cast<int64_t>(message.header.size());
  return message;
}

// ---- decoding -------------------------------------------------------------------------------------------------------------

// Reads a message; every size and offset in it is checked, so that a damaged message cannot make us read outside of it.
class MessageReader {
 public:
  MessageReader(Arena& arena, const uint8_t* bytes, int64_t size, std::shared_ptr<const void> owner, ReceivedColumns* received)
      : arena_(arena), bytes_(bytes), size_(size), owner_(std::move(owner)), received_(received) {}

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
  static uint64_t greatest_among(const ColumnView& view) {
    const auto* codes = static_cast<const Code*>(view.values);  // negative ones become large
    Code greatest = 0;
    for (int64_t row = 0; row < view.row_count; ++row)
      if (view.validity == nullptr || get_bit(view.validity, view.validity_offset + row)) greatest = std::max(greatest, codes[row]);
    return greatest;
  }

  // Of the rows that are not null; 0 if there is none.
  static uint64_t greatest_code(const ColumnView& view) {
    switch (view.width) {
      case 1: return greatest_among<uint8_t>(view);
      case 2: return greatest_among<uint16_t>(view);
      case 4: return greatest_among<uint32_t>(view);
      default: return greatest_among<uint64_t>(view);
    }
  }

  void read_dictionary(const ColumnType& type, Column& column, uint64_t greatest) {
    ColumnView& view = column.view;
    column.dictionary = std::make_shared<const Column>(read_column(*type.dictionary));
    view.dictionary = &column.dictionary->view;
    if (view.null_count < view.row_count && greatest >= static_cast<uint64_t>(view.dictionary->row_count))
      malformed(type.name, "has codes in the message that are not in its dictionary");
    if (view.kind == Kind::null) view.null_count = view.row_count;
  }

  // ---- columns that are kept

  Column kept_in(const ColumnType& type, int64_t place, int64_t row_count) {
    const ReceivedColumns::Place* kept = received_ == nullptr ? nullptr : received_->find(place);
    if (kept == nullptr) malformed(type.name, "is a kept one in the message, and there is none in its place");
    if (!is_same_type(kept->column.view, type.view) || kept->column.view.row_count != row_count)
      malformed(type.name, "has another type or number of rows than the kept one of the message");
    Column column = kept->column;
    if (column.view.layout == Layout::dictionary) read_dictionary(type, column, kept->greatest_code);
    return column;
  }

  // Let a column that has been read, its buffers from `start` on, be kept: in memory of its own.
  void keep(const ColumnType& type, int64_t place, Column& column, int64_t start, uint64_t greatest) {
    const int64_t bytes = std::min(position_, size_) - start;
    if (bytes <= 0 || received_ == nullptr) malformed(type.name, "cannot be kept, as the message says");
    Block memory = arena_.allocate(bytes);
    std::memcpy(memory.get(), bytes_ + start, static_cast<size_t>(bytes));
    const auto moved = [&](const void* old) -> const uint8_t* {
      return old == nullptr ? nullptr : memory.get() + (static_cast<const uint8_t*>(old) - (bytes_ + start));
    };
    ColumnView& view = column.view;
    view.validity = moved(view.validity);
    view.values = moved(view.values);
    view.offsets = moved(view.offsets);
    view.bytes = moved(view.bytes);
    if (column.view_buffers != nullptr) set_view_buffers(column, moved(view.view_buffers[0]), column.view_buffers->sizes[0], memory);
    column.owner = memory;
    column.comes_again = true;
    if (!received_->keep(place, {column, bytes, greatest})) malformed(type.name, "has no place to be kept in, as the message says");
  }

  static void set_view_buffers(Column& column, const uint8_t* text, int64_t size, std::shared_ptr<const void> owner) {
    auto buffers = std::make_shared<ViewBuffers>();
    buffers->pointers.push_back(text);
    buffers->sizes.push_back(size);
    buffers->owners.push_back(std::move(owner));
    column.view.view_buffers = buffers->pointers.data();
    column.view_buffers = std::move(buffers);
  }

  Column read_column(const ColumnType& type) {
    Column column;
    column.view = type_of(type.view);
    ColumnView& view = column.view;
    if (next_word() != static_cast<int64_t>(view.layout)) malformed(type.name, "has another layout in the message than in the schema");
    const int64_t place = next_word();
    view.row_count = next_word();
    if (view.row_count < 0 || view.row_count > kMessageRowsMax) malformed(type.name, "has an impossible number of rows");
    if (place < 0) return kept_in(type, -1 - place, view.row_count);
    if (place > 0 && (view.layout == Layout::none || view.layout == Layout::opaque))
      malformed(type.name, "cannot be kept, as the message says");
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
    const int64_t start = position_;
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
      case Layout::fixed:
      case Layout::dictionary: view.values = next_buffer(type.name, rows * view.width, &size); break;
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
        set_view_buffers(column, text, size, owner_);
        for (int64_t row = 0; row < rows; ++row) {
          int32_t fields[4];
          std::memcpy(fields, static_cast<const uint8_t*>(view.values) + row * 16, 16);
          const bool inside = fields[0] >= 0 && (fields[0] <= 12 || (fields[2] == 0 && fields[3] >= 0 &&
                                                                     int64_t{fields[3]} + fields[0] <= size));
          if (!inside) malformed(type.name, "has views in the message that point outside of it");
        }
        break;
      }
      default: break;
    }
    const bool has_codes = view.layout == Layout::dictionary;
    const uint64_t greatest = has_codes ? greatest_code(view) : 0;
    if (place > 0) keep(type, place - 1, column, start, greatest);
    if (has_codes) read_dictionary(type, column, greatest);
    return column;
  }

  Arena& arena_;
  const uint8_t* bytes_;
  int64_t size_;
  std::shared_ptr<const void> owner_;
  ReceivedColumns* received_;
  int64_t header_words_ = 0, next_word_ = 0, position_ = 0;
};

// `received`: of the channel that the message came on, or nullptr: no column may refer to another message.
inline Rows decode_rows(Arena& arena, const std::vector<ColumnType>& types, const uint8_t* bytes, int64_t size,
                        const std::shared_ptr<const void>& owner, ReceivedColumns* received = nullptr) {
  return MessageReader(arena, bytes, size, owner, received).read(types);
}

}  // namespace jetfast
