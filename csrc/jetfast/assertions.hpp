// Assertions: JETFAST_CHECK where the code relies on something, JETFAST_INVARIANT in `check_invariants()` of tables and queues.
//
// JETFAST_CHECK states a precondition or postcondition on a hot path. It aborts with file and line in debug, sanitizer and fuzz
// builds (all without NDEBUG), and costs nothing in a release build.
// JETFAST_INVARIANT is evaluated in every build and throws std::logic_error: `check_invariants()` reads a whole structure, so
// only tests, fuzzers and debug builds call it.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>

namespace jetfast {

[[noreturn]] inline void check_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: JETFAST_CHECK(%s) failed\n", file, line, condition);
  std::abort();
}

[[noreturn]] inline void invariant_failed(const char* condition, const char* file, int line) {
  throw std::logic_error(std::string(file) + ":" + std::to_string(line) + ": invariant violated: " + condition);
}

}  // namespace jetfast

#if defined(NDEBUG)
#define JETFAST_CHECK(condition) static_cast<void>(sizeof(!(condition)))
#else
#define JETFAST_CHECK(condition) \
  ((condition) ? static_cast<void>(0) : ::jetfast::check_failed(#condition, __FILE__, __LINE__))
#endif

#define JETFAST_INVARIANT(condition) \
  ((condition) ? static_cast<void>(0) : ::jetfast::invariant_failed(#condition, __FILE__, __LINE__))
