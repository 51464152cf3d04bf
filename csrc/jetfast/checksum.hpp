// CRC-32C of bytes: the CRC of Castagnoli, Braeuer, Herrmann (1993), as in iSCSI (RFC 3720), for which x86 has an instruction.
//
// The instruction gives its result three cycles later, and another may begin in each: so three blocks that follow one another
// are taken at once, and their CRCs joined by tables that say what a CRC is after a block of zeros (Adler 2013; Gopal et al.
// 2011). Elsewhere eight bytes are looked up at a time (slicing by 8; Kounavis, Berry 2005).
#pragma once

#include <cstdint>
#include <cstring>

#include "jetfast/simd.hpp"

namespace jetfast {

class Crc32c {
 public:
  // The CRC of bytes; `crc` is that of the bytes before them, 0 if there are none.
  static uint32_t extend(uint32_t crc, const uint8_t* bytes, int64_t count) {
#if JETFAST_X86
    static const bool has_instruction = simd_level() != SimdLevel::plain && __builtin_cpu_supports("sse4.2");
    if (has_instruction) return extend_by_instruction(crc, bytes, count);
#endif
    return extend_by_tables(crc, bytes, count);
  }

  static uint32_t extend_by_tables(uint32_t crc, const uint8_t* bytes, int64_t count) {
    const Tables& tables = shared_tables();
    uint32_t state = ~crc;
    for (; count >= 8; count -= 8, bytes += 8) {
      const uint32_t low = state ^ (bytes[0] | bytes[1] << 8 | bytes[2] << 16 | uint32_t{bytes[3]} << 24);
      state = tables.bytes[7][low & 255] ^ tables.bytes[6][low >> 8 & 255] ^ tables.bytes[5][low >> 16 & 255] ^
              tables.bytes[4][low >> 24] ^ tables.bytes[3][bytes[4]] ^ tables.bytes[2][bytes[5]] ^ tables.bytes[1][bytes[6]] ^
              tables.bytes[0][bytes[7]];
    }
    for (; count > 0; --count) state = tables.bytes[0][(state ^ *bytes++) & 255] ^ state >> 8;
    return ~state;
  }

#if JETFAST_X86
  __attribute__((target("sse4.2"))) static uint32_t extend_by_instruction(uint32_t crc, const uint8_t* bytes, int64_t count) {
    const Tables& tables = shared_tables();
    uint64_t state = ~crc;
    extend_threefold<kLongBlock>(state, bytes, count, tables.after_long);
    extend_threefold<kShortBlock>(state, bytes, count, tables.after_short);
    for (; count >= 8; count -= 8, bytes += 8) state = _mm_crc32_u64(state, load(bytes));
    auto narrow = static_cast<uint32_t>(state);
    for (; count > 0; --count) narrow = _mm_crc32_u8(narrow, *bytes++);
    return ~narrow;
  }
#endif

 private:
  static constexpr uint32_t kPolynomial = 0x82F63B78;  // bits in the order in which they are sent
  static constexpr int kLongBlock = 8192, kShortBlock = 256;

  // By the four bytes of a state: what it is after a block of zeros.
  using AfterZeros = uint32_t[4][256];

  struct Tables {
    uint32_t bytes[8][256];  // what a byte amounts to that is followed by so many zeros
    AfterZeros after_long, after_short;

    Tables() {
      for (uint32_t byte = 0; byte < 256; ++byte) {
        uint32_t state = byte;
        for (int bit = 0; bit < 8; ++bit) state = state >> 1 ^ (state & 1 ? kPolynomial : 0);
        bytes[0][byte] = state;
      }
      for (int zeros = 1; zeros < 8; ++zeros)
        for (uint32_t byte = 0; byte < 256; ++byte)
          bytes[zeros][byte] = bytes[0][bytes[zeros - 1][byte] & 255] ^ bytes[zeros - 1][byte] >> 8;
      fill(after_long, kLongBlock);
      fill(after_short, kShortBlock);
    }

    void fill(AfterZeros& after, int zeros) const {
      uint32_t of_bit[32];
      for (int bit = 0; bit < 32; ++bit) {
        uint32_t state = uint32_t{1} << bit;
        for (int zero = 0; zero < zeros; ++zero) state = bytes[0][state & 255] ^ state >> 8;
        of_bit[bit] = state;
      }
      for (int place = 0; place < 4; ++place)
        for (uint32_t byte = 0; byte < 256; ++byte) {
          after[place][byte] = 0;
          for (int bit = 0; bit < 8; ++bit)
            if (byte >> bit & 1) after[place][byte] ^= of_bit[8 * place + bit];
        }
    }
  };

  static const Tables& shared_tables() {
    static const Tables tables;
    return tables;
  }

  static uint64_t load(const uint8_t* bytes) {
    uint64_t word;
    std::memcpy(&word, bytes, sizeof word);
    return word;
  }

  static uint32_t skip(const AfterZeros& after, uint64_t state) {
    return after[0][state & 255] ^ after[1][state >> 8 & 255] ^ after[2][state >> 16 & 255] ^ after[3][state >> 24 & 255];
  }

#if JETFAST_X86
  // Take in three blocks at a time, as long as there are three.
  template <int kBlock>
  __attribute__((target("sse4.2"))) static inline void extend_threefold(uint64_t& state, const uint8_t*& bytes, int64_t& count,
                                                                        const AfterZeros& after) {
    for (; count >= 3 * kBlock; count -= 3 * kBlock, bytes += 3 * kBlock) {
      uint64_t first = state, second = 0, third = 0;
      for (const uint8_t* word = bytes; word < bytes + kBlock; word += 8) {
        first = _mm_crc32_u64(first, load(word));
        second = _mm_crc32_u64(second, load(word + kBlock));
        third = _mm_crc32_u64(third, load(word + 2 * kBlock));
      }
      state = skip(after, skip(after, first) ^ second) ^ third;
    }
  }
#endif
};

}  // namespace jetfast
