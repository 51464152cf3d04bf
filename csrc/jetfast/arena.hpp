// Pooled, recycled memory: 64-byte-aligned blocks in power-of-two size classes, handed out as counted handles.
//
// The first touch of a fresh page costs more than the work done on it, so a block goes back to a free list when its last
// handle goes and is given out again while it is still warm (last in, first out), by preference to the thread that gave it back:
// it is warm in the caches of that thread's core. Blocks of 2 MB and more ask for huge pages.
// Handles may be dropped on any thread. An Arena must outlive every block it gave out.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <new>
#include <vector>

#include "jetfast/assertions.hpp"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if defined(_MSC_VER)
#include <malloc.h>
#endif
#if defined(__SANITIZE_ADDRESS__)  // GCC
#define JETFAST_ADDRESS_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)  // Clang
#define JETFAST_ADDRESS_SANITIZER 1
#endif
#endif
#if defined(JETFAST_ADDRESS_SANITIZER)
#include <sanitizer/asan_interface.h>
#endif

namespace jetfast {

constexpr int64_t kAlignment = 64;

// Smallest multiple of 64 that holds `bytes`: where the next part of a block may start.
inline int64_t aligned_bytes(int64_t bytes) { return (bytes + kAlignment - 1) & ~(kAlignment - 1); }

struct ArenaStatistics {
  int64_t bytes_in_use;   // of blocks that have a handle (whole blocks)
  int64_t bytes_pooled;   // of blocks that wait to be used again
  int64_t allocations;    // blocks taken from the system, ever
  int64_t reuses;         // blocks taken from the pool, ever
};

using Block = std::shared_ptr<uint8_t>;

class Arena {
 public:
  // Blocks beyond `pooled_bytes_max` go back to the system instead of the pool.
  explicit Arena(int64_t pooled_bytes_max = int64_t{512} << 20) : pooled_bytes_max_(pooled_bytes_max) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  ~Arena() { release_pooled(); }

  // A block of at least `bytes` bytes (its content is whatever was there), also for 0 bytes. Throws std::bad_alloc.
  Block allocate(int64_t bytes) {
    const int index = class_of(bytes);
    uint8_t* memory = take_pooled(index);
    if (memory == nullptr) memory = from_system(index);
    bytes_in_use_.fetch_add(class_bytes(index), std::memory_order_relaxed);
#if defined(JETFAST_ADDRESS_SANITIZER)  // nobody may count on more than was asked for
    ASAN_POISON_MEMORY_REGION(memory + bytes, class_bytes(index) - bytes);
#endif
    // If the control block cannot be allocated, shared_ptr calls the deleter: nothing leaks.
    return Block(memory, [this, index](uint8_t* returned) { give_back(returned, index); });
  }

  // No count is negative, and what waits in the free lists is what is counted as pooled. Only while no other thread uses it.
  void check_invariants() {
    int64_t pooled = 0;
    for (int index = 0; index < kClassCount; ++index)
      for (FreeList& list : classes_[index]) {
        std::lock_guard<std::mutex> guard(list.mutex);
        pooled += static_cast<int64_t>(list.blocks.size()) * class_bytes(index);
      }
    const ArenaStatistics now = statistics();
    JETFAST_INVARIANT(pooled == now.bytes_pooled);
    JETFAST_INVARIANT(now.bytes_in_use >= 0 && now.allocations >= 0 && now.reuses >= 0);
  }

  ArenaStatistics statistics() const {
    return {bytes_in_use_.load(std::memory_order_relaxed), bytes_pooled_.load(std::memory_order_relaxed),
            allocations_.load(std::memory_order_relaxed), reuses_.load(std::memory_order_relaxed)};
  }

  // What a block of so many bytes takes.
  static int64_t block_bytes(int64_t bytes) { return class_bytes(class_of(bytes)); }

  void set_pooled_bytes_max(int64_t bytes) { pooled_bytes_max_.store(bytes, std::memory_order_relaxed); }

  // Give every waiting block back to the system.
  void release_pooled() {
    for (int index = 0; index < kClassCount; ++index)
      for (FreeList& list : classes_[index]) {
        std::vector<uint8_t*> blocks;
        {
          std::lock_guard<std::mutex> guard(list.mutex);
          blocks.swap(list.blocks);
        }
        for (uint8_t* block : blocks) {
          bytes_pooled_.fetch_sub(class_bytes(index), std::memory_order_relaxed);
          to_system(block, index);
        }
      }
  }

 private:
  static constexpr int kSmallestPower = 8;  // 256 bytes
  static constexpr int kHugePagePower = 21;  // 2 MB
  static constexpr int kClassCount = 63 - kSmallestPower;

  static constexpr size_t kFreeLists = 8;  // of a size class, which threads share out among themselves

  struct FreeList {
    std::mutex mutex;
    std::vector<uint8_t*> blocks;
  };

  // The place of this thread's free lists: threads are numbered as they come.
  static size_t list_of_this_thread() {
    static std::atomic<size_t> threads{0};
    static thread_local const size_t number = threads.fetch_add(1, std::memory_order_relaxed);
    return number % kFreeLists;
  }

  static int64_t class_bytes(int index) { return int64_t{1} << (index + kSmallestPower); }

  static int class_of(int64_t bytes) {
    if (bytes < 0) throw std::bad_alloc();
    int index = 0;
    while (index < kClassCount && class_bytes(index) < bytes) ++index;
    if (index == kClassCount) throw std::bad_alloc();
    return index;
  }

  uint8_t* take_pooled(int index) {
    const size_t own = list_of_this_thread();
    uint8_t* memory = nullptr;
    for (size_t turn = 0; turn < kFreeLists && memory == nullptr; ++turn) {
      FreeList& list = classes_[index][(own + turn) % kFreeLists];
      std::lock_guard<std::mutex> guard(list.mutex);
      if (list.blocks.empty()) continue;
      memory = list.blocks.back();
      list.blocks.pop_back();
    }
    if (memory == nullptr) return nullptr;
    bytes_pooled_.fetch_sub(class_bytes(index), std::memory_order_relaxed);
    reuses_.fetch_add(1, std::memory_order_relaxed);
#if defined(JETFAST_ADDRESS_SANITIZER)
    ASAN_UNPOISON_MEMORY_REGION(memory, class_bytes(index));
#endif
    return memory;
  }

  void give_back(uint8_t* memory, int index) noexcept {
    JETFAST_CHECK(memory != nullptr);
    JETFAST_CHECK(reinterpret_cast<uintptr_t>(memory) % kAlignment == 0);
    const int64_t bytes = class_bytes(index);
    bytes_in_use_.fetch_sub(bytes, std::memory_order_relaxed);
    const int64_t pooled = bytes_pooled_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (pooled <= pooled_bytes_max_.load(std::memory_order_relaxed)) {
#if defined(JETFAST_ADDRESS_SANITIZER)
      ASAN_POISON_MEMORY_REGION(memory, bytes);
#endif
      try {
        FreeList& list = classes_[index][list_of_this_thread()];
        std::lock_guard<std::mutex> guard(list.mutex);
        list.blocks.push_back(memory);
        return;
      } catch (const std::bad_alloc&) {
        // no room to remember it: let the system have it
      }
    }
    bytes_pooled_.fetch_sub(bytes, std::memory_order_relaxed);
    to_system(memory, index);
  }

  uint8_t* from_system(int index) {
    const size_t bytes = static_cast<size_t>(class_bytes(index));
    const bool huge = index + kSmallestPower >= kHugePagePower;
    const size_t alignment = huge ? size_t{1} << kHugePagePower : static_cast<size_t>(kAlignment);
#if defined(_MSC_VER)
    void* memory = _aligned_malloc(bytes, alignment);
#else
    void* memory = std::aligned_alloc(alignment, bytes);
#endif
    if (memory == nullptr) throw std::bad_alloc();
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: it may be refused
#endif
    allocations_.fetch_add(1, std::memory_order_relaxed);
    return static_cast<uint8_t*>(memory);
  }

  static void to_system(uint8_t* memory, int index) noexcept {
#if defined(JETFAST_ADDRESS_SANITIZER)
    ASAN_UNPOISON_MEMORY_REGION(memory, class_bytes(index));
#else
    (void)index;
#endif
#if defined(_MSC_VER)
    _aligned_free(memory);
#else
    std::free(memory);
#endif
  }

  std::atomic<int64_t> pooled_bytes_max_;
  std::atomic<int64_t> bytes_in_use_{0}, bytes_pooled_{0}, allocations_{0}, reuses_{0};
  std::array<std::array<FreeList, kFreeLists>, kClassCount> classes_;
};

// For vectors that are read at random: large ones ask for huge pages, which spares most of the misses of the TLB.
template <typename T>
struct HugePageAllocator {
  using value_type = T;
  static constexpr size_t kHugeBytes = size_t{1} << 21;

  HugePageAllocator() = default;
  template <typename U>
  HugePageAllocator(const HugePageAllocator<U>&) {}

  T* allocate(size_t count) {
    const size_t bytes = count * sizeof(T);
    const bool huge = bytes >= kHugeBytes;
    const size_t alignment = huge ? kHugeBytes : static_cast<size_t>(kAlignment);
    void* memory = ::operator new(bytes, std::align_val_t(alignment));
#if defined(__linux__) && defined(MADV_HUGEPAGE)
    if (huge) madvise(memory, bytes, MADV_HUGEPAGE);  // a wish: it may be refused
#endif
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t count) noexcept {
    const bool huge = count * sizeof(T) >= kHugeBytes;
    ::operator delete(memory, std::align_val_t(huge ? kHugeBytes : static_cast<size_t>(kAlignment)));
  }
  template <typename U>
  bool operator==(const HugePageAllocator<U>&) const { return true; }
  template <typename U>
  bool operator!=(const HugePageAllocator<U>&) const { return false; }
};

template <typename T>
using HugeVector = std::vector<T, HugePageAllocator<T>>;

}  // namespace jetfast
