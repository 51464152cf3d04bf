// Keys of two words to slots: as WordTable (key_index.hpp), with three keys and their slots in a cache line.
#pragma once

#include <cstdint>
#include <stdexcept>
#include <vector>

#include "jetfast/arena.hpp"
#include "jetfast/key_cells.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"
#include "jetfast/slot_pool.hpp"

namespace jetfast {

struct PackedKey {
  uint64_t low, high;
};

class PackedTable {
 public:
  PackedTable() { resize(8); }

  void reserve(int64_t keys) {
    size_t buckets = buckets_.size();
    while (static_cast<int64_t>(buckets) * kFill < keys) buckets *= 2;
    if (buckets != buckets_.size()) resize(buckets);
  }

  // Key i is {lows[i], highs[i]}.
  void find_or_insert(const uint64_t* lows, const uint64_t* highs, int64_t count, uint32_t* slots, SlotPool& pool,
                      SimdLevel level) {
#if JETFAST_X86
    if (level == SimdLevel::avx512) return find_avx512(lows, highs, count, slots, pool);
    if (level == SimdLevel::avx2) return find_avx2(lows, highs, count, slots, pool);
#endif
    (void)level;
    find_plain(lows, highs, count, slots, pool);
  }

  PackedKey key_of(uint32_t slot) const { return key_of_slot_[slot]; }

  void erase(uint32_t slot) {
    const PackedKey key = key_of_slot_[slot];
    for (size_t place = home(key);; place = (place + 1) & mask_) {
      Bucket& bucket = buckets_[place];
      const uint32_t match = match_plain(bucket, key);
      if (match != 0) {
        bucket.used = static_cast<uint8_t>(bucket.used & ~match);
        --live_;
        return;
      }
      if (bucket.passed == 0) throw std::logic_error("erased a key that is not there");
      bucket.passed = static_cast<uint8_t>(bucket.passed - (bucket.passed != kManyPassed));
    }
  }

  int64_t bytes() const {
    return static_cast<int64_t>(buckets_.capacity() * sizeof(Bucket) + key_of_slot_.capacity() * sizeof(PackedKey));
  }

 private:
  static constexpr int kCells = 3;
  static constexpr int64_t kFill = 2;  // cells in use per line, at most, on average
  static constexpr uint8_t kManyPassed = 0xff;  // stays: that many are not counted any more

  struct alignas(64) Bucket {
    uint64_t lows[kCells] = {};
    uint64_t highs[kCells] = {};
    uint32_t slots[kCells] = {};
    uint8_t passed = 0;  // keys that would be here if there were room
    uint8_t used = 0;    // bit per cell
  };
  static_assert(sizeof(Bucket) == 64);

  size_t home(const PackedKey& key) const {
    const uint64_t hash = fold_multiply(key.low ^ 0x2d358dccaa6c78a5u, 0x9e3779b97f4a7c15u) ^ key.high;
    return fold_multiply(hash, 0xd6e8feb86659fd93u) & mask_;  // the same factor twice would spread texts badly
  }

// The loop is written once; each variant differs in how it compares a line with one key.
#define JETFAST_FIND_LOOP(MATCH)                                                                        \
  const bool far = buckets_.size() * sizeof(Bucket) > kPrefetchBytes;                                   \
  for (int64_t i = 0; i < count; ++i) {                                                                 \
    const PackedKey key{lows[i], highs[i]};                                                             \
    if (far && i + kPrefetchRows < count)                                                               \
      prefetch_line(&buckets_[home({lows[i + kPrefetchRows], highs[i + kPrefetchRows]})]);              \
    for (size_t place = home(key);; place = (place + 1) & mask_) {                                      \
      const Bucket& bucket = buckets_[place];                                                           \
      const uint32_t match = MATCH(bucket, key);                                                        \
      if (match != 0) {                                                                                 \
        slots[i] = bucket.slots[__builtin_ctz(match)];                                                  \
        break;                                                                                          \
      }                                                                                                 \
      if (bucket.passed == 0) {                                                                         \
        slots[i] = insert(key, pool);                                                                   \
        break;                                                                                          \
      }                                                                                                 \
    }                                                                                                   \
  }

  static uint32_t match_plain(const Bucket& bucket, const PackedKey& key) {
    uint32_t match = 0;
    for (int cell = 0; cell < kCells; ++cell)
      match |= static_cast<uint32_t>((bucket.lows[cell] == key.low) & (bucket.highs[cell] == key.high)) << cell;
    return match & bucket.used;
  }
  void find_plain(const uint64_t* lows, const uint64_t* highs, int64_t count, uint32_t* slots, SlotPool& pool) {
    JETFAST_FIND_LOOP(match_plain)
  }

#if JETFAST_X86
  // One bit for each of the words low, low, low, high, high, high.
  static uint32_t match_of_words(uint32_t equal, const Bucket& bucket) { return equal & (equal >> kCells) & bucket.used; }

  JETFAST_TARGET_AVX2 static inline __attribute__((always_inline)) uint32_t match_avx2(const Bucket& bucket,
                                                                                     const PackedKey& key) {
    const __m256i low = _mm256_set1_epi64x(static_cast<long long>(key.low));
    const __m256i high = _mm256_set1_epi64x(static_cast<long long>(key.high));
    const auto* words = reinterpret_cast<const __m256i*>(&bucket);
    const __m256i first = _mm256_cmpeq_epi64(_mm256_load_si256(words), _mm256_blend_epi32(low, high, 0xc0));
    const __m256i second = _mm256_cmpeq_epi64(_mm256_load_si256(words + 1), high);
    return match_of_words(static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(first))) |
                              static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(second))) << 4,
                          bucket);
  }
  JETFAST_TARGET_AVX2 void find_avx2(const uint64_t* lows, const uint64_t* highs, int64_t count, uint32_t* slots,
                                     SlotPool& pool) {
    JETFAST_FIND_LOOP(match_avx2)
  }
  JETFAST_TARGET_AVX512 static inline __attribute__((always_inline)) uint32_t match_avx512(const Bucket& bucket,
                                                                                        const PackedKey& key) {
    const __m512i low = _mm512_set1_epi64(static_cast<long long>(key.low));
    const __m512i wanted = _mm512_mask_set1_epi64(low, 0x38, static_cast<long long>(key.high));
    return match_of_words(_mm512_cmpeq_epi64_mask(_mm512_load_si512(&bucket), wanted), bucket);
  }
  JETFAST_TARGET_AVX512 void find_avx512(const uint64_t* lows, const uint64_t* highs, int64_t count, uint32_t* slots,
                                         SlotPool& pool) {
    JETFAST_FIND_LOOP(match_avx512)
  }
#endif
#undef JETFAST_FIND_LOOP

  uint32_t insert(const PackedKey& key, SlotPool& pool) {
    if (live_ + 1 > static_cast<int64_t>(buckets_.size()) * kFill) resize(buckets_.size() * 2);
    const uint32_t slot = pool.take();
    if (slot >= key_of_slot_.size()) key_of_slot_.resize(static_cast<size_t>(slot) + 1);
    key_of_slot_[slot] = key;
    place(key, slot);
    ++live_;
    return slot;
  }

  void place(const PackedKey& key, uint32_t slot) {
    for (size_t place = home(key);; place = (place + 1) & mask_) {
      Bucket& bucket = buckets_[place];
      if (bucket.used == (1u << kCells) - 1) {
        bucket.passed = static_cast<uint8_t>(bucket.passed + (bucket.passed != kManyPassed));
        continue;
      }
      const int cell = __builtin_ctz(~uint32_t{bucket.used});
      bucket.lows[cell] = key.low;
      bucket.highs[cell] = key.high;
      bucket.slots[cell] = slot;
      bucket.used = static_cast<uint8_t>(bucket.used | 1u << cell);
      return;
    }
  }

  void resize(size_t bucket_count) {
    HugeVector<Bucket> old(bucket_count);
    old.swap(buckets_);
    mask_ = bucket_count - 1;
    for (const Bucket& bucket : old)
      for (int cell = 0; cell < kCells; ++cell)
        if (bucket.used >> cell & 1) place({bucket.lows[cell], bucket.highs[cell]}, bucket.slots[cell]);
  }

  HugeVector<Bucket> buckets_;  // a power of two
  size_t mask_ = 0;
  int64_t live_ = 0;
  std::vector<PackedKey> key_of_slot_;
};

}  // namespace jetfast
