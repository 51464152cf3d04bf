// Bounds of JSON lines, checked before a parser sees them: how deep values nest, and how many columns objects have.
//
// Most lines have few brackets. find_too_deep counts them, in strings or not, and only where there are many since the last line
// that certainly begins outside of any value it looks at them exactly: 64 bytes at a time, as bit masks of the characters that
// matter, where strings are found by the parity of quotes that no backslash escapes (Langdale, Lemire 2019).
//
// A line certainly begins outside of any value if it begins with { and the line before ends with }: inside of a value a parser
// takes no { behind a }. So it stops there, and what lies behind the first byte that a parser refuses is never parsed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "jetfast/simd.hpp"

namespace jetfast {

class JsonBounds {
 public:
  static constexpr int64_t kNone = -1;
  static constexpr int64_t kPiece = 256;  // bytes whose brackets are counted together

  // The offset of the first bracket that makes a value nest deeper than `depth_max`; kNone if there is none.
  static int64_t find_too_deep(const uint8_t* text, int64_t size, int64_t depth_max) {
    int64_t line = 0, opened = 0;  // a line that begins outside of any value, and the brackets that open from there on
    for (int64_t position = 0; position < size; position += kPiece) {
      const int64_t more = count_open(text + position, std::min(kPiece, size - position));
      if (opened + more > depth_max) {
        const int64_t later = last_line(text, line, position);
        opened = count_open(text + later, position - later);
        line = later;
        if (opened + more > depth_max) {
          const int64_t found = find_too_deep_exactly(text + line, size - line, depth_max);
          return found == kNone ? kNone : line + found;
        }
      }
      opened += more;
    }
    return kNone;
  }

  static int64_t find_too_deep_exactly(const uint8_t* text, int64_t size, int64_t depth_max) {
#if JETFAST_X86
    if (simd_level() != SimdLevel::plain) return exactly_avx2(text, size, depth_max);
#endif
    return exactly(text, size, depth_max);
  }

  // How many bytes open an object or a list, in strings or not.
  static int64_t count_open(const uint8_t* text, int64_t size) {
    int64_t counted = 0, position = 0;
#if JETFAST_X86
    const __m128i bracket = _mm_set1_epi8('{'), either = _mm_set1_epi8(0x20), zero = _mm_setzero_si128();
    for (; position + kPiece <= size; position += kPiece) {
      __m128i sums = zero;  // at most 16 each
      for (int part = 0; part < kPiece / 16; ++part) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(text + position + 16 * part));
        sums = _mm_sub_epi8(sums, _mm_cmpeq_epi8(_mm_or_si128(bytes, either), bracket));
      }
      const __m128i halves = _mm_sad_epu8(sums, zero);
      counted += _mm_cvtsi128_si64(halves) + _mm_cvtsi128_si64(_mm_unpackhi_epi64(halves, halves));
    }
#endif
    for (; position < size; ++position) counted += (text[position] | 0x20) == '{';
    return counted;
  }

  // How many columns the objects of some lines have together, those inside of others included; columns_max + 1 if there are more.
  // The text must not nest deeper than find_too_deep allows.
  static int64_t count_columns(const uint8_t* text, int64_t size, int64_t columns_max) {
    // A column is the name of a field and the column of the object that it is in; lists and their items share one.
    std::map<std::pair<int64_t, std::string_view>, int64_t> columns;
    std::vector<int64_t> parents;
    int64_t parent = -1, column = -1;  // of the fields that follow; of the value that follows
    for (int64_t position = 0; position < size; ++position) {
      switch (text[position]) {
        case '{':
        case '[':
          parents.push_back(parent);
          parent = column;
          break;
        case '}':
        case ']':
          if (!parents.empty()) {
            column = parent;
            parent = parents.back();
            parents.pop_back();
          }
          break;
        case '"': {
          const int64_t end = end_of_string(text, size, position + 1);
          int64_t next = end + 1;
          while (next < size && is_blank(text[next])) ++next;
          if (next < size && text[next] == ':') {
            const std::string_view name(reinterpret_cast<const char*>(text) + position + 1, static_cast<size_t>(end - position - 1));
            column = columns.try_emplace({parent, name}, static_cast<int64_t>(columns.size())).first->second;
            if (static_cast<int64_t>(columns.size()) > columns_max) return columns_max + 1;
          }
          position = end;
          break;
        }
        default:
          break;
      }
    }
    return static_cast<int64_t>(columns.size());
  }

 private:
  static constexpr int kBytes = 64;

  // The last line in (line, end) that certainly begins outside of any value; `line` if there is none.
  static int64_t last_line(const uint8_t* text, int64_t line, int64_t end) {
    for (int64_t start = end - 1; start > line + 1; --start) {
      if (text[start - 1] != '\n' || text[start] != '{') continue;
      int64_t before = start - 2;
      if (before > line && text[before] == '\r') --before;
      if (text[before] == '}') return start;
    }
    return line;
  }

  JETFAST_INLINE static int64_t exactly(const uint8_t* text, int64_t size, int64_t depth_max) {
    int64_t depth = 0;
    uint64_t in_string = 0, escapes = 0;  // of the byte that follows: all ones in a string; 1 if a backslash stands before it
    for (int64_t start = 0; start < size; start += kBytes) {
      const Block block(text + start, size - start);
      const uint64_t escaped = find_escaped(block.equal('\\'), escapes);
      const uint64_t strings = prefix_xor(block.equal('"') & ~escaped) ^ in_string;
      in_string = strings >> 63 ? ~uint64_t{0} : 0;
      const uint64_t open = block.equal_in_either_case('{') & ~strings, close = block.equal_in_either_case('}') & ~strings;
      const int opened = count(open);
      if (depth + opened <= depth_max) {
        depth = std::max<int64_t>(depth + opened - count(close), 0);
        continue;
      }
      for (uint64_t rest = open | close; rest; rest &= rest - 1) {
        const int bit = first(rest);
        if (open >> bit & 1) {
          if (++depth > depth_max) return start + bit;
        } else {
          depth = std::max<int64_t>(depth - 1, 0);
        }
      }
    }
    return kNone;
  }

#if JETFAST_X86
  JETFAST_TARGET_AVX2 static int64_t exactly_avx2(const uint8_t* text, int64_t size, int64_t depth_max) {
    return exactly(text, size, depth_max);
  }
#endif

  // 64 bytes, of which those behind the end are zeros.
  class Block {
   public:
    JETFAST_INLINE Block(const uint8_t* bytes, int64_t available) {
      if (available >= kBytes) {
        bytes_ = bytes;
      } else {
        std::memset(copy_, 0, sizeof copy_);
        std::memcpy(copy_, bytes, static_cast<size_t>(available));
        bytes_ = copy_;
      }
    }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;

    // Bit i: is byte i this one?
    JETFAST_INLINE uint64_t equal(char wanted) const { return find(wanted, 0); }

    // Bit i: is byte i this one, or the one with bit 5 off? ([ and { differ by it, as ] and } do.)
    JETFAST_INLINE uint64_t equal_in_either_case(char wanted) const { return find(wanted, 0x20); }

   private:
#if JETFAST_X86
    JETFAST_INLINE uint64_t find(char wanted, char set) const {
      const __m128i all_wanted = _mm_set1_epi8(wanted), all_set = _mm_set1_epi8(set);
      uint64_t found = 0;
      for (int part = 0; part < 4; ++part) {
        const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes_ + 16 * part));
        const auto mask = static_cast<uint32_t>(_mm_movemask_epi8(_mm_cmpeq_epi8(_mm_or_si128(bytes, all_set), all_wanted)));
        found |= uint64_t{mask} << 16 * part;
      }
      return found;
    }
#else
    JETFAST_INLINE uint64_t find(char wanted, char set) const {
      uint64_t found = 0;
      for (int byte = 0; byte < kBytes; ++byte)
        found |= uint64_t{(bytes_[byte] | static_cast<uint8_t>(set)) == static_cast<uint8_t>(wanted)} << byte;
      return found;
    }
#endif

    const uint8_t* bytes_;
    uint8_t copy_[kBytes];
  };

  // Which bytes follow a backslash that is not escaped itself. `escapes` is 1 if the last one before the block does.
  JETFAST_INLINE static uint64_t find_escaped(uint64_t backslashes, uint64_t& escapes) {
    if (!(backslashes | escapes)) return 0;
    uint64_t escaped = escapes;
    for (uint64_t rest = backslashes & ~escaped; rest;) {
      const int bit = first(rest);
      if (bit == 63) {
        escapes = 1;
        return escaped;
      }
      escaped |= uint64_t{2} << bit;
      rest &= bit == 62 ? 0 : ~uint64_t{0} << (bit + 2);
    }
    escapes = 0;
    return escaped;
  }

  JETFAST_INLINE static uint64_t prefix_xor(uint64_t bits) {
    for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
    return bits;
  }

  // The offset of the quote that ends a string, `size` if none does.
  static int64_t end_of_string(const uint8_t* text, int64_t size, int64_t position) {
    for (; position < size && text[position] != '"'; ++position)
      if (text[position] == '\\') ++position;
    return std::min(position, size);
  }

  static bool is_blank(uint8_t byte) { return byte == ' ' || byte == '\t' || byte == '\n' || byte == '\r'; }

#if defined(__GNUC__)
  JETFAST_INLINE static int count(uint64_t bits) { return __builtin_popcountll(bits); }
  JETFAST_INLINE static int first(uint64_t bits) { return __builtin_ctzll(bits); }
#else
  JETFAST_INLINE static int count(uint64_t bits) {
    int counted = 0;
    for (; bits; bits &= bits - 1) ++counted;
    return counted;
  }
  JETFAST_INLINE static int first(uint64_t bits) { return count((bits & (~bits + 1)) - 1); }
#endif
};

}  // namespace jetfast
