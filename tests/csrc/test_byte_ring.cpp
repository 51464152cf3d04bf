// The ring between two processes: what is read is what was written, in order; spoilt positions are noticed, nobody goes astray.
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <thread>
#include <vector>

#include "check.hpp"
#include "jetfast/byte_ring.hpp"

using jetfast::kRingBroken;
using jetfast::kRingHeadBytes;
using jetfast::RingHead;
using jetfast::RingReader;
using jetfast::RingWriter;

namespace {

// Memory as two processes would map it.
struct Memory {
  explicit Memory(int64_t capacity) : capacity(capacity), bytes(new (std::align_val_t(64)) uint8_t[kRingHeadBytes + capacity]()) {}
  ~Memory() { operator delete[](bytes, std::align_val_t(64)); }
  RingHead* head() { return reinterpret_cast<RingHead*>(bytes); }
  int64_t capacity;
  uint8_t* bytes;
};

uint8_t byte_of(uint64_t position) { return static_cast<uint8_t>(position * 167 >> 3); }

void holds_its_capacity_and_no_more() {
  Memory memory(64);
  RingWriter writer(memory.bytes, 64);
  RingReader reader(memory.bytes, 64);
  uint64_t put = 0, taken = 0;
  for (int64_t size : {1, 63, 64, 7, 40, 64}) {
    CHECK(reader.readable() == 0 && writer.room(64) == 64);
    std::vector<uint8_t> bytes(size), found(size);
    for (uint8_t& byte : bytes) byte = byte_of(put++);
    writer.put(bytes.data(), size);
    CHECK(reader.readable() == 0);
    writer.publish();
    CHECK(reader.readable() == size && writer.room(64) == 64 - size);
    writer.check_invariants();
    reader.check_invariants();
    reader.take(found.data(), size);
    for (uint8_t byte : found) CHECK(byte == byte_of(taken++));
  }
}

void two_threads_hand_over_everything(int64_t capacity) {
  constexpr uint64_t total = 3'000'000;
  Memory memory(capacity);
  std::thread producer([&] {
    RingWriter writer(memory.bytes, capacity);
    std::vector<uint8_t> bytes(capacity);
    uint64_t put = 0;
    while (put < total) {
      const int64_t room = writer.room(1);
      CHECK(room >= 0 && room <= capacity);
      const int64_t count = std::min<int64_t>({room, static_cast<int64_t>(put % 97 + 1), static_cast<int64_t>(total - put)});
      if (count == 0) std::this_thread::yield();
      for (int64_t index = 0; index < count; ++index) bytes[index] = byte_of(put + index);
      writer.put(bytes.data(), count);
      put += count;
      writer.publish();
    }
  });
  RingReader reader(memory.bytes, capacity);
  std::vector<uint8_t> bytes(capacity);
  uint64_t taken = 0;
  while (taken < total) {
    const int64_t readable = reader.readable();
    CHECK(readable >= 0 && readable <= capacity);
    const int64_t count = std::min<int64_t>(readable, static_cast<int64_t>(taken % 61 + 1));
    if (count == 0) std::this_thread::yield();
    reader.take(bytes.data(), count);
    for (int64_t index = 0; index < count; ++index) CHECK(bytes[index] == byte_of(taken + index));
    taken += count;
  }
  producer.join();
  CHECK(reader.readable() == 0);
}

void spoilt_positions_are_noticed() {
  Memory memory(64);
  RingWriter writer(memory.bytes, 64);
  RingReader reader(memory.bytes, 64);
  for (uint64_t position : {uint64_t{65}, uint64_t{1} << 63, ~uint64_t{0}}) {
    memory.head()->written = position;
    CHECK(reader.readable() == kRingBroken);
    memory.head()->taken = position;  // more than was ever written
    CHECK(writer.room(65) == kRingBroken);
  }
}

}  // namespace

int main() {
  holds_its_capacity_and_no_more();
  for (int64_t capacity : {64, 256, 4096}) two_threads_hand_over_everything(capacity);
  spoilt_positions_are_noticed();
}
