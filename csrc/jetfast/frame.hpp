// Arithmetic of frames: slide-sized slices of event time, named by their exclusive end.
//
// Boundaries are k * slide + offset. frame_of(time) is the smallest boundary > time; the window with end e holds the frames
// in (e - size, e]. Beyond the ends of int64 boundaries saturate, so a row near MAX_TIME lies in a frame, and in one window,
// that end at MAX_TIME.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "jetfast/simd.hpp"

namespace jetfast {

constexpr int64_t kMinTime = std::numeric_limits<int64_t>::min();
constexpr int64_t kMaxTime = std::numeric_limits<int64_t>::max();

inline int64_t saturating_add(int64_t left, int64_t right) {
  if (right > 0 && left > kMaxTime - right) return kMaxTime;
  if (right < 0 && left < kMinTime - right) return kMinTime;
  return left + right;
}

struct WindowShape {
  int64_t size;
  int64_t slide;   // size is a multiple of it
  int64_t offset;  // in [0, slide)

  // time - floor(time), in [0, slide)
  int64_t past_boundary(int64_t time) const {
    int64_t rest = time % slide;
    if (rest < 0) rest += slide;
    rest -= offset;
    return rest < 0 ? rest + slide : rest;
  }

  // Greatest boundary <= time.
  int64_t floor(int64_t time) const { return saturating_add(time, -past_boundary(time)); }

  // Smallest boundary > time.
  int64_t frame_of(int64_t time) const { return saturating_add(time, slide - past_boundary(time)); }

  // Smallest boundary >= time: where a frame of another window definition goes.
  int64_t ceil(int64_t time) const { return past_boundary(time) == 0 ? time : frame_of(time); }

  // End of the last window that holds a frame.
  int64_t last_window_of_frame(int64_t frame) const { return saturating_add(frame, size - slide); }

  // The last window end that watermark W makes due: every window with an end <= it is emitted.
  int64_t last_due(int64_t watermark) const { return watermark == kMaxTime ? kMaxTime : floor(watermark); }

  int64_t frames() const { return size / slide; }
};

// Division of offsets in [0, 2^64) by one slide, without a divide instruction where the offset allows it.
class FrameDivider {
 public:
  explicit FrameDivider(int64_t slide) : slide_(static_cast<uint64_t>(slide)), inverse_(1.0 / static_cast<double>(slide)) {}

  uint64_t slide() const { return slide_; }
  double inverse() const { return inverse_; }

  uint64_t divide(uint64_t value) const {
    if (value >> 52) return value / slide_;
    // value and its quotient are exact in a double; the product is off by at most one at a boundary.
    int64_t quotient = static_cast<int64_t>(static_cast<double>(static_cast<int64_t>(value)) * inverse_);
    const int64_t rest = static_cast<int64_t>(value) - quotient * static_cast<int64_t>(slide_);
    quotient -= rest < 0;
    quotient += rest >= static_cast<int64_t>(slide_);
    return static_cast<uint64_t>(quotient);
  }

 private:
  uint64_t slide_;
  double inverse_;
};

// ---- loops over the times of a batch, compiled once per vector level -------------------------------------------------------

// *least and *greatest of `count` >= 1 times.
JETFAST_INLINE void find_span_body(const int64_t* times, int64_t count, int64_t* least, int64_t* greatest) {
  int64_t low = times[0], high = times[0];
  for (int64_t i = 1; i < count; ++i) {
    low = std::min(low, times[i]);
    high = std::max(high, times[i]);
  }
  *least = low;
  *greatest = high;
}

// numbers[i] = (times[i] - base) / slide, for offsets below 2^52 and quotients below 2^32.
//
// All in doubles, which hold these integers exactly: adding 2^52 to a double below it leaves the nearest integer in the low
// bits. The quotient is at most one off, which the exact remainder shows.
JETFAST_INLINE void number_frames_body(const int64_t* times, int64_t count, int64_t base, double slide, double inverse,
                                       uint32_t* numbers) {
  const double shift = 4503599627370496.0;  // 2^52
  for (int64_t i = 0; i < count; ++i) {
    const uint64_t bits = (static_cast<uint64_t>(times[i]) - static_cast<uint64_t>(base)) | 0x4330000000000000u;
    double value;
    std::memcpy(&value, &bits, 8);
    value -= shift;
    double quotient = (value * inverse + shift) - shift;
    const double rest = value - quotient * slide;
    quotient -= rest < 0 ? 1.0 : 0.0;
    quotient += rest >= slide ? 1.0 : 0.0;
    quotient += shift;
    uint64_t result;
    std::memcpy(&result, &quotient, 8);
    numbers[i] = static_cast<uint32_t>(result);
  }
}

inline void find_span_plain(const int64_t* times, int64_t count, int64_t* least, int64_t* greatest) {
  find_span_body(times, count, least, greatest);
}
inline void number_frames_plain(const int64_t* times, int64_t count, int64_t base, double slide, double inverse,
                                uint32_t* numbers) {
  number_frames_body(times, count, base, slide, inverse, numbers);
}
#if JETFAST_X86
JETFAST_TARGET_AVX2 inline void find_span_avx2(const int64_t* times, int64_t count, int64_t* least, int64_t* greatest) {
  find_span_body(times, count, least, greatest);
}
JETFAST_TARGET_AVX512 inline void find_span_avx512(const int64_t* times, int64_t count, int64_t* least, int64_t* greatest) {
  find_span_body(times, count, least, greatest);
}
JETFAST_TARGET_AVX2 inline void number_frames_avx2(const int64_t* times, int64_t count, int64_t base, double slide,
                                                   double inverse, uint32_t* numbers) {
  number_frames_body(times, count, base, slide, inverse, numbers);
}
JETFAST_TARGET_AVX512 inline void number_frames_avx512(const int64_t* times, int64_t count, int64_t base, double slide,
                                                       double inverse, uint32_t* numbers) {
  number_frames_body(times, count, base, slide, inverse, numbers);
}
#endif

inline void find_span(const int64_t* times, int64_t count, int64_t* least, int64_t* greatest) {
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return find_span_avx512(times, count, least, greatest);
  if (simd_level() == SimdLevel::avx2) return find_span_avx2(times, count, least, greatest);
#endif
  find_span_plain(times, count, least, greatest);
}

inline void number_frames(const int64_t* times, int64_t count, int64_t base, const FrameDivider& divider, uint32_t* numbers) {
  const auto slide = static_cast<double>(divider.slide());
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return number_frames_avx512(times, count, base, slide, divider.inverse(), numbers);
  if (simd_level() == SimdLevel::avx2) return number_frames_avx2(times, count, base, slide, divider.inverse(), numbers);
#endif
  number_frames_plain(times, count, base, slide, divider.inverse(), numbers);
}

}  // namespace jetfast
