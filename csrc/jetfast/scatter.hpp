// Rows of 8-byte columns straight to the owners of their keys, without a list of row numbers in between.
//
// Tiles of 32 rows lie in registers. For each owner of a tile one compare finds its rows, one byte compression their numbers,
// and two permutations a column bring up to 8 of its values together, which one store writes behind what the owner has so far.
// The store always writes 8 values: those beyond the rows found are overwritten by the next one, or lie in the owner's slack.
// Columns are read once, in order.
#pragma once

#include <cstdint>

#include "jetfast/hash.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"

namespace jetfast {

constexpr int32_t kScatterOwnersMax = 12;  // with more a tile holds too few rows of each
constexpr int32_t kScatterPartitionsMax = 512;  // their owners lie in eight registers
constexpr int64_t kScatterRowsMax = int64_t{1} << 24;
constexpr int64_t kScatterSlack = 8;            // values that each owner has room for beyond its own
constexpr int64_t kScatterPadding = 64;         // bytes of row owners that may be written and read beyond the last row
constexpr int32_t kScatterColumnsMax = 4;       // columns moved together

// Rows by which columns are fetched before they are scattered: half of a batch, which spreads what memory has to bring evenly
// over finding owners and scattering (all of it at first, or nothing, costs 2 to 4 us in 12 for 8192 rows of 3 columns).
inline int64_t rows_ahead(int64_t count) { return count / 2 < 4096 ? count / 2 : 4096; }

#if JETFAST_X86

// Owners of 64 rows at once from a table of 512 bytes in registers: each row's partition is split into its low byte, which picks
// from four quarters of 128, and its ninth bit, which picks the half.
struct OwnerTable {
  __m512i parts[8];
  __m512i pick;  // from two vectors of int32: the low bytes, then the second bytes

  JETFAST_TARGET_AVX512_VBMI2 explicit OwnerTable(const uint8_t* owners) {
    alignas(64) uint8_t picks[64];
    for (int i = 0; i < 32; ++i) {
      picks[i] = static_cast<uint8_t>(i * 4);
      picks[32 + i] = static_cast<uint8_t>(i * 4 + 1);
    }
    pick = _mm512_load_si512(picks);
    for (int i = 0; i < 8; ++i) parts[i] = _mm512_loadu_si512(owners + i * 64);
  }

  JETFAST_TARGET_AVX512_VBMI2 JETFAST_INLINE __m512i look_up(__m512i first, __m512i second, __m512i third, __m512i fourth) const {
    const __m512i front = _mm512_permutex2var_epi8(first, pick, second);
    const __m512i back = _mm512_permutex2var_epi8(third, pick, fourth);
    const __m512i low = _mm512_maskz_shuffle_i64x2(0xff, front, back, 0x44);
    const __m512i high = _mm512_maskz_shuffle_i64x2(0xff, front, back, 0xee);
    const __mmask64 upper_quarter = _mm512_movepi8_mask(low);
    const __m512i first_half = _mm512_mask_blend_epi8(upper_quarter, _mm512_permutex2var_epi8(parts[0], low, parts[1]),
                                                      _mm512_permutex2var_epi8(parts[2], low, parts[3]));
    const __m512i second_half = _mm512_mask_blend_epi8(upper_quarter, _mm512_permutex2var_epi8(parts[4], low, parts[5]),
                                                       _mm512_permutex2var_epi8(parts[6], low, parts[7]));
    const __mmask64 upper_half = _mm512_test_epi8_mask(high, _mm512_set1_epi8(1));
    return _mm512_mask_blend_epi8(upper_half, first_half, second_half);
  }
};

JETFAST_TARGET_AVX512_VBMI2 JETFAST_INLINE __m512i mix_words_avx512(__m512i hash, __m512i word) {
  word = _mm512_mullo_epi32(word, _mm512_set1_epi32(static_cast<int>(0xcc9e2d51u)));
  word = _mm512_rol_epi32(word, 15);
  word = _mm512_mullo_epi32(word, _mm512_set1_epi32(0x1b873593));
  hash = _mm512_rol_epi32(_mm512_xor_si512(hash, word), 13);
  return _mm512_add_epi32(_mm512_add_epi32(hash, _mm512_slli_epi32(hash, 2)), _mm512_set1_epi32(static_cast<int>(0xe6546b64u)));
}

// hash_long of 16 values, plus 2^31, with seed 42.
JETFAST_TARGET_AVX512_VBMI2 JETFAST_INLINE __m512i hash_longs_avx512(__m512i low_rows, __m512i high_rows, __m512i evens,
                                                                    __m512i odds) {
  const __m512i low = _mm512_permutex2var_epi32(low_rows, evens, high_rows);
  const __m512i high = _mm512_permutex2var_epi32(low_rows, odds, high_rows);
  __m512i hash = mix_words_avx512(_mm512_set1_epi32(static_cast<int>(kHashSeed)), low);
  hash = mix_words_avx512(hash, high);
  hash = _mm512_xor_si512(hash, _mm512_set1_epi32(8));
  hash = _mm512_xor_si512(hash, _mm512_srli_epi32(hash, 16));
  hash = _mm512_mullo_epi32(hash, _mm512_set1_epi32(static_cast<int>(0x85ebca6bu)));
  hash = _mm512_xor_si512(hash, _mm512_srli_epi32(hash, 13));
  hash = _mm512_mullo_epi32(hash, _mm512_set1_epi32(static_cast<int>(0xc2b2ae35u)));
  return _mm512_ternarylogic_epi32(hash, _mm512_srli_epi32(hash, 16), _mm512_set1_epi32(static_cast<int>(0x80000000u)), 0x96);
}

// What partition_of (partition.hpp) has before its correction: the hash plus 2^31 modulo the count of partitions.
JETFAST_TARGET_AVX512_VBMI2 JETFAST_INLINE __m512i remainders_avx512(__m512i shifted, __m512i partition_count, __m512i reciprocal) {
  const __m512i even = _mm512_srli_epi64(_mm512_mul_epu32(shifted, reciprocal), 32);
  const __m512i odd = _mm512_mul_epu32(_mm512_srli_epi64(shifted, 32), reciprocal);
  const __m512i quotient = _mm512_mask_mov_epi32(even, 0xaaaa, odd);
  const __m512i rest = _mm512_sub_epi32(shifted, _mm512_mullo_epi32(quotient, partition_count));
  return _mm512_min_epu32(rest, _mm512_sub_epi32(rest, partition_count));
}

// Hash int64 keys without nulls and find the owner of each, in one pass. owners: kScatterPartitionsMax of them, that of
// partition p (2 or more of them in all). row_owners: count and kScatterPadding bytes. ahead: columns whose first
// rows_ahead(count) values are fetched meanwhile.
JETFAST_TARGET_AVX512_VBMI2 inline void find_owners_vbmi2(const int64_t* keys, int64_t count, const uint8_t* owners,
                                                          uint32_t partition_count, uint8_t* row_owners,
                                                          const uint8_t* const* ahead, int32_t ahead_count) {
  // the table is turned by what partition_of would add to each remainder
  const auto added = static_cast<uint32_t>((uint64_t{1} << 31) % partition_count);
  uint8_t turned[kScatterPartitionsMax] = {};
  for (uint32_t partition = 0; partition < partition_count; ++partition)
    turned[(partition + added) % partition_count] = owners[partition];
  const OwnerTable table(turned);
  const __m512i divisor = _mm512_set1_epi32(static_cast<int>(partition_count));
  const __m512i reciprocal = _mm512_set1_epi64(static_cast<int64_t>((uint64_t{1} << 32) / partition_count));
  const __m512i evens = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  const __m512i odds = _mm512_add_epi32(evens, _mm512_set1_epi32(1));
  const int64_t early_rows = 2 * rows_ahead(count);  // fetched at half the speed at which keys are read
  for (int64_t i = 0; i < count; i += 64) {
    __m512i remainders[4];
    if (i + 64 <= count) {
#pragma GCC unroll 4
      for (int k = 0; k < 4; ++k)
        remainders[k] = remainders_avx512(hash_longs_avx512(_mm512_loadu_si512(keys + i + k * 16),
                                                            _mm512_loadu_si512(keys + i + k * 16 + 8), evens, odds),
                                          divisor, reciprocal);
#pragma GCC unroll 8
      for (int line = 0; line < 8; ++line) prefetch_page_ahead(keys + i + line * 8);
      if (i < early_rows)
        for (int32_t column = 0; column < ahead_count; ++column)
#pragma GCC unroll 4
          for (int line = 0; line < 4; ++line) prefetch_line(ahead[column] + i * 4 + line * 64);
    } else {
      const uint64_t inside = (uint64_t{1} << (count - i)) - 1;
      for (int k = 0; k < 4; ++k) {
        const __m512i first = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(inside >> (k * 16)), keys + i + k * 16);
        const __m512i second = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(inside >> (k * 16 + 8)), keys + i + k * 16 + 8);
        remainders[k] = remainders_avx512(hash_longs_avx512(first, second, evens, odds), divisor, reciprocal);
      }
    }
    _mm512_storeu_si512(row_owners + i, table.look_up(remainders[0], remainders[1], remainders[2], remainders[3]));
  }
}

// Count the rows of each owner. Bytes beyond the last row become 255, which is no owner.
JETFAST_TARGET_AVX512_VBMI2 inline void count_owners_vbmi2(uint8_t* row_owners, int64_t count, int32_t owner_count, int64_t* counts) {
  _mm512_storeu_si512(row_owners + count, _mm512_set1_epi8(-1));
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    const __m512i wanted = _mm512_set1_epi8(static_cast<char>(owner));
    int64_t found = 0;
    for (int64_t i = 0; i < count; i += 64)
      found += __builtin_popcountll(_mm512_cmpeq_epi8_mask(_mm512_loadu_si512(row_owners + i), wanted));
    counts[owner] = found;
  }
}

// Write each row of `columns` columns behind what its owner has. targets: where each owner's next value of each column goes
// (owner after owner); they move on.
template <int columns>
JETFAST_TARGET_AVX512_VBMI2 inline void scatter_rows_vbmi2(const uint8_t* row_owners, int64_t count, int32_t owner_count,
                                                           const int64_t* const* sources, int64_t** targets) {
  alignas(32) uint8_t numbers_of_rows[32];
  for (int i = 0; i < 32; ++i) numbers_of_rows[i] = static_cast<uint8_t>(i);
  const __m256i numbers = _mm256_load_si256(reinterpret_cast<const __m256i*>(numbers_of_rows));
  const int64_t* from[columns];
  for (int column = 0; column < columns; ++column) from[column] = sources[column];
  const int64_t lead = rows_ahead(count);
  for (int64_t i = 0; i < count; i += 32) {
    __m512i tile[columns][4];
    const uint32_t inside = count - i >= 32 ? 0xffffffffu : (uint32_t{1} << (count - i)) - 1;
    if (inside == 0xffffffffu) {
#pragma GCC unroll 4
      for (int column = 0; column < columns; ++column)
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part) tile[column][part] = _mm512_loadu_si512(from[column] + i + part * 8);
    } else {
#pragma GCC unroll 4
      for (int column = 0; column < columns; ++column)
#pragma GCC unroll 4
        for (int part = 0; part < 4; ++part)
          tile[column][part] = _mm512_maskz_loadu_epi64(static_cast<__mmask8>(inside >> (part * 8)), from[column] + i + part * 8);
    }
    if (i + lead < count)
#pragma GCC unroll 4
      for (int column = 0; column < columns; ++column)
#pragma GCC unroll 4
        for (int line = 0; line < 4; ++line) prefetch_line(from[column] + i + lead + line * 8);
    const __m256i tile_owners = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(row_owners + i));
    for (int32_t owner = 0; owner < owner_count; ++owner) {
      const __mmask32 mine = _mm256_cmpeq_epi8_mask(tile_owners, _mm256_set1_epi8(static_cast<char>(owner)));
      __m256i rows = _mm256_maskz_compress_epi8(mine, numbers);
      const int found = __builtin_popcount(mine);
      int64_t** to = targets + owner * columns;
      int64_t written = 0;
      for (int left = found;; left -= 8) {
        const __m512i row = _mm512_cvtepu8_epi64(_mm256_castsi256_si128(rows));
        const __mmask8 upper = _mm512_test_epi64_mask(row, _mm512_set1_epi64(16));
#pragma GCC unroll 4
        for (int column = 0; column < columns; ++column) {
          const __m512i first = _mm512_permutex2var_epi64(tile[column][0], row, tile[column][1]);
          const __m512i second = _mm512_permutex2var_epi64(tile[column][2], row, tile[column][3]);
          _mm512_storeu_si512(to[column] + written, _mm512_mask_mov_epi64(first, upper, second));
        }
        if (left <= 8) break;
        rows = _mm256_permute4x64_epi64(rows, 0x39);
        written += 8;
      }
#pragma GCC unroll 4
      for (int column = 0; column < columns; ++column) to[column] += found;
    }
  }
}

#endif

}  // namespace jetfast
