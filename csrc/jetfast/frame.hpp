// Arithmetic of frames: slide-sized slices of event time, named by their exclusive end.
//
// Boundaries are k * slide + offset. frame_of(time) is the smallest boundary > time; the window with end e holds the frames
// in (e - size, e]. Beyond the ends of int64 boundaries saturate, so a row near MAX_TIME lies in a frame, and in one window,
// that end at MAX_TIME.
#pragma once

#include <cstdint>
#include <limits>

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

}  // namespace jetfast
