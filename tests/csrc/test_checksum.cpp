// CRC-32C: golden values, and the same with the instruction and without, wherever the bytes lie.
#include "jetfast/checksum.hpp"

#include <random>
#include <vector>

#include "check.hpp"

using jetfast::Crc32c;

namespace {

void checksums_have_golden_values() {
  const std::vector<uint8_t> zeros(32, 0), digits = {'1', '2', '3', '4', '5', '6', '7', '8', '9'};
  CHECK(Crc32c::extend(0, digits.data(), 9) == 0xE3069283);
  CHECK(Crc32c::extend_by_tables(0, digits.data(), 9) == 0xE3069283);
  CHECK(Crc32c::extend(0, zeros.data(), 32) == 0x8A9136AA);
  CHECK(Crc32c::extend(7, nullptr, 0) == 7);
}

void both_ways_give_the_same(int64_t count) {
  std::mt19937_64 random(static_cast<uint64_t>(count));
  for (size_t offset = 0; offset < 9; ++offset) {
    std::vector<uint8_t> bytes(static_cast<size_t>(count) + offset);  // exactly: a sanitizer sees what is read behind it
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    const auto crc = static_cast<uint32_t>(random());
    CHECK(Crc32c::extend(crc, bytes.data() + offset, count) == Crc32c::extend_by_tables(crc, bytes.data() + offset, count));
  }
}

}  // namespace

int main() {
  checksums_have_golden_values();
  for (const int64_t count : {1, 7, 8, 9, 255, 767, 768, 769, 24575, 24576, 24577, 60001}) both_ways_give_the_same(count);
  return 0;
}
