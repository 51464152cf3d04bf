// The aligner on random orders of barriers and ends: every snapshot aligns exactly once, blocked queues are those that wait.
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <random>
#include <vector>

#include "jetfast/barrier_aligner.hpp"

using jetfast::BarrierAligner;
using Outcome = BarrierAligner::Outcome;

#define CHECK(condition)                                                      \
  do {                                                                        \
    if (!(condition)) {                                                       \
      std::fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);    \
      std::exit(1);                                                           \
    }                                                                         \
  } while (false)

namespace {

void aligns_each_snapshot_once(size_t queue_count, bool exactly_once, uint32_t seed) {
  std::mt19937 random(seed);
  BarrierAligner aligner(queue_count, exactly_once);
  std::vector<bool> done(queue_count);
  size_t live = queue_count;
  for (int64_t snapshot_id = 5; snapshot_id < 45 && live > 0; ++snapshot_id) {
    const bool terminal = snapshot_id == 44;
    std::vector<bool> arrived(queue_count);
    bool aligned = false, begun = false;
    while (!aligned && live > 0) {
      const size_t queue = random() % queue_count;
      if (done[queue]) {
        CHECK(aligner.observe_barrier(queue, snapshot_id, terminal) == Outcome::error_done);
        continue;
      }
      const bool blocked = begun && arrived[queue] && (exactly_once || terminal);
      CHECK(aligner.is_blocked(queue) == blocked);
      const bool ends = !blocked && random() % 60 == 0;
      Outcome outcome;
      if (ends) {
        outcome = aligner.observe_done(queue);
        aligner.check_invariants();
        done[queue] = true;
        --live;
      } else if (arrived[queue]) {
        CHECK(aligner.observe_barrier(queue, snapshot_id, terminal) == Outcome::error_repeated);
        continue;
      } else {
        if (begun) CHECK(aligner.observe_barrier(queue, snapshot_id + 1, terminal) == Outcome::error_id);
        if (begun) CHECK(aligner.observe_barrier(queue, snapshot_id, !terminal) == Outcome::error_terminal);
        outcome = aligner.observe_barrier(queue, snapshot_id, terminal);
        aligner.check_invariants();
        arrived[queue] = begun = true;
      }
      bool all = begun;
      for (size_t other = 0; other < queue_count; ++other) all = all && (arrived[other] || done[other]);
      CHECK((outcome == Outcome::aligned) == all);
      aligned = all;
    }
    if (!aligned) break;
    CHECK(aligner.is_aligning() && aligner.snapshot_id() == snapshot_id);
    CHECK(aligner.release());
    CHECK(!aligner.release());
    aligner.check_invariants();
    CHECK(!aligner.is_aligning());
    for (size_t queue = 0; queue < queue_count; ++queue) CHECK(aligner.is_blocked(queue) == terminal);
  }
}

}  // namespace

int main() {
  for (size_t queue_count : {1, 2, 5, 64}) {
    for (uint32_t seed = 0; seed < 20; ++seed) {
      aligns_each_snapshot_once(queue_count, true, seed);
      aligns_each_snapshot_once(queue_count, false, seed);
    }
  }
  std::puts("test_barrier_aligner: passed");
  return 0;
}
