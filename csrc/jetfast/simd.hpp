// Which vector instructions this process uses: chosen once, at run time, because a wheel does not know its machine.
//
// A hot loop is written once as an always-inlined body and compiled into one function per level with JETFAST_TARGET_*;
// elsewhere than on x86-64 with GCC or Clang only the plain one exists. JETFAST_SIMD=plain|avx2|avx512 forces a level.
#pragma once

#include <cstdlib>
#include <initializer_list>
#include <string>

#if defined(__x86_64__) && defined(__GNUC__)
#define JETFAST_X86 1
#define JETFAST_TARGET_AVX2 __attribute__((target("avx2,bmi,bmi2,fma,popcnt")))
#if defined(__clang__)  // does not know this wish, and would ignore the whole list for it
#define JETFAST_WIDE_VECTORS ""
#else
#define JETFAST_WIDE_VECTORS ",prefer-vector-width=512"
#endif
#define JETFAST_TARGET_AVX512 \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,bmi,bmi2,fma,popcnt" JETFAST_WIDE_VECTORS)))
#define JETFAST_TARGET_AVX512_VBMI2                                                                          \
  __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vbmi,avx512vbmi2,avx2,bmi,bmi2,fma,popcnt" \
                        JETFAST_WIDE_VECTORS)))
#include <immintrin.h>
#else
#define JETFAST_X86 0
#endif

#if defined(__GNUC__)
#define JETFAST_INLINE inline __attribute__((always_inline))
#elif defined(_MSC_VER)
#define JETFAST_INLINE __forceinline
#else
#define JETFAST_INLINE inline
#endif

// Four steps of the loop that follows are written out: how fast short loops run depends less on where they happen to lie then.
#if defined(__clang__)
#define JETFAST_UNROLL_4 _Pragma("unroll 4")
#elif defined(__GNUC__)
#define JETFAST_UNROLL_4 _Pragma("GCC unroll 4")
#else
#define JETFAST_UNROLL_4
#endif

namespace jetfast {

enum class SimdLevel : int { plain = 0, avx2 = 1, avx512 = 2 };

inline const char* simd_name(SimdLevel level) {
  return level == SimdLevel::avx512 ? "avx512" : level == SimdLevel::avx2 ? "avx2" : "plain";
}

// The best level that this machine has.
inline SimdLevel available_simd() {
#if JETFAST_X86
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("fma")) {
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
      return SimdLevel::avx512;
    return SimdLevel::avx2;
  }
#endif
  return SimdLevel::plain;
}

// Byte permutations and 16-bit compression beyond the avx512 level (Ice Lake, Zen 4 and later).
inline bool available_vbmi2() {
#if JETFAST_X86
  return available_simd() == SimdLevel::avx512 && __builtin_cpu_supports("avx512vbmi") && __builtin_cpu_supports("avx512vbmi2");
#else
  return false;
#endif
}

// The level for a value of JETFAST_SIMD (nullptr or "": the best there is). False, with the reason in *problem, if the
// value is unknown or the machine lacks it; *level is then plain.
inline bool choose_simd(const char* wanted, SimdLevel* level, std::string* problem) {
  const SimdLevel available = available_simd();
  *level = available;
  if (wanted == nullptr || wanted[0] == '\0') return true;
  const std::string text = wanted;
  for (SimdLevel candidate : {SimdLevel::plain, SimdLevel::avx2, SimdLevel::avx512}) {
    if (text != simd_name(candidate)) continue;
    *level = candidate;
    if (candidate <= available) return true;
    *level = SimdLevel::plain;
    *problem = "JETFAST_SIMD=" + text + " needs instructions that this machine lacks; the best it has is " + simd_name(available);
    return false;
  }
  *level = SimdLevel::plain;
  *problem = "JETFAST_SIMD must be plain, avx2 or avx512, got '" + text + "'";
  return false;
}

// The level of this process. A wrong JETFAST_SIMD means plain here; importing jetfast.kernels.partitioning reports it.
inline SimdLevel simd_level() {
  static const SimdLevel level = [] {
    SimdLevel chosen;
    std::string problem;
    choose_simd(std::getenv("JETFAST_SIMD"), &chosen, &problem);
    return chosen;
  }();
  return level;
}

inline bool use_vbmi2() {
  static const bool chosen = simd_level() == SimdLevel::avx512 && available_vbmi2();
  return chosen;
}

}  // namespace jetfast
