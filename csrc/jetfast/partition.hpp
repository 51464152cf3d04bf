// From hashes to partitions, and rows grouped by the owner of their partition, order kept.
#pragma once

#include <cstdint>
#include <vector>

#include "jetfast/gather.hpp"
#include "jetfast/hash.hpp"

namespace jetfast {

// ids[i] = Spark's pmod(hash, partition_count). Exact for every hash and every count >= 1: the quotient from the
// multiplication with floor(2^32 / count) is right or one too small.
JETFAST_INLINE void assign_partitions_body(const uint32_t* hashes, int64_t count, uint32_t partition_count, int32_t* ids) {
  // hash + 2^31 is the hash as an unsigned number; what that adds modulo the count is taken off again.
  const uint32_t added = static_cast<uint32_t>((uint64_t{1} << 31) % partition_count);
  const uint64_t reciprocal = (uint64_t{1} << 32) / partition_count;
  const uint32_t correction = added == 0 ? 0 : partition_count - added;
  for (int64_t i = 0; i < count; ++i) {
    const uint32_t shifted = hashes[i] ^ 0x80000000u;
    const auto quotient = static_cast<uint32_t>((shifted * reciprocal) >> 32);
    uint32_t rest = shifted - quotient * partition_count;
    rest = rest >= partition_count ? rest - partition_count : rest;
    // both are below the count (at most 2^31 - 1), so the sum does not wrap
    rest += correction;
    rest = rest >= partition_count ? rest - partition_count : rest;
    ids[i] = static_cast<int32_t>(rest);
  }
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
#if JETFAST_X86
  if (simd_level() == SimdLevel::avx512) return assign_partitions_avx512(hashes, count, divisor, ids);
  if (simd_level() == SimdLevel::avx2) return assign_partitions_avx2(hashes, count, divisor, ids);
#endif
  assign_partitions_plain(hashes, count, divisor, ids);
}

// Row numbers grouped by owner, ascending within each: owner p's are order[starts[p]] .. order[starts[p + 1] - 1].
// `starts` has owner_count + 1 values.
inline void group_rows(const int32_t* partition_ids, int64_t count, const int32_t* owners, int32_t owner_count, int32_t* row_owners,
                       int32_t* order, int64_t* starts) {
  std::vector<int64_t> cursor(static_cast<size_t>(owner_count), 0);
  for (int64_t i = 0; i < count; ++i) {
    row_owners[i] = owners[partition_ids[i]];
    ++cursor[static_cast<size_t>(row_owners[i])];
  }
  int64_t start = 0;
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    starts[owner] = start;
    start += cursor[static_cast<size_t>(owner)];
    cursor[static_cast<size_t>(owner)] = starts[owner];
  }
  starts[owner_count] = start;
  for (int64_t i = 0; i < count; ++i) order[cursor[static_cast<size_t>(row_owners[i])]++] = static_cast<int32_t>(i);
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

// The rows of each owner. Columns are gathered once, in the order of owners, into pooled memory; each owner's rows are a
// slice of them. Opaque columns stay empty for the caller to fill by `order` (kept in *order_block, row_count values).
inline std::vector<Rows> split_rows(Arena& arena, const Rows& rows, const std::vector<int32_t>& keys,
                                    const std::vector<int32_t>& owners, int32_t owner_count, Block* order_block,
                                    std::vector<int64_t>* starts) {
  const int64_t count = rows.row_count;
  Block block = arena.allocate(aligned_bytes(count * 4) * 3);
  auto* order = reinterpret_cast<int32_t*>(block.get());
  auto* ids = reinterpret_cast<int32_t*>(block.get() + aligned_bytes(count * 4));
  auto* row_owners = reinterpret_cast<int32_t*>(block.get() + aligned_bytes(count * 4) * 2);
  assign_row_partitions(arena, rows, keys, static_cast<int32_t>(owners.size()), ids);
  starts->assign(static_cast<size_t>(owner_count) + 1, 0);
  group_rows(ids, count, owners.data(), owner_count, row_owners, order, starts->data());
  *order_block = block;
  std::vector<Rows> parts(static_cast<size_t>(owner_count));
  for (int32_t owner = 0; owner < owner_count; ++owner) {
    Rows& part = parts[static_cast<size_t>(owner)];
    part.row_count = (*starts)[static_cast<size_t>(owner) + 1] - (*starts)[static_cast<size_t>(owner)];
    if (part.row_count == count) {  // all rows are one owner's: nothing moves
      part = rows;
      return parts;
    }
    if (part.row_count > 0) part.columns.reserve(rows.columns.size());
  }
  for (const Column& column : rows.columns) {
    Column gathered;
    if (column.view.layout != Layout::opaque) gathered = take_column(arena, column, order, count);
    for (int32_t owner = 0; owner < owner_count; ++owner) {
      Rows& part = parts[static_cast<size_t>(owner)];
      if (part.row_count == 0) continue;
      if (column.view.layout == Layout::opaque) part.columns.emplace_back();
      else part.columns.push_back(slice_column(gathered, (*starts)[static_cast<size_t>(owner)], part.row_count));
    }
  }
  return parts;
}

}  // namespace jetfast
