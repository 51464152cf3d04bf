// Keys of one or two words to slots, a cache line at a time.
//
// Words and slots of the keys in a bucket fill a cache line, so that a probe that finds its key in its home touches one. A line
// counts the keys that went past it because it was full (as F14 does; Bronson, Shi 2019): a probe ends where there are none,
// and nothing stays behind when a key is erased. As keys come and go each line of a small table may have some at once: a probe
// ends after one turn, too.
//
// A large table grows in steps, so that no batch waits for all of it. Homes are the high bits of a hash, in the order of the
// lines: line i of the old table becomes lines 2i and 2i + 1 of the new one. With each batch some lines move, in order. Keys
// whose home in the old table is below `moved_` are in the new one, all others in the old one; a step only ends at a line
// that no key went past. Keys that went past the last line and are in the first ones move at the very end.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <utility>
#include <vector>

#include "jetfast/arena.hpp"
#include "jetfast/assertions.hpp"
#include "jetfast/key_cells.hpp"
#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"
#include "jetfast/slot_blocks.hpp"
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

  // Make room for so many keys, at once.
  void reserve(int64_t keys) {
    if (is_growing()) move_lines(old_.count());
    size_t lines = lines_.count();
    while (static_cast<int64_t>(lines) * kFill < keys) lines *= 2;
    if (lines != lines_.count()) resize(lines);
  }

  void find_or_insert(const Words& words, int64_t count, uint32_t* slots, SlotPool& pool, SimdLevel level) {
    for (int64_t start = 0; start < count; start += kStepRows) {
      const int64_t step = std::min(kStepRows, count - start);
      Words rest = words;
      for (const uint64_t*& word : rest) word += start;
      if (is_growing()) move_lines(static_cast<size_t>(step * kMovedKeys / kFill));
      else if (is_full() && grows_in_steps()) start_growth(2 * lines_.count());
      if (is_growing()) find<true>(rest, step, slots + start, &pool, level);
      else find<false>(rest, step, slots + start, &pool, level);
    }
  }

  // As find_or_insert, but a key that is not there gets kNoSlot, and nothing changes.
  void find(const Words& words, int64_t count, uint32_t* slots, SimdLevel level) {
    if (is_growing()) find<true>(words, count, slots, nullptr, level);
    else find<false>(words, count, slots, nullptr, level);
  }

  const Key& key_of(uint32_t slot) const { return key_of_slot_[slot]; }

  // Every key is found where its hash says, each slot has one key, and a line has as many keys past it as it says. Reads
  // all lines.
  void check_invariants(const SlotPool& pool) const {
    JETFAST_INVARIANT(moved_ <= old_.count() || !is_growing());
    std::vector<uint8_t> is_seen(pool.limit(), 0);
    int64_t keys = 0;
    for (const Lines* lines : {&lines_, &old_}) {
      std::vector<uint32_t> passed(lines->count(), 0);
      for (size_t line = 0; line < lines->ready(); ++line) {
        const Bucket& bucket = (*lines)[line];
        JETFAST_INVARIANT(bucket.used < 1u << kCells);
        for (uint32_t used = bucket.used; used != 0; used &= used - 1) {
          const int cell = __builtin_ctz(used);
          const uint32_t slot = bucket.slots[cell];
          JETFAST_INVARIANT(slot < pool.limit());
          JETFAST_INVARIANT(!is_seen[slot]);
          is_seen[slot] = 1;
          ++keys;
          const Key& key = key_of_slot_[slot];
          for (int word = 0; word < kWords; ++word) JETFAST_INVARIANT(bucket.words[word][cell] == key[word]);
          for (size_t place = lines->home(hash_of(key)); place != line; place = lines->next(place)) ++passed[place];
        }
      }
      for (size_t line = 0; line < lines->ready(); ++line)
        JETFAST_INVARIANT((*lines)[line].passed >= std::min<uint32_t>(passed[line], kManyPassed));
    }
    JETFAST_INVARIANT(keys == live_);
    key_of_slot_.check_invariants();
  }

  void erase(uint32_t slot) {
    const Key key = key_of_slot_[slot];
    const uint64_t hash = hash_of(key);
    Lines& lines = lines_of(hash);
    for (size_t place = lines.home(hash);; place = lines.next(place)) {
      Bucket& bucket = lines[place];
      const uint32_t match = match_plain(bucket, key);
      if (match != 0) {
        JETFAST_CHECK((match & (match - 1)) == 0);
        bucket.used = static_cast<uint8_t>(bucket.used & ~match);
        --live_;
        return;
      }
      if (bucket.passed == 0) throw std::logic_error("erased a key that is not there");
      bucket.passed = static_cast<uint16_t>(bucket.passed - (bucket.passed != kManyPassed));
    }
  }

  int64_t bytes() const {
    return static_cast<int64_t>((lines_.count() + old_.count()) * sizeof(Bucket)) + key_of_slot_.bytes();
  }

 private:
  static constexpr int kCells = kWords == 1 ? 5 : 3;
  static constexpr int64_t kFill = kWords == 1 ? 3 : 2;  // cells in use per line, on average; more only while it grows
  static constexpr uint16_t kManyPassed = 0xffff;        // stays: that many are not counted any more
  static constexpr int64_t kStepRows = 8192;
  static constexpr int64_t kMovedKeys = 6;               // with each row: old lines get at most a sixth fuller meanwhile
  static constexpr size_t kStepLines = size_t{1} << 15;  // from so many lines on in steps: room for kStepRows more in any case

  struct alignas(64) Bucket {
    uint64_t words[kWords][kCells];
    uint32_t slots[kCells];
    uint16_t passed;  // keys that would be here if there were room
    uint8_t used;     // bit per cell
  };
  static_assert(sizeof(Bucket) == 64);

  // A power of two of them, made empty in their order as they are needed.
  class Lines {
   public:
    Lines() = default;
    explicit Lines(size_t count) : buckets_(HugePageAllocator<Bucket>().allocate(count)), count_(count) {
      shift_ = 64 - __builtin_ctzll(count);
    }
    Lines(Lines&& other) noexcept { *this = std::move(other); }
    Lines& operator=(Lines&& other) noexcept {
      std::swap(buckets_, other.buckets_);
      std::swap(count_, other.count_);
      std::swap(ready_, other.ready_);
      std::swap(shift_, other.shift_);
      return *this;
    }
    ~Lines() {
      if (buckets_ != nullptr) HugePageAllocator<Bucket>().deallocate(buckets_, count_);
    }

    size_t count() const { return count_; }
    size_t ready() const { return ready_; }
    JETFAST_INLINE size_t home(uint64_t hash) const { return hash >> shift_; }
    JETFAST_INLINE size_t next(size_t place) const { return (place + 1) & (count_ - 1); }
    Bucket& operator[](size_t place) {
      JETFAST_CHECK(place < count_);
      return buckets_[place];
    }
    const Bucket& operator[](size_t place) const {
      JETFAST_CHECK(place < count_);
      return buckets_[place];
    }

    void make_ready(size_t end) {
      if (end <= ready_) return;
      end = std::min(count_, (end + kReadyLines - 1) / kReadyLines * kReadyLines);
      std::memset(static_cast<void*>(buckets_ + ready_), 0, (end - ready_) * sizeof(Bucket));
      ready_ = end;
    }

   private:
    static constexpr size_t kReadyLines = 64;

    Bucket* buckets_ = nullptr;
    size_t count_ = 0;
    size_t ready_ = 0;
    int shift_ = 0;
  };

  static JETFAST_INLINE Key key_at(const Words& words, int64_t i) {
    Key key;
    for (int word = 0; word < kWords; ++word) key[word] = words[word][i];
    return key;
  }

  // Each word by a factor of its own: with the same one twice, texts that differ in few digits crowd together.
  static JETFAST_INLINE uint64_t hash_of(const Key& key) {
    uint64_t hash = fold_multiply(key[0] ^ 0x2d358dccaa6c78a5u, 0x9e3779b97f4a7c15u);
    if constexpr (kWords == 2) hash = fold_multiply(hash ^ key[1], 0xd6e8feb86659fd93u);
    return hash;
  }

  // Where the key of a hash is, or would be.
  JETFAST_INLINE Lines& lines_of(uint64_t hash) { return is_growing() && old_.home(hash) >= moved_ ? old_ : lines_; }

// The loop is written once; each variant differs in how it compares a line with one key. Without a pool nothing is inserted.
#define JETFAST_FIND_LOOP(MATCH)                                                                                \
  const bool far = growing || lines_.count() * sizeof(Bucket) > kPrefetchBytes;                                 \
  for (int64_t i = 0; i < count; ++i) {                                                                         \
    const Key key = key_at(words, i);                                                                           \
    for (int word = 0; word < kWords; ++word) prefetch_page_ahead(words[word] + i);                             \
    if (far && i + kPrefetchRows < count) {                                                                     \
      const uint64_t ahead = hash_of(key_at(words, i + kPrefetchRows));                                         \
      const Lines& lines = growing ? lines_of(ahead) : lines_;                                                  \
      prefetch_line(&lines[lines.home(ahead)]);                                                                 \
    }                                                                                                           \
    const uint64_t hash = hash_of(key);                                                                         \
    const Lines& lines = growing ? lines_of(hash) : lines_;                                                     \
    const size_t home = lines.home(hash);                                                                       \
    const uint32_t first_match = MATCH(lines[home], key);                                                       \
    if (first_match != 0) {                                                                                     \
      slots[i] = lines[home].slots[__builtin_ctz(first_match)];                                                 \
      continue;                                                                                                 \
    }                                                                                                           \
    for (size_t place = home;;) {                                                                               \
      if (lines[place].passed == 0 || (place = lines.next(place)) == home) {                                    \
        slots[i] = pool == nullptr ? kNoSlot : insert(key, hash, *pool);                                        \
        break;                                                                                                  \
      }                                                                                                         \
      const uint32_t match = MATCH(lines[place], key);                                                          \
      if (match != 0) {                                                                                         \
        slots[i] = lines[place].slots[__builtin_ctz(match)];                                                    \
        break;                                                                                                  \
      }                                                                                                         \
    }                                                                                                           \
  }

  template <bool growing>
  void find(const Words& words, int64_t count, uint32_t* slots, SlotPool* pool, SimdLevel level) {
#if JETFAST_X86
    if (level == SimdLevel::avx512) return find_avx512<growing>(words, count, slots, pool);
    if (level == SimdLevel::avx2) return find_avx2<growing>(words, count, slots, pool);
#endif
    (void)level;
    find_plain<growing>(words, count, slots, pool);
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
  template <bool growing>
  void find_plain(Words words, int64_t count, uint32_t* slots, SlotPool* pool) {
    JETFAST_FIND_LOOP(match_plain)
  }

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
  template <bool growing>
  JETFAST_TARGET_AVX2 void find_avx2(Words words, int64_t count, uint32_t* slots, SlotPool* pool) {
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
  template <bool growing>
  JETFAST_TARGET_AVX512 void find_avx512(Words words, int64_t count, uint32_t* slots, SlotPool* pool) {
    JETFAST_FIND_LOOP(match_avx512)
  }
#endif
#undef JETFAST_FIND_LOOP

  uint32_t insert(const Key& key, uint64_t hash, SlotPool& pool) {
    if (is_full() && !grows_in_steps()) resize(2 * lines_.count());
    const uint32_t slot = pool.take();
    JETFAST_CHECK(slot != kNoSlot);
    key_of_slot_.cover(slot);
    key_of_slot_[slot] = key;
    place(lines_of(hash), key, hash, slot);
    ++live_;
    return slot;
  }

  static void place(Lines& lines, const Key& key, uint64_t hash, uint32_t slot) {
    for (size_t place = lines.home(hash);; place = lines.next(place)) {
      lines.make_ready(place + 1);
      Bucket& bucket = lines[place];
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

  // ---- growing

  bool is_full() const { return live_ >= static_cast<int64_t>(lines_.count()) * kFill; }
  bool grows_in_steps() const { return lines_.count() >= kStepLines; }
  bool is_growing() const { return old_.count() > 0; }

  void start_growth(size_t line_count) {
    JETFAST_CHECK(!is_growing());
    JETFAST_CHECK((line_count & (line_count - 1)) == 0 && line_count > lines_.count());
    Lines lines(line_count);
    std::swap(lines, lines_);
    old_ = std::move(lines);
    moved_ = 0;
  }

  void resize(size_t line_count) {
    start_growth(line_count);
    move_lines(old_.count());
  }

  void move_lines(size_t count) {
    const size_t end = std::min(moved_ + count, old_.count());
    while (moved_ < old_.count() && (moved_ < end || old_[moved_ - 1].passed > 0)) {
      move_line(moved_, moved_ + 1);
      ++moved_;
    }
    lines_.make_ready(moved_ * (lines_.count() / old_.count()));
    if (moved_ < old_.count()) return;
    size_t before = old_.count() - 1;
    for (size_t line = 0; line < old_.count() && old_[before].passed > 0; before = line++) move_line(line, old_.count());
    old_ = Lines();
  }

  // Move the keys of a line whose home is below `end`: others went past the last line.
  void move_line(size_t line, size_t end) {
    Bucket& bucket = old_[line];
    for (uint32_t used = bucket.used; used != 0; used &= used - 1) {
      const int cell = __builtin_ctz(used);
      Key key;
      for (int word = 0; word < kWords; ++word) key[word] = bucket.words[word][cell];
      const uint64_t hash = hash_of(key);
      if (old_.home(hash) >= end) continue;
      place(lines_, key, hash, bucket.slots[cell]);
      bucket.used = static_cast<uint8_t>(bucket.used & ~(1u << cell));
    }
  }

  static Lines empty_lines(size_t count) {
    Lines lines(count);
    lines.make_ready(count);
    return lines;
  }

  Lines lines_ = empty_lines(8);
  Lines old_;  // while the table grows
  size_t moved_ = 0;
  int64_t live_ = 0;
  SlotBlocks<Key> key_of_slot_;
};

}  // namespace jetfast
