// The arena: aligned, recycled, bounded, exact in its books, and safe to use and drop from many threads at once.
#include <cstring>
#include <thread>
#include <vector>

#include "check.hpp"
#include "jetfast/arena.hpp"

using jetfast::Arena;
using jetfast::Block;

namespace {

void blocks_are_aligned_and_large_enough() {
  Arena arena;
  for (int64_t bytes : {0, 1, 63, 64, 255, 256, 257, 4096, 65537, 1 << 20, (2 << 20) + 1}) {
    Block block = arena.allocate(bytes);
    CHECK(reinterpret_cast<uintptr_t>(block.get()) % 64 == 0);
    std::memset(block.get(), 1, static_cast<size_t>(bytes));
  }
  CHECK(throws<std::bad_alloc>([&] { arena.allocate(-1); }));
  CHECK(throws<std::bad_alloc>([&] { arena.allocate(INT64_MAX); }));
  CHECK(jetfast::aligned_bytes(0) == 0 && jetfast::aligned_bytes(1) == 64 && jetfast::aligned_bytes(64) == 64);
}

void the_last_block_returned_is_the_next_given() {
  Arena arena;
  uint8_t* first = arena.allocate(1000).get();
  Block again = arena.allocate(513);  // same class
  CHECK(again.get() == first);
  const auto statistics = arena.statistics();
  CHECK(statistics.allocations == 1 && statistics.reuses == 1);
  CHECK(statistics.bytes_in_use == 1024 && statistics.bytes_pooled == 0);
}

void a_thread_gets_back_what_it_returned_before_what_others_did() {
  Arena arena;
  Block others = arena.allocate(1000);
  Block own = arena.allocate(1000);
  const uint8_t* const own_memory = own.get();
  const uint8_t* const others_memory = others.get();
  own.reset();
  std::thread([&others] { others.reset(); }).join();
  const Block first = arena.allocate(1000);
  const Block second = arena.allocate(1000);
  CHECK(first.get() == own_memory && second.get() == others_memory);
  CHECK(arena.statistics().allocations == 2);
}

void the_pool_is_bounded() {
  Arena arena(4096);
  {
    std::vector<Block> blocks;
    for (int i = 0; i < 10; ++i) blocks.push_back(arena.allocate(1024));
    CHECK(arena.statistics().bytes_in_use == 10240);
  }
  CHECK(arena.statistics().bytes_pooled == 4096);
  arena.check_invariants();
  arena.release_pooled();
  arena.check_invariants();
  CHECK(arena.statistics().bytes_pooled == 0 && arena.statistics().bytes_in_use == 0);
}

void copies_of_a_handle_keep_its_block() {
  Arena arena;
  Block block = arena.allocate(300);
  std::shared_ptr<const void> other = block;
  block.reset();
  CHECK(arena.statistics().bytes_in_use == 512);
  other.reset();
  CHECK(arena.statistics().bytes_in_use == 0);
}

void threads_share_it() {
  Arena arena(1 << 20);
  std::vector<Block> handed_over(64);
  for (size_t i = 0; i < handed_over.size(); ++i) {
    handed_over[i] = arena.allocate(500);
    std::memset(handed_over[i].get(), static_cast<int>(i), 500);
  }
  std::vector<std::thread> threads;
  for (int worker = 0; worker < 4; ++worker)
    threads.emplace_back([&arena, &handed_over, worker] {
      for (int round = 0; round < 2000; ++round) {
        const int64_t bytes = 1 + (round * 37 + worker * 11) % 5000;
        Block block = arena.allocate(bytes);
        std::memset(block.get(), worker, static_cast<size_t>(bytes));
        for (int64_t i = 0; i < bytes; i += 100) CHECK(block.get()[i] == worker);
        if (round % 500 == 0) arena.release_pooled();
      }
      for (size_t i = static_cast<size_t>(worker); i < handed_over.size(); i += 4) {
        CHECK(handed_over[i].get()[499] == i);
        handed_over[i].reset();  // on another thread than the one that allocated it
      }
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(arena.statistics().bytes_in_use == 0);
  CHECK(arena.statistics().bytes_pooled <= 1 << 20);
}

}  // namespace

int main() {
  blocks_are_aligned_and_large_enough();
  the_last_block_returned_is_the_next_given();
  a_thread_gets_back_what_it_returned_before_what_others_did();
  the_pool_is_bounded();
  copies_of_a_handle_keep_its_block();
  threads_share_it();
  return 0;
}
