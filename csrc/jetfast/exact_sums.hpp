// Floating sums that can be deducted again: each is kept as two doubles whose exact sum is the sum of all that is in it.
//
// Adding value v to (high, low) gives high' = fl(high + v), whose rounding error is a double (two-sum, Knuth 1969) and goes to
// low. That keeps the total exact as long as low itself takes the errors without rounding, which a second two-sum shows: they
// are multiples of the smallest unit that ever went in, so low holds them as long as values, from the largest sum to the last
// bit of the smallest value, span about 2^100. Where they do not, or where a NaN or infinity comes by, the passes say so, and
// the table goes over to sums that are never deducted (two stacks).
#pragma once

#include <cstdint>
#include <cstring>

#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"

namespace jetfast {

// Returns bits that are all zero if nothing was rounded away.
JETFAST_INLINE uint64_t add_exactly(double& high, double& low, double value) {
  const double sum = high + value;
  const double shadow = sum - high;
  const double error = (high - (sum - shadow)) + (value - shadow);
  const double low_sum = low + error;
  const double low_shadow = low_sum - low;
  const double rest = (low - (low_sum - low_shadow)) + (error - low_shadow);
  high = sum;
  low = low_sum;
  uint64_t bits;
  std::memcpy(&bits, &rest, 8);
  return bits << 1;
}

template <bool deduct>
JETFAST_INLINE uint64_t slide_sums_body(double* __restrict high, double* __restrict low, const double* __restrict values,
                                        int64_t count) {
  uint64_t lost = 0;
  for (int64_t i = 0; i < count; ++i) {
    double upper = high[i], lower = low[i];
    lost |= add_exactly(upper, lower, deduct ? -values[i] : values[i]);
    high[i] = upper;
    low[i] = lower;
  }
  return lost;
}

#if JETFAST_X86
template <bool deduct>
JETFAST_TARGET_AVX2 inline uint64_t slide_sums_avx2(double* high, double* low, const double* values, int64_t count) {
  return slide_sums_body<deduct>(high, low, values, count);
}
template <bool deduct>
JETFAST_TARGET_AVX512 inline uint64_t slide_sums_avx512(double* high, double* low, const double* values, int64_t count) {
  return slide_sums_body<deduct>(high, low, values, count);
}
#endif

// (high, low)[entries[i]] (or [i]) gains or loses values[i]. False if not all of it could be done exactly.
// `far`: high and low do not fit the second-level cache.
template <bool deduct>
inline bool slide_sums(double* high, double* low, const uint32_t* entries, const double* values, int64_t count, bool far) {
  if (entries != nullptr) {
    uint64_t lost = 0;
    for (int64_t i = 0; i < count; ++i) {
      if (far && i + kPrefetchRows < count) {
        prefetch_line(&high[entries[i + kPrefetchRows]]);
        prefetch_line(&low[entries[i + kPrefetchRows]]);
      }
      lost |= add_exactly(high[entries[i]], low[entries[i]], deduct ? -values[i] : values[i]);
    }
    return lost == 0;
  }
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return slide_sums_avx512<deduct>(high, low, values, count) == 0;
  if (simd_level() == SimdLevel::avx2) return slide_sums_avx2<deduct>(high, low, values, count) == 0;
#endif
  return slide_sums_body<deduct>(high, low, values, count) == 0;
}

}  // namespace jetfast
