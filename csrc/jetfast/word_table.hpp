// Keys of one or two words to slots, a cache line at a time.
//
// Words and slots of the keys in a bucket fill a cache line, so that a probe that finds its key in its home touches one. A line
// counts the keys that went past it because it was full (as F14 does; Bronson, Shi 2019): a probe ends where there are none,
// and nothing stays behind when a key is erased.
#pragma once

#include <array>
#include <cstdint>
#include <stdexcept>
#include <vector>

#include "jetfast/arena.hpp"
#include "jetfast/key_cells.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"
#include "jetfast/slot_pool.hpp"

#if JETFAST_X86
#include <immintrin.h>
#endif

namespace jetfast {

template <int kWords>
class WordTable {
  static_assert(kWords == 1 || kWords == 2);

 public:
  using Key = std::array<uint64_t, kWords>;
  using Words = std::array<const uint64_t*, kWords>;  // word w of key i is words[w][i]

  WordTable() { resize(8); }

  void reserve(int64_t keys) {
    size_t buckets = buckets_.size();
    while (static_cast<int64_t>(buckets) * kFill < keys) buckets *= 2;
    if (buckets != buckets_.size()) resize(buckets);
  }

  void find_or_insert(const Words& words, int64_t count, uint32_t* slots, SlotPool& pool, SimdLevel level) {
#if JETFAST_X86
    if (level == SimdLevel::avx512) return find_avx512(words, count, slots, pool);
    if (level == SimdLevel::avx2) return find_avx2(words, count, slots, pool);
#endif
    (void)level;
    find_plain(words, count, slots, pool);
  }

  const Key& key_of(uint32_t slot) const { return key_of_slot_[slot]; }

  void erase(uint32_t slot) {
    const Key key = key_of_slot_[slot];
    for (size_t place = home(key);; place = (place + 1) & mask_) {
      Bucket& bucket = buckets_[place];
      const uint32_t match = match_plain(bucket, key);
      if (match != 0) {
        bucket.used = static_cast<uint8_t>(bucket.used & ~match);
        --live_;
        return;
      }
      if (bucket.passed == 0) throw std::logic_error("erased a key that is not there");
      bucket.passed = static_cast<uint16_t>(bucket.passed - (bucket.passed != kManyPassed));
    }
  }

  int64_t bytes() const {
    return static_cast<int64_t>(buckets_.capacity() * sizeof(Bucket) + key_of_slot_.capacity() * sizeof(Key));
  }

 private:
  static constexpr int kCells = kWords == 1 ? 5 : 3;
  static constexpr int64_t kFill = kWords == 1 ? 3 : 2;  // cells in use per line, at most, on average
  static constexpr uint16_t kManyPassed = 0xffff;        // stays: that many are not counted any more

  struct alignas(64) Bucket {
    uint64_t words[kWords][kCells] = {};
    uint32_t slots[kCells] = {};
    uint16_t passed = 0;  // keys that would be here if there were room
    uint8_t used = 0;     // bit per cell
  };
  static_assert(sizeof(Bucket) == 64);

  static JETFAST_INLINE Key key_at(const Words& words, int64_t i) {
    Key key;
    for (int word = 0; word < kWords; ++word) key[word] = words[word][i];
    return key;
  }

  // Each word by a factor of its own: with the same one twice, texts that differ in few digits crowd together.
  JETFAST_INLINE size_t home(const Key& key) const {
    uint64_t hash = fold_multiply(key[0] ^ 0x2d358dccaa6c78a5u, 0x9e3779b97f4a7c15u);
    if constexpr (kWords == 2) hash = fold_multiply(hash ^ key[1], 0xd6e8feb86659fd93u);
    return hash & mask_;
  }

// The loop is written once; each variant differs in how it compares a line with one key.
#define JETFAST_FIND_LOOP(MATCH)                                                                                \
  const bool far = buckets_.size() * sizeof(Bucket) > kPrefetchBytes;                                           \
  for (int64_t i = 0; i < count; ++i) {                                                                         \
    const Key key = key_at(words, i);                                                                           \
    if (far && i + kPrefetchRows < count) prefetch_line(&buckets_[home(key_at(words, i + kPrefetchRows))]);     \
    for (size_t place = home(key);; place = (place + 1) & mask_) {                                              \
      const Bucket& bucket = buckets_[place];                                                                   \
      const uint32_t match = MATCH(bucket, key);                                                                \
      if (match != 0) {                                                                                         \
        slots[i] = bucket.slots[__builtin_ctz(match)];                                                          \
        break;                                                                                                  \
      }                                                                                                         \
      if (bucket.passed == 0) {                                                                                 \
        slots[i] = insert(key, pool);                                                                           \
        break;                                                                                                  \
      }                                                                                                         \
    }                                                                                                           \
  }

  static uint32_t match_plain(const Bucket& bucket, const Key& key) {
    uint32_t match = 0;
    for (int cell = 0; cell < kCells; ++cell) {
      bool equal = bucket.words[0][cell] == key[0];
      if constexpr (kWords == 2) equal &= bucket.words[1][cell] == key[1];
      match |= static_cast<uint32_t>(equal) << cell;
    }
    return match & bucket.used;
  }
  void find_plain(Words words, int64_t count, uint32_t* slots, SlotPool& pool) { JETFAST_FIND_LOOP(match_plain) }

#if JETFAST_X86
  // `equal` has one bit for each word in the order of a bucket.
  static JETFAST_INLINE uint32_t match_of_words(uint32_t equal, const Bucket& bucket) {
    return (kWords == 1 ? equal : equal & (equal >> kCells)) & bucket.used;
  }

  JETFAST_TARGET_AVX2 static inline __attribute__((always_inline)) uint32_t match_avx2(const Bucket& bucket, const Key& key) {
    const auto* words = reinterpret_cast<const __m256i*>(&bucket);
    __m256i first = _mm256_set1_epi64x(static_cast<long long>(key[0])), second = first;
    if constexpr (kWords == 2) {
      second = _mm256_set1_epi64x(static_cast<long long>(key[1]));
      first = _mm256_blend_epi32(first, second, 0xc0);  // three times the one, then three times the other
    }
    first = _mm256_cmpeq_epi64(_mm256_load_si256(words), first);
    second = _mm256_cmpeq_epi64(_mm256_load_si256(words + 1), second);
    return match_of_words(static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(first))) |
                              static_cast<uint32_t>(_mm256_movemask_pd(_mm256_castsi256_pd(second))) << 4,
                          bucket);
  }
  JETFAST_TARGET_AVX2 void find_avx2(Words words, int64_t count, uint32_t* slots, SlotPool& pool) {
    JETFAST_FIND_LOOP(match_avx2)
  }
  JETFAST_TARGET_AVX512 static inline __attribute__((always_inline)) uint32_t match_avx512(const Bucket& bucket,
                                                                                        const Key& key) {
    __m512i wanted = _mm512_set1_epi64(static_cast<long long>(key[0]));
    if constexpr (kWords == 2) wanted = _mm512_mask_set1_epi64(wanted, 0x38, static_cast<long long>(key[1]));
    const __m512i words = _mm512_load_si512(&bucket);
    if constexpr (kWords == 1) return _mm512_mask_cmpeq_epi64_mask(bucket.used, words, wanted);
    return match_of_words(_mm512_cmpeq_epi64_mask(words, wanted), bucket);
  }
  JETFAST_TARGET_AVX512 void find_avx512(Words words, int64_t count, uint32_t* slots, SlotPool& pool) {
    JETFAST_FIND_LOOP(match_avx512)
  }
#endif
#undef JETFAST_FIND_LOOP

  uint32_t insert(const Key& key, SlotPool& pool) {
    if (live_ + 1 > static_cast<int64_t>(buckets_.size()) * kFill) resize(buckets_.size() * 2);
    const uint32_t slot = pool.take();
    if (slot >= key_of_slot_.size()) key_of_slot_.resize(static_cast<size_t>(slot) + 1);
    key_of_slot_[slot] = key;
    place(key, slot);
    ++live_;
    return slot;
  }

  void place(const Key& key, uint32_t slot) {
    for (size_t place = home(key);; place = (place + 1) & mask_) {
      Bucket& bucket = buckets_[place];
      if (bucket.used == (1u << kCells) - 1) {
        bucket.passed = static_cast<uint16_t>(bucket.passed + (bucket.passed != kManyPassed));
        continue;
      }
      const int cell = __builtin_ctz(~uint32_t{bucket.used});
      for (int word = 0; word < kWords; ++word) bucket.words[word][cell] = key[word];
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
      for (int cell = 0; cell < kCells; ++cell) {
        if (!(bucket.used >> cell & 1)) continue;
        Key key;
        for (int word = 0; word < kWords; ++word) key[word] = bucket.words[word][cell];
        place(key, bucket.slots[cell]);
      }
  }

  HugeVector<Bucket> buckets_;  // a power of two
  size_t mask_ = 0;
  int64_t live_ = 0;
  std::vector<Key> key_of_slot_;
};

}  // namespace jetfast
