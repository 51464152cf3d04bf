// What one key holds per frame for each value column, as plain arrays: how rows enter, how two parts combine and how one
// leaves again.
//
// A value is first widened to one of four classes, so that the loops exist four times and not for every Arrow type:
//   i64   signed integers, booleans, dates, times, decimal32/64 (unscaled)      u64   unsigned integers
//   f64   floats                                                               i128  decimal128 (unscaled)
// Fields that are exact (counts, integer sums) can be deducted; the others (float sums, minimum, maximum, moments) only
// combine, and the window keeps two stacks of them (running_window.hpp).
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include "jetfast/prefetch.hpp"
#include "jetfast/simd.hpp"

namespace jetfast {

// 128-bit integers are GCC's and Clang's (clang-cl's on Windows).
using int128 = __int128;
using uint128 = unsigned __int128;

enum class ValueClass : uint8_t { i64, u64, f64, i128 };

enum class FieldKind : uint8_t {
  rows,    // rows of the key
  nulls,   // rows whose value is null
  sum128,  // integers of 64 bits: no count of rows can overflow it
  sum192,  // decimal128
  sum_float,
  minimum,
  maximum,
  moments,
  sum_double,  // as sum_float without correction: for few rows, see slot_frames.hpp
};

// ---- the stored forms: 8-byte words, so that they may lie anywhere an int64 may ------------------------------------------

struct Int128Words {
  uint64_t low = 0;
  int64_t high = 0;
  Int128Words() = default;
  Int128Words(int128 value) : low(static_cast<uint64_t>(value)), high(static_cast<int64_t>(value >> 64)) {}
  int128 get() const { return static_cast<int128>((static_cast<uint128>(static_cast<uint64_t>(high)) << 64) | low); }
};

// Two's complement, 192 bits: 2^64 decimals of 38 digits cannot overflow it.
struct Sum192 {
  uint64_t words[3] = {0, 0, 0};

  static Sum192 of(int128 value) {
    Sum192 result;
    result.words[0] = static_cast<uint64_t>(value);
    result.words[1] = static_cast<uint64_t>(value >> 64);
    result.words[2] = value < 0 ? ~uint64_t{0} : 0;
    return result;
  }
  bool negative() const { return words[2] >> 63; }
  void add(const Sum192& other) {
    uint128 carry = 0;
    for (int word = 0; word < 3; ++word) {
      carry += static_cast<uint128>(words[word]) + other.words[word];
      words[word] = static_cast<uint64_t>(carry);
      carry >>= 64;
    }
  }
  void negate() {
    uint128 carry = 1;
    for (uint64_t& word : words) {
      carry += static_cast<uint64_t>(~word);
      word = static_cast<uint64_t>(carry);
      carry >>= 64;
    }
  }
  void subtract(Sum192 other) {
    other.negate();
    add(other);
  }
};

// A sum and the rounding errors of its additions (Knuth's two-sum, 1969; Ogita, Rump, Oishi 2005): the error of the result
// does not grow with the number of rows. An infinity or NaN spoils the correction, so it is dropped then.
struct FloatSum {
  double sum = 0, correction = 0;
  void add(double value) {
    const double total = sum + value;
    const double shadow = total - sum;
    correction += (sum - (total - shadow)) + (value - shadow);
    sum = total;
  }
  void combine(const FloatSum& other) {
    add(other.sum);
    correction += other.correction;
  }
  double get() const { return std::isfinite(sum) ? sum + correction : sum; }
};

// Count, mean and sum of squared distances from it (Welford 1962; combined as Chan, Golub, LeVeque 1979).
struct Moments {
  double count = 0, mean = 0, squares = 0;
  void add(double value) {
    count += 1;
    const double distance = value - mean;
    mean += distance / count;
    squares += distance * (value - mean);
  }
  void combine(const Moments& other) {
    if (other.count == 0) return;
    if (count == 0) {
      *this = other;
      return;
    }
    const double total = count + other.count;
    const double distance = other.mean - mean;
    mean += distance * (other.count / total);
    squares += other.squares + distance * distance * (count * other.count / total);
    count = total;
  }
};

template <ValueClass> struct ClassValue;
template <> struct ClassValue<ValueClass::i64> { using type = int64_t; };
template <> struct ClassValue<ValueClass::u64> { using type = uint64_t; };
template <> struct ClassValue<ValueClass::f64> { using type = double; };
template <> struct ClassValue<ValueClass::i128> { using type = Int128Words; };

inline bool is_less(int64_t left, int64_t right) { return left < right; }
inline bool is_less(uint64_t left, uint64_t right) { return left < right; }
inline bool is_less(const Int128Words& left, const Int128Words& right) { return left.get() < right.get(); }
// Spark's order: NaN is greater than every number.
inline bool is_less(double left, double right) { return left < right || (right != right && left == left); }

// The value that changes nothing.
template <typename T>
inline T lowest() { return std::numeric_limits<T>::lowest(); }
template <>
inline double lowest<double>() { return -std::numeric_limits<double>::infinity(); }
template <>
inline Int128Words lowest<Int128Words>() { return Int128Words(static_cast<int128>(uint128{1} << 127)); }
template <typename T>
inline T greatest() { return std::numeric_limits<T>::max(); }
template <>
inline double greatest<double>() { return std::numeric_limits<double>::quiet_NaN(); }
template <>
inline Int128Words greatest<Int128Words>() { return Int128Words(static_cast<int128>(~(uint128{1} << 127))); }

inline double to_double(int64_t value) { return static_cast<double>(value); }
inline double to_double(uint64_t value) { return static_cast<double>(value); }
inline double to_double(double value) { return value; }
inline double to_double(const Int128Words& value) { return static_cast<double>(value.get()); }

// Loops over many states become vector code. A NaN gives way to everything as the least, to nothing as the greatest.
template <typename T>
inline T lesser(const T& left, const T& right) { return is_less(right, left) ? right : left; }
template <>
inline double lesser<double>(const double& left, const double& right) {
  return (right < left) | (left != left) ? right : left;
}
template <typename T>
inline T greater_one(const T& left, const T& right) { return is_less(left, right) ? right : left; }
template <>
inline double greater_one<double>(const double& left, const double& right) {
  return (left < right) | (right != right) ? right : left;
}

// The same for a single row, where nobody can foresee whether it is the least or greatest of its key so far: compilers make
// a branch of the forms above for doubles, which costs 2 to 3 ns a row.
template <typename T>
inline T lesser_of_row(const T& state, const T& value) { return lesser<T>(state, value); }
template <typename T>
inline T greater_of_row(const T& state, const T& value) { return greater_one<T>(state, value); }
#if JETFAST_X86
inline double choose_by_bits(__m128d second, __m128d left, __m128d right) {
  return _mm_cvtsd_f64(_mm_or_pd(_mm_and_pd(second, right), _mm_andnot_pd(second, left)));
}
template <>
inline double lesser_of_row<double>(const double& state, const double& value) {
  const __m128d left = _mm_set_sd(state), right = _mm_set_sd(value);
  return choose_by_bits(_mm_or_pd(_mm_cmplt_sd(right, left), _mm_cmpunord_sd(left, left)), left, right);
}
template <>
inline double greater_of_row<double>(const double& state, const double& value) {
  const __m128d left = _mm_set_sd(state), right = _mm_set_sd(value);
  return choose_by_bits(_mm_or_pd(_mm_cmplt_sd(left, right), _mm_cmpunord_sd(right, right)), left, right);
}
#endif

// ---- one struct per field: State, identity, row, combine, deduct -----------------------------------------------------------

struct CountField {
  using State = uint64_t;
  using Value = uint8_t;
  static constexpr bool exact = true;
  static State identity() { return 0; }
  static void combine(State& state, const State& other) { state += other; }
  static void deduct(State& state, const State& other) { state -= other; }
};

template <typename T>
struct Sum128Field {
  using State = Int128Words;
  using Value = T;
  static constexpr bool exact = true;
  static State identity() { return {}; }
  static void row(State& state, T value) { state = Int128Words(state.get() + static_cast<int128>(value)); }
  static void combine(State& state, const State& other) { state = Int128Words(state.get() + other.get()); }
  static void deduct(State& state, const State& other) { state = Int128Words(state.get() - other.get()); }
};

struct Sum192Field {
  using State = Sum192;
  using Value = Int128Words;
  static constexpr bool exact = true;
  static State identity() { return {}; }
  static void row(State& state, const Int128Words& value) { state.add(Sum192::of(value.get())); }
  static void combine(State& state, const State& other) { state.add(other); }
  static void deduct(State& state, const State& other) { state.subtract(other); }
};

struct FloatSumField {
  using State = FloatSum;
  using Value = double;
  static constexpr bool exact = false;
  static State identity() { return {}; }
  static void row(State& state, double value) { state.add(value); }
  static void combine(State& state, const State& other) { state.combine(other); }
  static void deduct(State&, const State&) {}
};

struct DoubleSumField {
  using State = double;
  using Value = double;
  static constexpr bool exact = false;
  static State identity() { return 0; }
  static void row(State& state, double value) { state += value; }
  static void combine(State& state, const State& other) { state += other; }
  static void deduct(State&, const State&) {}
};

template <typename T>
struct MinimumField {
  using State = T;
  using Value = T;
  static constexpr bool exact = false;
  static State identity() { return greatest<T>(); }
  static void row(State& state, const T& value) { state = lesser_of_row<T>(state, value); }
  static void combine(State& state, const State& other) { state = lesser<T>(state, other); }
  static void deduct(State&, const State&) {}
};

template <typename T>
struct MaximumField {
  using State = T;
  using Value = T;
  static constexpr bool exact = false;
  static State identity() { return lowest<T>(); }
  static void row(State& state, const T& value) { state = greater_of_row<T>(state, value); }
  static void combine(State& state, const State& other) { state = greater_one<T>(state, other); }
  static void deduct(State&, const State&) {}
};

template <typename T>
struct MomentsField {
  using State = Moments;
  using Value = T;
  static constexpr bool exact = false;
  static State identity() { return {}; }
  static void row(State& state, const T& value) { state.add(to_double(value)); }
  static void combine(State& state, const State& other) { state.combine(other); }
  static void deduct(State&, const State&) {}
};

// ---- loops over many keys --------------------------------------------------------------------------------------------------

// One field of a table: `column` is the index of its value column (-1 for rows).
struct Field {
  FieldKind kind;
  ValueClass value_class = ValueClass::i64;
  int column = -1;
  bool exact = true;
  int32_t width = 8;

  Field(FieldKind kind, ValueClass value_class, int column) : kind(kind), value_class(value_class), column(column) {
    exact = kind == FieldKind::rows || kind == FieldKind::nulls || kind == FieldKind::sum128 || kind == FieldKind::sum192;
    switch (kind) {
      case FieldKind::rows:
      case FieldKind::nulls:
      case FieldKind::sum_double: width = 8; break;
      case FieldKind::sum128:
      case FieldKind::sum_float: width = 16; break;
      case FieldKind::sum192:
      case FieldKind::moments: width = 24; break;
      case FieldKind::minimum:
      case FieldKind::maximum: width = value_class == ValueClass::i128 ? 16 : 8; break;
    }
  }
};

// Calls work(F{}) with the struct of the field.
template <typename Work>
inline void with_field(const Field& field, Work&& work) {
  switch (field.kind) {
    case FieldKind::rows:
    case FieldKind::nulls: return work(CountField{});
    case FieldKind::sum128:
      if (field.value_class == ValueClass::u64) return work(Sum128Field<uint64_t>{});
      return work(Sum128Field<int64_t>{});
    case FieldKind::sum192: return work(Sum192Field{});
    case FieldKind::sum_float: return work(FloatSumField{});
    case FieldKind::sum_double: return work(DoubleSumField{});
    case FieldKind::minimum:
      switch (field.value_class) {
        case ValueClass::i64: return work(MinimumField<int64_t>{});
        case ValueClass::u64: return work(MinimumField<uint64_t>{});
        case ValueClass::f64: return work(MinimumField<double>{});
        case ValueClass::i128: return work(MinimumField<Int128Words>{});
      }
      return;
    case FieldKind::maximum:
      switch (field.value_class) {
        case ValueClass::i64: return work(MaximumField<int64_t>{});
        case ValueClass::u64: return work(MaximumField<uint64_t>{});
        case ValueClass::f64: return work(MaximumField<double>{});
        case ValueClass::i128: return work(MaximumField<Int128Words>{});
      }
      return;
    case FieldKind::moments:
      switch (field.value_class) {
        case ValueClass::i64: return work(MomentsField<int64_t>{});
        case ValueClass::u64: return work(MomentsField<uint64_t>{});
        case ValueClass::f64: return work(MomentsField<double>{});
        case ValueClass::i128: return work(MomentsField<Int128Words>{});
      }
      return;
  }
}

// Set states [start, end) to the identity.
inline void fill_identity(const Field& field, uint8_t* states, int64_t start, int64_t end) {
  with_field(field, [&](auto tag) {
    using F = decltype(tag);
    auto* state = reinterpret_cast<typename F::State*>(states);
    const typename F::State identity = F::identity();
    for (int64_t entry = start; entry < end; ++entry) state[entry] = identity;
  });
}

// Value row(i) enters states[entries[i]]; row(i) = rows[i], or i without `rows`. `values` have the field's class.
// `far`: the states do not fit the second-level cache.
inline void accumulate_values(const Field& field, uint8_t* states, const uint32_t* entries, const int32_t* rows,
                              int64_t count, const void* values, bool far) {
  with_field(field, [&](auto tag) {
    using F = decltype(tag);
    auto* state = reinterpret_cast<typename F::State*>(states);
    if constexpr (std::is_same_v<F, CountField>) {
      for (int64_t i = 0; i < count; ++i) ++state[entries[i]];
    } else {
      const auto* value = static_cast<const typename F::Value*>(values);
      if (far)
        for (int64_t i = 0; i < count; ++i) {
          if (i + kPrefetchRows < count) prefetch_line(&state[entries[i + kPrefetchRows]]);
          F::row(state[entries[i]], value[rows ? rows[i] : i]);
        }
      else if (rows == nullptr)
        for (int64_t i = 0; i < count; ++i) F::row(state[entries[i]], value[i]);
      else
        for (int64_t i = 0; i < count; ++i) F::row(state[entries[i]], value[rows[i]]);
    }
  });
}

// Value i enters states[numbers[i]][entries[i]], or states[0][entries[i]] without `numbers`. `places`: only values i that it
// lists, `count` of them. With `row_counts`, a value also is one row of row_counts[numbers[i]][entries[i]]: one pass instead
// of two.
inline void accumulate_in_frames(const Field& field, uint8_t* const* row_counts, uint8_t* const* states,
                                 const uint32_t* numbers, const uint32_t* entries, const int32_t* places, int64_t count,
                                 const void* values) {
  with_field(field, [&](auto tag) {
    using F = decltype(tag);
    const auto* value = static_cast<const typename F::Value*>(values);
    const auto add = [=](auto number_of, auto place_of, auto counts) {
      JETFAST_UNROLL_4
      for (int64_t number = 0; number < count; ++number) {
        const int64_t i = place_of(number);
        if constexpr (counts) ++reinterpret_cast<uint64_t*>(row_counts[number_of(i)])[entries[i]];
        auto& state = reinterpret_cast<typename F::State*>(states[number_of(i)])[entries[i]];
        if constexpr (std::is_same_v<F, CountField>) {
          ++state;
        } else {
          prefetch_page_ahead(value + i);
          F::row(state, value[i]);
        }
      }
    };
    const auto add_numbered = [&](auto place_of, auto counts) {
      if (numbers) add([numbers](int64_t i) { return numbers[i]; }, place_of, counts);
      else add([](int64_t) { return uint32_t{0}; }, place_of, counts);
    };
    const auto every = [](int64_t i) { return i; };
    const auto listed = [places](int64_t i) -> int64_t { return places[i]; };
    if (places && row_counts) add_numbered(listed, std::true_type{});
    else if (places) add_numbered(listed, std::false_type{});
    else if (row_counts) add_numbered(every, std::true_type{});
    else add_numbered(every, std::false_type{});
  });
}

// State row(i) of `source` (which may lie at any address) is combined into states[entries[i]] (states[i] without `entries`).
inline void combine_states(const Field& field, uint8_t* states, const uint32_t* entries, const uint8_t* source,
                           const int32_t* rows, int64_t count, bool far = false) {
  with_field(field, [&](auto tag) {
    using F = decltype(tag);
    using State = typename F::State;
    auto* state = reinterpret_cast<State*>(states);
    if (entries == nullptr && rows == nullptr) {
      const auto* other = reinterpret_cast<const State*>(source);
      for (int64_t i = 0; i < count; ++i) F::combine(state[i], other[i]);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (i + kPrefetchRows < count && far) prefetch_line(&state[entries[i + kPrefetchRows]]);
      State other;
      const uint8_t* one = source + (rows ? rows[i] : i) * static_cast<int64_t>(sizeof(State));
      prefetch_page_ahead(one);
      std::memcpy(&other, one, sizeof(State));
      F::combine(state[entries[i]], other);
    }
  });
}

// The FloatSum row(i) of `source` (which may lie at any address) is added to sums[entries[i]] (sums[i] without `entries`, from
// an aligned source).
inline void add_float_sums(double* sums, const uint32_t* entries, const uint8_t* source, const int32_t* rows, int64_t count) {
  if (entries == nullptr && rows == nullptr) {
    const auto* other = reinterpret_cast<const FloatSum*>(source);
    for (int64_t i = 0; i < count; ++i) sums[i] += other[i].get();
    return;
  }
  for (int64_t i = 0; i < count; ++i) {
    FloatSum other;
    std::memcpy(&other, source + (rows ? rows[i] : i) * static_cast<int64_t>(sizeof(other)), sizeof(other));
    sums[entries[i]] += other.get();
  }
}

// source[i] leaves states[entries[i]] (states[i] without `entries`); exact fields only.
inline void deduct_states(const Field& field, uint8_t* states, const uint32_t* entries, const uint8_t* source,
                          int64_t count, bool far = false) {
  with_field(field, [&](auto tag) {
    using F = decltype(tag);
    using State = typename F::State;
    if constexpr (F::exact) {
      auto* state = reinterpret_cast<State*>(states);
      const auto* other = reinterpret_cast<const State*>(source);
      if (entries == nullptr) {
        for (int64_t i = 0; i < count; ++i) F::deduct(state[i], other[i]);
        return;
      }
      for (int64_t i = 0; i < count; ++i) {
        if (far && i + kPrefetchRows < count) prefetch_line(&state[entries[i + kPrefetchRows]]);
        F::deduct(state[entries[i]], other[i]);
      }
    }
  });
}

// target[place] = left[i] combined with right[place], with place = places[i] (i without `places`).
inline void merge_states(const Field& field, const uint8_t* left, const uint8_t* right, const uint32_t* places, int64_t count,
                         uint8_t* target, bool far = false) {
  with_field(field, [&](auto tag) {
    using F = decltype(tag);
    using State = typename F::State;
    const auto* left_state = reinterpret_cast<const State*>(left);
    const auto* right_state = reinterpret_cast<const State*>(right);
    auto* result = reinterpret_cast<State*>(target);
    const auto merge = [&](int64_t i, int64_t place) {
      State state = left_state[i];
      F::combine(state, right_state[place]);
      result[place] = state;
    };
    if (places == nullptr) {
      for (int64_t i = 0; i < count; ++i) merge(i, i);
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (far && i + kPrefetchRows < count) {
        prefetch_line(&right_state[places[i + kPrefetchRows]]);
        prefetch_line(&result[places[i + kPrefetchRows]]);
      }
      merge(i, places[i]);
    }
  });
}

// One step of turning the stack: the newer part of each key is remembered with the frame's entry, then the frame joins it.
// Key i is entries[i] of `newer` and frame_entries[i] of `frame` and `after` (i, where they are not given).
inline void stack_states(const Field& field, uint8_t* newer, const uint32_t* entries, const uint8_t* frame,
                         uint8_t* after, const uint32_t* frame_entries, int64_t count, bool far = false) {
  with_field(field, [&](auto tag) {
    using F = decltype(tag);
    using State = typename F::State;
    auto* newer_state = reinterpret_cast<State*>(newer);
    const auto* frame_state = reinterpret_cast<const State*>(frame);
    auto* after_state = reinterpret_cast<State*>(after);
    if (entries == nullptr && frame_entries == nullptr) {
      for (int64_t i = 0; i < count; ++i) {
        State state = newer_state[i];
        after_state[i] = state;
        F::combine(state, frame_state[i]);
        newer_state[i] = state;
      }
      return;
    }
    for (int64_t i = 0; i < count; ++i) {
      if (far && i + kPrefetchRows < count) prefetch_line(&newer_state[entries[i + kPrefetchRows]]);
      const int64_t entry = frame_entries ? frame_entries[i] : i;
      State& state = newer_state[entries[i]];
      after_state[entry] = state;
      F::combine(state, frame_state[entry]);
    }
  });
}

// target[to ? to[i] : i] = source[from ? from[i] : i], states of `width` bytes.
inline void copy_states(int32_t width, uint8_t* target, const uint32_t* to, const uint8_t* source, const uint32_t* from,
                        int64_t count) {
  const auto copy = [&](auto words) {
    using Words = decltype(words);
    for (int64_t i = 0; i < count; ++i)
      std::memcpy(target + (to ? to[i] : i) * static_cast<int64_t>(sizeof(Words)),
                  source + (from ? from[i] : i) * static_cast<int64_t>(sizeof(Words)), sizeof(Words));
  };
  struct Words2 { uint64_t words[2]; };
  struct Words3 { uint64_t words[3]; };
  if (to == nullptr && from == nullptr) std::memcpy(target, source, static_cast<size_t>(count * width));
  else if (width == 8) copy(uint64_t{});
  else if (width == 16) copy(Words2{});
  else copy(Words3{});
}

}  // namespace jetfast
