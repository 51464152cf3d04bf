// Reading ahead: tables beyond the second-level cache are asked for some rows before they are needed; below it that only costs.
#pragma once

#include <cstddef>
#include <cstdint>

namespace jetfast {

constexpr size_t kPrefetchBytes = size_t{1} << 20;
constexpr int64_t kPrefetchRows = 64;  // a core of today waits for as many lines at once; 24 took twice the time beyond the L3

inline void prefetch_line(const void* address) {
#if defined(__GNUC__)
  __builtin_prefetch(address);
#else
  (void)address;
#endif
}

}  // namespace jetfast
