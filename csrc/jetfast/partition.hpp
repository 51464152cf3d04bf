// From hashes to partitions, and rows grouped by the owner of their partition, order kept.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "jetfast/gather.hpp"
#include "jetfast/hash.hpp"
#include "jetfast/scatter.hpp"

namespace jetfast {

// Spark's pmod(hash, partition_count). Exact for every hash and every count >= 2: the quotient from the multiplication with
// `reciprocal` = floor(2^32 / count) is right or one too small. The hash plus 2^31 is divided, as an unsigned number;
// `correction` = -2^31 modulo the count takes that off again.
JETFAST_INLINE uint32_t partition_of(uint32_t hash, uint32_t partition_count, uint32_t reciprocal, uint32_t correction) {
  const uint32_t shifted = hash ^ 0x80000000u;
  const auto quotient = static_cast<uint32_t>((uint64_t{shifted} * reciprocal) >> 32);
  // below twice the count (2^31 - 1 at most): what would fall below zero by subtracting it wraps to something large
  uint32_t rest = shifted - quotient * partition_count;
  rest = std::min(rest, rest - partition_count);
  rest += correction;
  return std::min(rest, rest - partition_count);
}

JETFAST_INLINE void assign_partitions_body(const uint32_t* hashes, int64_t count, uint32_t partition_count, int32_t* ids) {
  const auto added = static_cast<uint32_t>((uint64_t{1} << 31) % partition_count);
  const auto reciprocal = static_cast<uint32_t>((uint64_t{1} << 32) / partition_count);
  const uint32_t correction = added == 0 ? 0 : partition_count - added;
  for (int64_t i = 0; i < count; ++i)
    ids[i] = static_cast<int32_t>(partition_of(hashes[i], partition_count, reciprocal, correction));
}

inline void assign_partitions_plain(const uint32_t* hashes, int64_t count, uint32_t partition_count, int32_t* ids) {
  assign_partitions_body(hashes, count, partition_count, ids);
}
#if JETFAST_X86
JETFAST_TARGET_AVX2 inline void assign_partitions_avx2(const uint32_t* hashes, int64_t count, uint32_t partition_count, int32_t* ids) {
  assign_partitions_body(hashes, count, partition_count, ids);
}
JETFAST_TARGET_AVX512 inline void assign_partitions_avx512(const uint32_t* hashes, int64_t count, uint32_t partition_count,
                                                           int32_t* ids) {
  assign_partitions_body(hashes, count, partition_count, ids);
}
#endif

// `ids` may be `hashes` itself.
inline void assign_partitions(const uint32_t* hashes, int64_t count, int32_t partition_count, int32_t* ids) {
  const auto divisor = static_cast<uint32_t>(partition_count);
  if (partition_count == 1) {
    std::memset(ids, 0, static_cast<size_t>(count) * 4);
    return;
  }
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return assign_partitions_avx512(hashes, count, divisor, ids);
  if (simd_level() == SimdLevel::avx2) return assign_partitions_avx2(hashes, count, divisor, ids);
#endif
  assign_partitions_plain(hashes, count, divisor, ids);
}

// ---- grouping -------------------------------------------------------------------------------------------------------------
// Row numbers grouped by owner, ascending within each: owner p's are order[starts[p]] .. order[starts[p + 1] - 1].
// `starts` has owner_count + 1 values, `order` room for kOrderSlack more than there are rows.

constexpr int64_t kOrderSlack = 64;

// Counting sort. Each owner has a cursor in each quarter of the rows, so that four independent chains of
// load-add-store run at once instead of one.
template <typename Owner>
inline void group_rows_counting(const Owner* row_owners, int64_t count, int32_t owner_count, int32_t* order, int64_t* starts,
                                ReadAhead ahead) {
  const int64_t quarter = count / 4;
  if (ahead.bytes == nullptr) ahead = {reinterpret_cast<const uint8_t*>(row_owners), 0};  // a line that is there anyway
  std::vector<uint32_t> cursors(static_cast<size_t>(owner_count) * 4, 0);
  uint32_t* first = cursors.data();
  uint32_t* second = first + owner_count;
  uint32_t* third = second + owner_count;
  uint32_t* fourth = third + owner_count;
  for (int64_t i = 0; i < quarter; ++i) {
    ++first[row_owners[i]];
    ++second[row_owners[quarter + i]];
    ++third[row_owners[2 * quarter + i]];
    ++fourth[row_owners[3 * quarter + i]];
    prefetch_line(ahead.bytes + 2 * i * ahead.width);  // half of the column here, half below
  }
  for (int64_t i = 4 * quarter; i < count; ++i) ++fourth[row_owners[i]];
  uint32_t start = 0;
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    starts[owner] = start;
    for (uint32_t* cursor : {first + owner, second + owner, third + owner, fourth + owner}) {
      const uint32_t rows = *cursor;
      *cursor = start;
      start += rows;
    }
  }
  starts[owner_count] = start;
  for (int64_t i = 0; i < quarter; ++i) {
    order[first[row_owners[i]]++] = static_cast<int32_t>(i);
    order[second[row_owners[quarter + i]]++] = static_cast<int32_t>(quarter + i);
    order[third[row_owners[2 * quarter + i]]++] = static_cast<int32_t>(2 * quarter + i);
    order[fourth[row_owners[3 * quarter + i]]++] = static_cast<int32_t>(3 * quarter + i);
    prefetch_line(ahead.bytes + 2 * (quarter + i) * ahead.width);
  }
  for (int64_t i = 4 * quarter; i < count; ++i) order[fourth[row_owners[i]]++] = static_cast<int32_t>(i);
}

#if JETFAST_X86
// One pass per owner: compare 64 owners at once, then compress the row numbers of those that match. What is written beyond
// the matches is overwritten by the next write. Pays up to kCompressOwnersMax owners.
constexpr int32_t kCompressOwnersMax = 16;

JETFAST_INLINE uint64_t rows_left_mask(int64_t rows) { return rows >= 64 ? ~uint64_t{0} : (uint64_t{1} << rows) - 1; }

JETFAST_TARGET_AVX512 inline void group_rows_avx512(const uint8_t* row_owners, int64_t count, int32_t owner_count, int32_t* order,
                                                    int64_t* starts) {
  int64_t position = 0;
  const __m512i step = _mm512_set1_epi32(16);
  const __m512i first_rows = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    starts[owner] = position;
    const __m512i wanted = _mm512_set1_epi8(static_cast<char>(owner));
    __m512i rows = first_rows;
    for (int64_t i = 0; i < count; i += 64) {
      const uint64_t inside = rows_left_mask(count - i);
      const uint64_t matches = _mm512_mask_cmpeq_epi8_mask(inside, _mm512_maskz_loadu_epi8(inside, row_owners + i), wanted);
      for (int part = 0; part < 64; part += 16) {
        const auto mask = static_cast<__mmask16>(matches >> part);
        _mm512_storeu_si512(order + position, _mm512_maskz_compress_epi32(mask, rows));
        position += __builtin_popcount(mask);
        rows = _mm512_add_epi32(rows, step);
      }
    }
  }
  starts[owner_count] = position;
}

// The same with 16-bit row numbers, for at most 65536 rows; `narrow` has room for count + kOrderSlack.
JETFAST_TARGET_AVX512_VBMI2 inline void group_rows_vbmi2(const uint8_t* row_owners, int64_t count, int32_t owner_count,
                                                         uint16_t* narrow, int32_t* order, int64_t* starts, ReadAhead ahead) {
  const int64_t ahead_bytes = count * ahead.width;
  int64_t ahead_at = 0;
  int64_t position = 0;
  const __m512i step = _mm512_set1_epi16(32);
  alignas(64) uint16_t numbers[32];
  for (int i = 0; i < 32; ++i) numbers[i] = static_cast<uint16_t>(i);
  const __m512i first_rows = _mm512_load_si512(numbers);
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    starts[owner] = position;
    const __m512i wanted = _mm512_set1_epi8(static_cast<char>(owner));
    __m512i rows = first_rows;
    for (int64_t i = 0; i < count; i += 64) {
      const uint64_t inside = rows_left_mask(count - i);
      const uint64_t matches = _mm512_mask_cmpeq_epi8_mask(inside, _mm512_maskz_loadu_epi8(inside, row_owners + i), wanted);
      for (int part = 0; part < 64; part += 32) {
        const auto mask = static_cast<__mmask32>(matches >> part);
        _mm512_storeu_si512(narrow + position, _mm512_maskz_compress_epi16(mask, rows));
        position += __builtin_popcount(mask);
        rows = _mm512_add_epi16(rows, step);
      }
      if (ahead_at < ahead_bytes) {
        prefetch_line(ahead.bytes + ahead_at);
        ahead_at += 64;
      }
    }
  }
  starts[owner_count] = position;
  for (int64_t i = 0; i < count; ++i) order[i] = narrow[i];
}

// Owners of rows by the table in registers (`owners` has kScatterPartitionsMax of them).
JETFAST_TARGET_AVX512_VBMI2 inline void look_up_owners_vbmi2(const int32_t* partition_ids, int64_t count, const uint8_t* owners,
                                                             uint8_t* row_owners) {
  const OwnerTable table(owners);
  const int64_t whole = count & ~int64_t{63};
  for (int64_t i = 0; i < whole; i += 64)
    _mm512_storeu_si512(row_owners + i, table.look_up(_mm512_loadu_si512(partition_ids + i), _mm512_loadu_si512(partition_ids + i + 16),
                                                      _mm512_loadu_si512(partition_ids + i + 32),
                                                      _mm512_loadu_si512(partition_ids + i + 48)));
  for (int64_t i = whole; i < count; ++i) row_owners[i] = owners[partition_ids[i]];
}
#endif

template <typename Owner>
inline void look_up_owners(const int32_t* partition_ids, int64_t count, const Owner* owners, Owner* row_owners) {
  for (int64_t i = 0; i < count; ++i) row_owners[i] = owners[partition_ids[i]];
}

// Bytes of scratch memory that group_rows needs.
inline int64_t group_scratch_bytes(int64_t count) { return aligned_bytes((count + kOrderSlack) * 4) + aligned_bytes(count * 4); }

inline void group_rows(const int32_t* partition_ids, int64_t count, const int32_t* owners, int32_t partition_count,
                       int32_t owner_count, uint8_t* scratch, int32_t* order, int64_t* starts, ReadAhead ahead = ReadAhead()) {
  if (owner_count > 256) {
    auto* row_owners = reinterpret_cast<int32_t*>(scratch);
    look_up_owners(partition_ids, count, owners, row_owners);
    return group_rows_counting(row_owners, count, owner_count, order, starts, ahead);
  }
  std::vector<uint8_t> narrow_owners(static_cast<size_t>(std::max(partition_count, kScatterPartitionsMax)));
  for (int32_t partition = 0; partition < partition_count; ++partition)
    narrow_owners[static_cast<size_t>(partition)] = static_cast<uint8_t>(owners[partition]);
  uint8_t* row_owners = scratch;
#if JETFAST_X86
  if (use_vbmi2() && partition_count <= kScatterPartitionsMax)
    look_up_owners_vbmi2(partition_ids, count, narrow_owners.data(), row_owners);
  else
#endif
    look_up_owners(partition_ids, count, narrow_owners.data(), row_owners);
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512 && owner_count <= kCompressOwnersMax) {
    if (use_vbmi2() && count <= 65536)
      return group_rows_vbmi2(row_owners, count, owner_count, reinterpret_cast<uint16_t*>(scratch + aligned_bytes(count * 4)),
                              order, starts, ahead);
    return group_rows_avx512(row_owners, count, owner_count, order, starts);
  }
#endif
  group_rows_counting(row_owners, count, owner_count, order, starts, ahead);
}

// Hash the key columns of some rows into `ids`, then make them partitions. ids: row_count values.
inline void assign_row_partitions(Arena& arena, const Rows& rows, const std::vector<int32_t>& keys, int32_t partition_count,
                                  int32_t* ids) {
  auto* hashes = reinterpret_cast<uint32_t*>(ids);
  for (int64_t i = 0; i < rows.row_count; ++i) hashes[i] = kHashSeed;
  bool uniform = true;
  for (int32_t key : keys) {
    const ColumnView& view = rows.columns[static_cast<size_t>(key)].view;
    Block scratch;
    if (hash_scratch_values(view) > 0) scratch = arena.allocate(hash_scratch_values(view) * 4);
    hash_column(view, uniform, kHashSeed, hashes, reinterpret_cast<int32_t*>(scratch.get()));
    uniform = uniform && view.kind == Kind::null;
  }
  assign_partitions(hashes, rows.row_count, partition_count, ids);
}

// What scattering moves: values of 8 bytes, none of them null.
inline bool is_scattered(const ColumnView& view) {
  return view.layout == Layout::fixed && view.width == 8 && view.validity == nullptr && view.kind != Kind::null;
}

#if JETFAST_X86
// Batches that are scattered together: their owners' rows come to lie one behind the other.
struct ScatteredRun {
  const Rows* const* batches;
  size_t batch_count;
  std::vector<const uint8_t*> row_owners;  // of each batch
};

// Scatter a run by row_owners. parts: their row counts are known. The rows of each owner lie in a block of their own, which goes
// back to the pool of the thread that has read them.
inline void scatter_columns(Arena& arena, const ScatteredRun& run, std::vector<Rows>& parts) {
  const auto owner_count = static_cast<int32_t>(parts.size());
  const std::vector<Column>& columns = run.batches[0]->columns;
  const auto column_count = static_cast<int64_t>(columns.size());
  int64_t* starts[kScatterOwnersMax];  // of an owner's first column
  int64_t rooms[kScatterOwnersMax];    // values of one of its columns
  Block blocks[kScatterOwnersMax];     // kept until all is written: whole vectors go to owners without rows, too
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    Rows& part = parts[static_cast<size_t>(owner)];
    rooms[owner] = (part.row_count + kScatterSlack + 7) & ~int64_t{7};
    blocks[owner] = arena.allocate(rooms[owner] * 8 * column_count);
    starts[owner] = reinterpret_cast<int64_t*>(blocks[owner].get());
    for (int64_t column = 0; column < column_count && part.row_count > 0; ++column) {
      part.columns.emplace_back();
      part.columns.back().view = type_of(columns[static_cast<size_t>(column)].view);
      part.columns.back().view.row_count = part.row_count;
      part.columns.back().view.values = starts[owner] + column * rooms[owner];
      part.columns.back().owner = blocks[owner];
    }
  }
  for (int64_t first = 0; first < column_count; first += kScatterColumnsMax) {
    const int64_t moved = std::min<int64_t>(kScatterColumnsMax, column_count - first);
    int64_t* targets[kScatterOwnersMax * kScatterColumnsMax];
    for (int32_t owner = 0; owner < owner_count; ++owner)
      for (int64_t i = 0; i < moved; ++i) targets[owner * moved + i] = starts[owner] + (first + i) * rooms[owner];
    for (size_t batch = 0; batch < run.batch_count; ++batch) {
      const Rows& rows = *run.batches[batch];
      const uint8_t* row_owners = run.row_owners[batch];
      const int64_t* sources[kScatterColumnsMax];
      for (int64_t i = 0; i < moved; ++i)
        sources[i] = static_cast<const int64_t*>(rows.columns[static_cast<size_t>(first + i)].view.values);
      switch (moved) {
        case 1: scatter_rows_vbmi2<1>(row_owners, rows.row_count, owner_count, sources, targets); break;
        case 2: scatter_rows_vbmi2<2>(row_owners, rows.row_count, owner_count, sources, targets); break;
        case 3: scatter_rows_vbmi2<3>(row_owners, rows.row_count, owner_count, sources, targets); break;
        default: scatter_rows_vbmi2<4>(row_owners, rows.row_count, owner_count, sources, targets); break;
      }
    }
  }
}

// Find the owner of each row. row_owners: row_count and kScatterPadding bytes; ids: row_count values of scratch memory.
inline void find_row_owners(Arena& arena, const Rows& rows, const std::vector<int32_t>& keys, const uint8_t* narrow_owners,
                            int32_t partition_count, uint8_t* row_owners, int32_t* ids) {
  const ColumnView* key = keys.size() == 1 ? &rows.columns[static_cast<size_t>(keys[0])].view : nullptr;
  if (key == nullptr || !hashes_as_long(*key)) {
    assign_row_partitions(arena, rows, keys, partition_count, ids);
    return look_up_owners_vbmi2(ids, rows.row_count, narrow_owners, row_owners);
  }
  const uint8_t* ahead[kScatterColumnsMax];
  int32_t ahead_count = 0;
  for (size_t index = 0; index < rows.columns.size() && ahead_count < kScatterColumnsMax; ++index)
    if (static_cast<int32_t>(index) != keys[0]) ahead[ahead_count++] = static_cast<const uint8_t*>(rows.columns[index].view.values);
  find_owners_vbmi2(static_cast<const int64_t*>(key->values), rows.row_count, narrow_owners, static_cast<uint32_t>(partition_count),
                    row_owners, ahead, ahead_count);
}

// split_rows of a run of batches (one or more rows each), the parts of an owner put together, where all columns can be
// scattered; false, with nothing done, if it is not for these.
inline bool split_by_scattering(Arena& arena, const Rows* const* batches, size_t batch_count, const std::vector<int32_t>& keys,
                                const std::vector<int32_t>& owners, std::vector<Rows>& parts) {
  const auto owner_count = static_cast<int32_t>(parts.size());
  const auto partition_count = static_cast<int32_t>(owners.size());
  if (!use_vbmi2() || owner_count > kScatterOwnersMax || partition_count < 2 || partition_count > kScatterPartitionsMax) return false;
  int64_t row_count = 0, longest = 0, owners_bytes = 0;
  for (size_t batch = 0; batch < batch_count; ++batch) {
    for (const Column& column : batches[batch]->columns)
      if (!is_scattered(column.view)) return false;
    row_count += batches[batch]->row_count;
    longest = std::max(longest, batches[batch]->row_count);
    owners_bytes += aligned_bytes(batches[batch]->row_count + kScatterPadding);
  }
  if (row_count > kScatterRowsMax) return false;
  uint8_t narrow_owners[kScatterPartitionsMax] = {};
  for (size_t partition = 0; partition < owners.size(); ++partition)
    narrow_owners[partition] = static_cast<uint8_t>(owners[partition]);
  const Block scratch = arena.allocate(owners_bytes + aligned_bytes(longest * 4));
  auto* ids = reinterpret_cast<int32_t*>(scratch.get() + owners_bytes);
  ScatteredRun run{batches, batch_count, {}};
  uint8_t* row_owners = scratch.get();
  for (size_t batch = 0; batch < batch_count; ++batch) {
    const Rows& rows = *batches[batch];
    find_row_owners(arena, rows, keys, narrow_owners, partition_count, row_owners, ids);
    int64_t counts[kScatterOwnersMax];
    count_owners_vbmi2(row_owners, rows.row_count, owner_count, counts);
    for (int32_t owner = 0; owner < owner_count; ++owner) parts[static_cast<size_t>(owner)].row_count += counts[owner];
    run.row_owners.push_back(row_owners);
    row_owners += aligned_bytes(rows.row_count + kScatterPadding);
  }
  for (Rows& part : parts) {
    if (part.row_count == row_count && batch_count == 1) {  // all rows are one owner's: nothing moves
      part = *batches[0];
      return true;
    }
    if (part.row_count > 0) part.columns.reserve(batches[0]->columns.size());
  }
  scatter_columns(arena, run, parts);
  return true;
}
#endif

// The rows of each owner. Columns are gathered once, in the order of owners, into pooled memory; each owner's rows are a
// slice of them. Opaque columns stay empty for the caller to fill by `order` (kept in *order_block, row_count values, if there
// are any; *starts says where each owner's begin).
inline std::vector<Rows> split_rows(Arena& arena, const Rows& rows, const std::vector<int32_t>& keys,
                                    const std::vector<int32_t>& owners, int32_t owner_count, Block* order_block,
                                    std::vector<int64_t>* starts) {
  std::vector<Rows> parts(static_cast<size_t>(owner_count));
  starts->assign(static_cast<size_t>(owner_count) + 1, 0);
#if JETFAST_X86
  const Rows* const batch = &rows;
  if (split_by_scattering(arena, &batch, 1, keys, owners, parts)) return parts;
#endif
  const int64_t count = rows.row_count;
  const int64_t order_bytes = aligned_bytes((count + kOrderSlack) * 4), ids_bytes = aligned_bytes(count * 4);
  Block block = arena.allocate(order_bytes + ids_bytes + group_scratch_bytes(count));
  auto* order = reinterpret_cast<int32_t*>(block.get());
  auto* ids = reinterpret_cast<int32_t*>(block.get() + order_bytes);
  const auto partition_count = static_cast<int32_t>(owners.size());
  assign_row_partitions(arena, rows, keys, partition_count, ids);
  // Columns that hashing has not brought into the cache: one is fetched while rows are grouped, one more with each gather.
  std::vector<ReadAhead> waiting;
  for (size_t index = 0; index < rows.columns.size(); ++index)
    if (std::find(keys.begin(), keys.end(), static_cast<int32_t>(index)) == keys.end())
      waiting.push_back(read_ahead(rows.columns[index].view));
  waiting.resize(rows.columns.size() + 1);
  group_rows(ids, count, owners.data(), partition_count, owner_count, block.get() + order_bytes + ids_bytes, order, starts->data(),
             waiting[0]);
  *order_block = block;
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    Rows& part = parts[static_cast<size_t>(owner)];
    part.row_count = (*starts)[static_cast<size_t>(owner) + 1] - (*starts)[static_cast<size_t>(owner)];
    if (part.row_count == count) {  // all rows are one owner's: nothing moves
      part = rows;
      return parts;
    }
    if (part.row_count > 0) part.columns.reserve(rows.columns.size());
  }
  for (size_t index = 0; index < rows.columns.size(); ++index) {
    const Column& column = rows.columns[index];
    const ReadAhead ahead = waiting[index + 1];
    Column gathered;
    if (column.view.layout != Layout::opaque) gathered = take_column(arena, column, order, count, ahead);
    for (int32_t owner = 0; owner < owner_count; ++owner) {
      Rows& part = parts[static_cast<size_t>(owner)];
      if (part.row_count == 0) continue;
      if (column.view.layout == Layout::opaque) part.columns.emplace_back();
      else part.columns.push_back(slice_column(gathered, (*starts)[static_cast<size_t>(owner)], part.row_count));
    }
  }
  return parts;
}

// As split_rows of each batch (one or more rows) of a run, the parts of an owner put together. False: `parts` stays as it is, split
// them one by one.
inline bool split_run(Arena& arena, const Rows* const* batches, size_t batch_count, const std::vector<int32_t>& keys,
                      const std::vector<int32_t>& owners, int32_t owner_count, std::vector<Rows>* parts) {
#if JETFAST_X86
  std::vector<Rows> found(static_cast<size_t>(owner_count));
  if (split_by_scattering(arena, batches, batch_count, keys, owners, found)) {
    parts->swap(found);
    return true;
  }
#endif
  return false;
}

}  // namespace jetfast
