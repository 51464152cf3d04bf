// Loops over the keys of a window while its results are written, compiled once per vector level.
#pragma once

#include <cstdint>
#include <cstring>

#include "jetfast/simd.hpp"

namespace jetfast {

JETFAST_INLINE uint64_t zeros_among_body(const uint64_t* numbers, int64_t count) {
  uint64_t zeros = 0;
  for (int64_t i = 0; i < count; ++i) zeros += numbers[i] == 0;
  return zeros;
}

JETFAST_INLINE int64_t first_zero_body(const uint64_t* numbers, int64_t count) {
  int64_t start = 0;
  while (start + 64 <= count && zeros_among_body(numbers + start, 64) == 0) start += 64;
  while (start < count && numbers[start] != 0) ++start;
  return start;
}

JETFAST_INLINE void add_pairs_body(const double* __restrict left, const double* __restrict right, int64_t count,
                                   double* __restrict target) {
  for (int64_t i = 0; i < count; ++i) target[i] = left[i] + right[i];
}

// target[i] = sums[i] / counts[i]; counts are in [1, 2^63).
JETFAST_INLINE void write_means_body(const double* __restrict sums, const uint64_t* __restrict counts, int64_t count,
                                     double* __restrict target) {
  for (int64_t i = 0; i < count; ++i) target[i] = sums[i] / static_cast<double>(static_cast<int64_t>(counts[i]));
}

// Without branches: it also writes behind the last number that it lists.
inline int64_t list_present_plain(const uint64_t* row_counts, uint32_t start, int64_t count, uint32_t* numbers) {
  int64_t found = 0;
  for (int64_t i = 0; i < count; ++i) {
    numbers[found] = start + static_cast<uint32_t>(i);
    found += row_counts[i] != 0;
  }
  return found;
}

#if JETFAST_X86
JETFAST_TARGET_AVX2 inline uint64_t zeros_among_avx2(const uint64_t* numbers, int64_t count) {
  return zeros_among_body(numbers, count);
}
JETFAST_TARGET_AVX512 inline uint64_t zeros_among_avx512(const uint64_t* numbers, int64_t count) {
  return zeros_among_body(numbers, count);
}
JETFAST_TARGET_AVX2 inline int64_t first_zero_avx2(const uint64_t* numbers, int64_t count) {
  return first_zero_body(numbers, count);
}
JETFAST_TARGET_AVX512 inline int64_t first_zero_avx512(const uint64_t* numbers, int64_t count) {
  return first_zero_body(numbers, count);
}
JETFAST_TARGET_AVX2 inline void add_pairs_avx2(const double* left, const double* right, int64_t count, double* target) {
  add_pairs_body(left, right, count, target);
}
JETFAST_TARGET_AVX512 inline void add_pairs_avx512(const double* left, const double* right, int64_t count, double* target) {
  add_pairs_body(left, right, count, target);
}
JETFAST_TARGET_AVX2 inline void write_means_avx2(const double* sums, const uint64_t* counts, int64_t count, double* target) {
  write_means_body(sums, counts, count, target);
}
JETFAST_TARGET_AVX512 inline void write_means_avx512(const double* sums, const uint64_t* counts, int64_t count,
                                                     double* target) {
  write_means_body(sums, counts, count, target);
}
JETFAST_TARGET_AVX512 inline int64_t list_present_avx512(const uint64_t* row_counts, uint32_t start, int64_t count,
                                                         uint32_t* numbers) {
  __m256i next = _mm256_add_epi32(_mm256_set1_epi32(static_cast<int>(start)), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
  int64_t found = 0, i = 0;
  for (; i + 8 <= count; i += 8) {
    const __m512i counts = _mm512_loadu_si512(row_counts + i);
    const __mmask8 present = _mm512_test_epi64_mask(counts, counts);
    // Compressed in a register: compressing to memory is slow on AMD.
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(numbers + found), _mm256_maskz_compress_epi32(present, next));
    found += __builtin_popcount(present);
    next = _mm256_add_epi32(next, _mm256_set1_epi32(8));
  }
  return found + list_present_plain(row_counts + i, start + static_cast<uint32_t>(i), count - i, numbers + found);
}
#endif

// How many keys have no rows.
inline int64_t zeros_among(const uint64_t* row_counts, int64_t count) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return static_cast<int64_t>(zeros_among_avx512(row_counts, count));
  if (simd_level() == SimdLevel::avx2) return static_cast<int64_t>(zeros_among_avx2(row_counts, count));
#endif
  return static_cast<int64_t>(zeros_among_body(row_counts, count));
}

// The first key that has no rows, or `count`.
inline int64_t first_zero(const uint64_t* row_counts, int64_t count) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return first_zero_avx512(row_counts, count);
  if (simd_level() == SimdLevel::avx2) return first_zero_avx2(row_counts, count);
#endif
  return first_zero_body(row_counts, count);
}

// numbers = start + i for every i whose row count is not zero; there is room for `count`. Returns how many.
inline int64_t list_present(const uint64_t* row_counts, uint32_t start, int64_t count, uint32_t* numbers) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return list_present_avx512(row_counts, start, count, numbers);
#endif
  return list_present_plain(row_counts, start, count, numbers);
}

// target[i] = left[i] + right[i]
inline void add_pairs(const double* left, const double* right, int64_t count, double* target) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return add_pairs_avx512(left, right, count, target);
  if (simd_level() == SimdLevel::avx2) return add_pairs_avx2(left, right, count, target);
#endif
  add_pairs_body(left, right, count, target);
}

inline void write_means(const double* sums, const uint64_t* counts, int64_t count, double* target) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return write_means_avx512(sums, counts, count, target);
  if (simd_level() == SimdLevel::avx2) return write_means_avx2(sums, counts, count, target);
#endif
  write_means_body(sums, counts, count, target);
}

}  // namespace jetfast
