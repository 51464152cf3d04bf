// Turns in running Python: one at a time among those that take turns, advice only, and given back.
#include <atomic>
#include <thread>
#include <vector>

#include "check.hpp"
#include "jetfast/python_turn.hpp"

using jetfast::PythonTurn;

namespace {

void who_takes_no_turns_never_waits() {
  std::atomic<bool> taken{true};
  PythonTurn turn(&taken);
  CHECK(turn.take() == 0 && !turn.is_held());
  turn.give();
  CHECK(taken);
}

void a_turn_is_waited_for_in_vain_for_a_while_and_then_done_without() {
  if (std::thread::hardware_concurrency() < 2) return;  // there nobody takes turns
  std::atomic<bool> taken{false};
  PythonTurn first(&taken), second(&taken);
  first.join();
  second.join();
  CHECK(first.take() == 0 && first.is_held());
  CHECK(first.take() == 0 && first.is_held());
  CHECK(second.take() > 0 && !second.is_held());
  second.give();  // not the other's
  CHECK(taken);
  first.give();
  CHECK(second.take() == 0 && second.is_held());
  second.leave();
  CHECK(!taken && !second.is_held());
  CHECK(second.take() == 0 && !second.is_held());
}

void threads_hold_it_one_at_a_time() {
  std::atomic<bool> taken{false};
  std::atomic<int> holders{0};
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number)
    threads.emplace_back([&] {
      PythonTurn turn(&taken);
      turn.join();
      for (int round = 0; round < 2000; ++round) {
        turn.take();
        if (!turn.is_held()) continue;
        CHECK(holders.fetch_add(1) == 0);
        holders.fetch_sub(1);
        turn.give();
      }
      turn.leave();
    });
  for (std::thread& thread : threads) thread.join();
  CHECK(!taken);
}

}  // namespace

int main() {
  who_takes_no_turns_never_waits();
  a_turn_is_waited_for_in_vain_for_a_while_and_then_done_without();
  threads_hold_it_one_at_a_time();
  return 0;
}
