// Columns that cross a channel once: its sender remembers what it has sent, its receiver keeps it, both by the number of a place.
//
// Who makes a column says that it will come again (Column::comes_again). The first time it is sent with a place, later the place
// stands for it, and the receiver gives the same memory again: what is known of the column there holds on (known_keys.hpp).
// Of a dictionary these are the codes; its values are a column by themselves.
//
// Columns are known by their memory, which cannot be used for anything else as long as a reference to it is kept here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <utility>
#include <vector>

#include "jetfast/assertions.hpp"
#include "jetfast/batch.hpp"

namespace jetfast {

constexpr size_t kSentPlaces = 64;
constexpr int64_t kSentBytesMax = int64_t{16} << 20;  // of all columns of a channel, on either side
constexpr int64_t kNoPlace = -1;

// The sender's side. What a message tells counts only if it leaves: each begins with `begin`, and `settle` says that it has left.
class SentColumns {
 public:
  void begin() {
    for (; !replaced_.empty(); replaced_.pop_back()) {
      Place& place = places_[replaced_.back().first];
      bytes_ += replaced_.back().second.bytes - place.bytes;
      place = std::move(replaced_.back().second);
    }
  }

  void settle() {
    replaced_.clear();
    ++messages_;
  }

  // Where the receiver has a column, or kNoPlace.
  int64_t find(const Column& column) {
    for (size_t number = 0; number < places_.size(); ++number) {
      Place& place = places_[number];
      if (place.bytes == 0 || !is_same_memory(place.column.view, column.view) || !is_same_type(place.column.view, column.view))
        continue;
      place.used = messages_;
      return static_cast<int64_t>(number);
    }
    return kNoPlace;
  }

  // The bytes of all places are counted and bounded; what a message has replaced is known until it has left.
  void check_invariants() const {
    int64_t bytes = 0;
    for (const Place& place : places_) bytes += place.bytes;
    JETFAST_INVARIANT(bytes == bytes_);
    JETFAST_INVARIANT(bytes_ <= kSentBytesMax);
    JETFAST_INVARIANT(places_.size() <= kSentPlaces);
    for (const auto& [number, place] : replaced_) JETFAST_INVARIANT(number < places_.size());
  }

  // The place of a column that is sent now with so many bytes (one or more), or kNoPlace: those there are still in use.
  int64_t add(const Column& column, int64_t bytes) {
    JETFAST_CHECK(bytes > 0);
    const size_t number = free_place(bytes);
    if (number == kSentPlaces) return kNoPlace;
    if (number == places_.size()) places_.emplace_back();
    Place& place = places_[number];
    bytes_ += bytes - place.bytes;
    replaced_.emplace_back(number, std::move(place));
    place = Place{column, bytes, messages_};
    return static_cast<int64_t>(number);
  }

 private:
  struct Place {
    Column column;
    int64_t bytes = 0;
    int64_t used = std::numeric_limits<int64_t>::min() / 2;  // by which message
  };

  // A column that so many messages have done without will not come again.
  static constexpr int64_t kStaleMessages = 64;

  size_t free_place(int64_t bytes) const {
    for (size_t number = 0; number < places_.size(); ++number)
      if (places_[number].used + kStaleMessages <= messages_ && bytes_ - places_[number].bytes + bytes <= kSentBytesMax)
        return number;
    return bytes_ + bytes <= kSentBytesMax ? places_.size() : kSentPlaces;
  }

  std::vector<Place> places_;
  std::vector<std::pair<size_t, Place>> replaced_;  // by the last message, unless it has left
  int64_t bytes_ = 0;
  int64_t messages_ = 0;  // that have left
};

// The receiver's side. It is told places, and believes none.
class ReceivedColumns {
 public:
  struct Place {
    Column column;  // without its dictionary
    int64_t bytes = 0;
    uint64_t greatest_code = 0;  // of a dictionary
  };

  // What is kept in a place, or nullptr.
  const Place* find(int64_t number) const {
    const bool is_there = number >= 0 && number < static_cast<int64_t>(places_.size()) && places_[static_cast<size_t>(number)].bytes > 0;
    return is_there ? &places_[static_cast<size_t>(number)] : nullptr;
  }

  // False: there is no such place, or no room. What was in the place goes.
  bool keep(int64_t number, Place place) {
    if (number < 0 || number >= static_cast<int64_t>(kSentPlaces) || place.bytes <= 0) return false;
    const Place* old = find(number);
    const int64_t bytes = bytes_ + place.bytes - (old != nullptr ? old->bytes : 0);
    if (bytes > kSentBytesMax) return false;
    if (static_cast<size_t>(number) >= places_.size()) places_.resize(static_cast<size_t>(number) + 1);
    places_[static_cast<size_t>(number)] = std::move(place);
    bytes_ = bytes;
    JETFAST_CHECK(bytes_ <= kSentBytesMax);
    return true;
  }

  // The bytes of all places are counted and bounded, whatever the sender said.
  void check_invariants() const {
    int64_t bytes = 0;
    for (const Place& place : places_) bytes += place.bytes;
    JETFAST_INVARIANT(bytes == bytes_);
    JETFAST_INVARIANT(bytes_ <= kSentBytesMax);
    JETFAST_INVARIANT(places_.size() <= kSentPlaces);
  }

 private:
  std::vector<Place> places_;
  int64_t bytes_ = 0;
};

}  // namespace jetfast
