// Hashes against golden values printed by PySpark 4.3.0, every vector variant against the plain one, and partitions.
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "check.hpp"
#include "jetfast/hash.hpp"
#include "jetfast/partition.hpp"

using namespace jetfast;

namespace {

int32_t text_hash(const std::string& text) {
  return static_cast<int32_t>(hash_bytes(reinterpret_cast<const uint8_t*>(text.data()), static_cast<int64_t>(text.size()), kHashSeed));
}

void equals_spark() {
  CHECK(static_cast<int32_t>(hash_int(1, kHashSeed)) == -559580957);
  CHECK(static_cast<int32_t>(hash_int(-1, kHashSeed)) == -1604776387);
  CHECK(static_cast<int32_t>(hash_long(1, kHashSeed)) == -1712319331);
  CHECK(static_cast<int32_t>(hash_long(INT64_MAX, kHashSeed)) == -1604625029);
  CHECK(text_hash("") == 142593372);
  CHECK(text_hash("Spark") == 228093765);
  CHECK(text_hash("\xc3\xb1") == -2048832643);  // bytes above 127 are sign-extended
  CHECK(static_cast<int32_t>(hash_long(double_bits(std::numeric_limits<double>::quiet_NaN()), kHashSeed)) == -1281358385);
  CHECK(double_bits(-0.0) == double_bits(0.0) && float_bits(-0.0f) == 0);
  CHECK(float_bits(-std::numeric_limits<float>::quiet_NaN()) == 0x7fc00000);
  const int64_t minus_128[2] = {-128, -1}, plus_128[2] = {128, 0};
  CHECK(static_cast<int32_t>(hash_big_integer(reinterpret_cast<const uint8_t*>(minus_128), 16, kHashSeed)) == 775851899);
  CHECK(static_cast<int32_t>(hash_big_integer(reinterpret_cast<const uint8_t*>(plus_128), 16, kHashSeed)) == -544401882);
}

void variants_agree() {
  std::mt19937_64 random(1);
  for (int64_t count : {0, 1, 3, 7, 8, 9, 15, 16, 17, 31, 32, 33, 64, 100, 1000}) {
    std::vector<int64_t> longs(static_cast<size_t>(count));
    std::vector<int32_t> ints(longs.size()), plain_ids(longs.size());
    std::vector<uint32_t> seeds(longs.size());
    for (size_t i = 0; i < longs.size(); ++i) {
      longs[i] = static_cast<int64_t>(random());
      ints[i] = static_cast<int32_t>(random());
      seeds[i] = static_cast<uint32_t>(random());
    }
    auto long_hashes = seeds, int_hashes = seeds;
    hash_int64_plain(longs.data(), count, long_hashes.data());
    hash_int32_plain(ints.data(), count, int_hashes.data());
    for (size_t i = 0; i < longs.size(); ++i) {
      CHECK(long_hashes[i] == hash_long(longs[i], seeds[i]));
      CHECK(int_hashes[i] == hash_int(ints[i], seeds[i]));
    }
    for (uint32_t partitions : {2u, 3u, 271u, 1000u, 65536u, 2147483647u}) {
      assign_partitions_plain(long_hashes.data(), count, partitions, plain_ids.data());
      for (size_t i = 0; i < longs.size(); ++i) {
        const int64_t remainder = static_cast<int32_t>(long_hashes[i]) % static_cast<int64_t>(partitions);
        CHECK(plain_ids[i] == (remainder < 0 ? remainder + partitions : remainder));
      }
#if JETFAST_X86
      auto ids = plain_ids;
      if (available_simd() >= SimdLevel::avx2) {
        assign_partitions_avx2(long_hashes.data(), count, partitions, ids.data());
        CHECK(ids == plain_ids);
      }
      if (available_simd() >= SimdLevel::avx512) {
        assign_partitions_avx512(long_hashes.data(), count, partitions, ids.data());
        CHECK(ids == plain_ids);
      }
#endif
    }
#if JETFAST_X86
    auto hashes = seeds;
    if (available_simd() >= SimdLevel::avx2) {
      hash_int64_avx2(longs.data(), count, hashes.data());
      CHECK(hashes == long_hashes);
      hashes = seeds;
      hash_int32_avx2(ints.data(), count, hashes.data());
      CHECK(hashes == int_hashes);
    }
    if (available_simd() >= SimdLevel::avx512) {
      hashes = seeds;
      hash_int64_avx512(longs.data(), count, hashes.data());
      CHECK(hashes == long_hashes);
      hashes = seeds;
      hash_int32_avx512(ints.data(), count, hashes.data());
      CHECK(hashes == int_hashes);
    }
#endif
  }
}

void names_of_variants_are_checked() {
  SimdLevel level;
  std::string problem;
  CHECK(choose_simd(nullptr, &level, &problem) && level == available_simd());
  CHECK(choose_simd("", &level, &problem) && level == available_simd());
  CHECK(choose_simd("plain", &level, &problem) && level == SimdLevel::plain);
  CHECK(!choose_simd("sse2", &level, &problem) && problem.find("sse2") != std::string::npos && level == SimdLevel::plain);
}

void extremes_do_not_overflow() {
  ColumnView column;
  column.kind = Kind::timestamp;
  column.layout = Layout::fixed;
  column.width = 8;
  column.unit = TimeUnit::second;
  const int64_t values[3] = {INT64_MIN, INT64_MAX, -1};
  column.values = values;
  column.row_count = 3;
  uint32_t hashes[3] = {kHashSeed, kHashSeed, kHashSeed};
  hash_column(column, true, kHashSeed, hashes, nullptr);
  CHECK(hashes[2] == hash_long(-1000000, kHashSeed));
  int64_t times[3];
  CHECK(convert_to_microseconds(column, times) == 0);
  CHECK(floor_divide(-1, 1000) == -1 && floor_divide(-1000, 1000) == -1 && floor_divide(999, 1000) == 0);
}

}  // namespace

int main() {
  equals_spark();
  variants_agree();
  names_of_variants_are_checked();
  extremes_do_not_overflow();
  return 0;
}
