// The queue between two threads: what arrives is what was sent, in order, whole; memory is returned to the budget.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <thread>

#include "jetfast/spsc_queue.hpp"

using jetfast::MemoryBudget;
using jetfast::SpscQueue;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
      std::exit(1);                                                           \
    }                                                                         \
  } while (false)

namespace {

struct Item {
  uint64_t* number;  // written by the producer through the pointer: publishing must make it visible
  uint64_t check;
};

void is_bounded_and_in_order() {
  for (size_t capacity : {1, 2, 3, 7, 8}) {
    SpscQueue<Item> queue(capacity);
    CHECK(queue.front() == nullptr && queue.drained());
    for (uint64_t round = 0; round < 40; ++round) {
      size_t put = 0;
      while (queue.offer({nullptr, round * 100 + put})) ++put;
      CHECK(put == capacity && queue.size() == capacity && !queue.drained());
      for (size_t taken = 0; taken < put; ++taken) {
        CHECK(queue.front()->check == round * 100 + taken);
        queue.pop();
      }
      CHECK(queue.size() == 0);
      queue.check_invariants();
    }
  }
}

void two_threads_hand_over_everything(size_t capacity) {
  constexpr uint64_t count = 200'000;
  SpscQueue<Item> queue(capacity);
  MemoryBudget budget(64);
  std::thread producer([&] {
    for (uint64_t number = 0; number < count; ++number) {
      const Item item{new uint64_t(number), number ^ 0x9e3779b97f4a7c15u};
      while (budget.exhausted() && !queue.drained()) std::this_thread::yield();
      budget.add(static_cast<int64_t>(number % 5));
      while (!queue.offer(item)) std::this_thread::yield();
    }
  });
  for (uint64_t number = 0; number < count; ++number) {
    Item* item = queue.front();
    while (item == nullptr) {
      std::this_thread::yield();
      item = queue.front();
    }
    CHECK(*item->number == number && item->check == (number ^ 0x9e3779b97f4a7c15u));
    CHECK(queue.size() >= 1 && queue.size() <= capacity);
    delete item->number;
    budget.add(-static_cast<int64_t>(number % 5));
    queue.pop();
  }
  producer.join();
  CHECK(queue.front() == nullptr);
  CHECK(budget.used() == 0);
}

}  // namespace

int main() {
  is_bounded_and_in_order();
  for (size_t capacity : {1, 3, 64}) two_threads_hand_over_everything(capacity);
  std::puts("test_spsc_queue: passed");
  return 0;
}
