// Rows of one key close to each other: each waits for the addition of the one before. So a key alone, or keys that come in runs,
// cost twice as much a row as a hundred keys by turns, three times for moments, least and greatest values at once.
//
// The few keys that have the most rows of a batch, found by a sample, get kReplicas states each, behind those of all slots of a
// dense frame. Their rows take turns among these, which are combined when the batch is in: what adds rows sees other slots.
// Runs of many keys are added from kTurns places of the batch by turns.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "jetfast/accumulators.hpp"
#include "jetfast/simd.hpp"

namespace jetfast {

// slots[row] == hot becomes replicas + row % kReplicas.
template <uint32_t kReplicas>
JETFAST_INLINE void replace_slot_body(uint32_t* slots, int64_t count, uint32_t hot, uint32_t replicas) {
  for (int64_t row = 0; row < count; ++row)
    slots[row] = slots[row] == hot ? replicas + static_cast<uint32_t>(row) % kReplicas : slots[row];
}

#if JETFAST_X86
template <uint32_t kReplicas>
JETFAST_TARGET_AVX2 inline void replace_slot_avx2(uint32_t* slots, int64_t count, uint32_t hot, uint32_t replicas) {
  replace_slot_body<kReplicas>(slots, count, hot, replicas);
}
template <uint32_t kReplicas>
JETFAST_TARGET_AVX512 inline void replace_slot_avx512(uint32_t* slots, int64_t count, uint32_t hot, uint32_t replicas) {
  replace_slot_body<kReplicas>(slots, count, hot, replicas);
}
#endif

// turns = the places (places[i] for i < count, or i without `places`), one of each kTurns equal parts by turns. Parts do not begin
// whole pages from each other, else they would share a few lines of the first-level cache.
constexpr int64_t kTurns = 7;

inline void take_turns(const int32_t* places, int64_t count, std::vector<int32_t>& turns) {
  turns.resize(static_cast<size_t>(count));
  const int64_t part = count / kTurns;
  const auto place_of = [places](int64_t i) { return places ? places[i] : static_cast<int32_t>(i); };
  for (int64_t i = 0; i < part; ++i)
    for (int64_t turn = 0; turn < kTurns; ++turn) turns[i * kTurns + turn] = place_of(turn * part + i);
  for (int64_t i = part * kTurns; i < count; ++i) turns[i] = place_of(i);
}

class HotSlots {
 public:
  static constexpr uint32_t kReplicas = 8;
  static constexpr uint32_t kHotSlots = 4;

  // Looks at a batch, slots[row] for each row. Rows of hot slots go to replicas, which are the slots from `first_replica` on.
  void spread(uint32_t* slots, int64_t count, uint32_t first_replica) {
    sample(slots, count);
    first_replica_ = first_replica;
    for (uint32_t hot = 0; hot < hot_count_; ++hot)
      replace_slot(slots, count, entries_[hot * kReplicas], first_replica + hot * kReplicas);
  }

  uint32_t replica_count() const { return hot_count_ * kReplicas; }

  // In which order to add values: of all rows, or of those that `places` lists. Null: as they come.
  const int32_t* order(const int32_t* places, int64_t count) {
    if (!has_runs_) return places;
    if (places == nullptr && static_cast<int64_t>(turns_.size()) == count) return turns_.data();  // as in the batch before
    std::vector<int32_t>& turns = places ? turned_places_ : turns_;
    take_turns(places, count, turns);
    return turns.data();
  }

  // Before rows enter `states`: replicas hold nothing.
  void open(const Field& field, uint8_t* states) const {
    if (hot_count_ > 0) fill_identity(field, states, first_replica_, int64_t{first_replica_} + replica_count());
  }

  // Afterwards: what replicas hold goes to their slots.
  void close(const Field& field, uint8_t* states) const {
    if (hot_count_ > 0)
      combine_states(field, states, entries_.data(), states + int64_t{first_replica_} * field.width, nullptr, replica_count());
  }

 private:
  static constexpr int64_t kSamples = 64;
  static constexpr int64_t kRowsPerSample = 64;
  static constexpr int64_t kSamplesMin = 16;
  static constexpr int64_t kHotShare = 5;  // hot is what has more than a fifth of the samples
  static constexpr int64_t kRunsShare = 8;  // less than an eighth of them begin a run

  static void replace_slot(uint32_t* slots, int64_t count, uint32_t hot, uint32_t replicas) {
#if JETFAST_X86
    if (simd_level() == SimdLevel::avx512) return replace_slot_avx512<kReplicas>(slots, count, hot, replicas);
    if (simd_level() == SimdLevel::avx2) return replace_slot_avx2<kReplicas>(slots, count, hot, replicas);
#endif
    replace_slot_body<kReplicas>(slots, count, hot, replicas);
  }

  void sample(const uint32_t* slots, int64_t count) {
    hot_count_ = 0;
    has_runs_ = false;
    const int64_t samples = std::min(count / kRowsPerSample, kSamples);
    if (samples < kSamplesMin) return;
    const int64_t step = (count / samples - 1) | 1;  // odd: keys often come by turns of a power of two
    const auto needed = static_cast<uint8_t>(samples / kHotShare + 1);
    std::array<uint8_t, 256> counts{};  // by the low bits of a slot: a slot too many does no harm
    int64_t pairs = 0;
    for (int64_t sample = 0; sample < samples; ++sample) {
      const uint32_t slot = slots[sample * step];
      pairs += slot == slots[sample * step + 1];
      if (++counts[slot % 256] == needed && hot_count_ < kHotSlots)
        std::fill_n(entries_.begin() + hot_count_++ * kReplicas, kReplicas, slot);
    }
    has_runs_ = hot_count_ == 0 && kRunsShare * (samples - pairs) < samples;
  }

  uint32_t hot_count_ = 0, first_replica_ = 0;
  bool has_runs_ = false;  // and no hot slots
  std::array<uint32_t, kHotSlots * kReplicas> entries_{};  // by replica, the slot
  std::vector<int32_t> turns_, turned_places_;
};

}  // namespace jetfast
