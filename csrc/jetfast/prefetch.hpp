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

// For loops that read memory from end to end: asks for the line that lies a page behind `value`. Processors read ahead on their
// own, but begin anew with each page, which costs as much as 64 rows.
constexpr int64_t kPageBytes = 4096;

template <typename Value>
inline void prefetch_page_ahead(const Value* value) {
  prefetch_line(reinterpret_cast<const uint8_t*>(value) + kPageBytes);
}

// Brings `byte_count` bytes into the second-level cache by reading a word of each line in order: processors see that coming,
// while they drop most of so many prefetches at once.
inline void read_lines(const uint8_t* bytes, int64_t byte_count) {
  for (int64_t offset = 0; offset < byte_count; offset += 64) static_cast<void>(*static_cast<const volatile uint8_t*>(bytes + offset));
}

}  // namespace jetfast
