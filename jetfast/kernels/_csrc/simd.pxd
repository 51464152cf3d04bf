# Declarations of csrc/jetfast/simd.hpp
from libcpp cimport bool as cbool
from libcpp.string cimport string


cdef extern from "jetfast/simd.hpp" namespace "jetfast" nogil:
    cdef enum class SimdLevel "jetfast::SimdLevel":
        plain
        avx2
        avx512

    const char* simd_name(SimdLevel level) noexcept
    SimdLevel available_simd() noexcept
    SimdLevel simd_level() noexcept
    cbool choose_simd(const char* wanted, SimdLevel* level, string* problem) except +
