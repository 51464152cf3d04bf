// The depth of JSON lines equals that of a plain scan, for well-formed lines and for any bytes; columns are counted by path.
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "check.hpp"
#include "jetfast/json_bounds.hpp"

using jetfast::JsonBounds;

namespace {

uint64_t next_random(uint64_t& state) {  // splitmix64 (Vigna 2015)
  uint64_t value = state += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

// The slow twin: one byte at a time. `surplus` becomes the offset of a bracket that closes nothing: parsers stop there.
int64_t find_too_deep_slowly(const std::string& text, int64_t depth_max, size_t* surplus = nullptr) {
  int64_t depth = 0;
  bool in_string = false, escaped = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char byte = text[i];
    const bool is_escaped = escaped;
    escaped = byte == '\\' && !is_escaped;
    if (byte == '"' && !is_escaped) in_string = !in_string;
    if (in_string) continue;
    if (byte == '{' || byte == '[') {
      if (++depth > depth_max) return static_cast<int64_t>(i);
    } else if ((byte == '}' || byte == ']') && --depth < 0) {
      if (surplus != nullptr) *surplus = i;
      return JsonBounds::kNone;
    }
  }
  return JsonBounds::kNone;
}

// Bytes in memory of exactly their size: the sanitizer sees every read beyond them.
class Exact {
 public:
  explicit Exact(const std::string& text) : bytes_(new uint8_t[text.size()]), size_(static_cast<int64_t>(text.size())) {
    std::copy(text.begin(), text.end(), bytes_.get());
  }
  const uint8_t* data() const { return bytes_.get(); }
  int64_t size() const { return size_; }

 private:
  std::unique_ptr<uint8_t[]> bytes_;
  int64_t size_;
};

std::string value_of(uint64_t& state, int depth) {
  const uint64_t choice = next_random(state) % 8;
  if (depth > 0 && choice < 3) {
    std::string list = "[";
    for (uint64_t item = next_random(state) % 4; item > 0; --item) list += value_of(state, depth - 1) + (item > 1 ? "," : "");
    return list + "]";
  }
  if (depth > 0 && choice < 5) return "{\"k\\\"{\":" + value_of(state, depth - 1) + "}";
  if (choice == 5) return "\"[{\\\\\"";
  if (choice == 6) return "\"" + std::string(next_random(state) % 70, '[') + "\\\"}\"";
  return "12.5";
}

void any_bytes_equal_the_slow_twin() {
  uint64_t state = 1;
  const std::string alphabet = "{}[]\"\\a,: \n";
  for (int round = 0; round < 20000; ++round) {
    std::string text;
    for (uint64_t size = next_random(state) % 300; size > 0; --size) text += alphabet[next_random(state) % alphabet.size()];
    size_t surplus = text.size();
    find_too_deep_slowly(text, INT64_MAX, &surplus);
    text.resize(surplus);
    const Exact exact(text);
    const auto depth_max = static_cast<int64_t>(next_random(state) % 12);
    CHECK(JsonBounds::find_too_deep_exactly(exact.data(), exact.size(), depth_max) == find_too_deep_slowly(text, depth_max));
    int64_t open = 0;
    for (const char byte : text) open += byte == '{' || byte == '[';
    CHECK(JsonBounds::count_open(exact.data(), exact.size()) == open);
  }
}

void lines_equal_the_slow_twin() {
  uint64_t state = 2;
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    for (uint64_t line = next_random(state) % 12; line > 0; --line)
      text += "{\"a\":" + value_of(state, static_cast<int>(next_random(state) % 10)) + (next_random(state) % 2 ? "}\n" : "}\r\n");
    const Exact exact(text);
    for (const int64_t depth_max : {1, 3, 6, 64})
      CHECK(JsonBounds::find_too_deep(exact.data(), exact.size(), depth_max) == find_too_deep_slowly(text, depth_max));
  }
}

void columns_are_counted_by_path() {
  const auto count = [](const std::string& text, int64_t columns_max) {
    const Exact exact(text);
    return JsonBounds::count_columns(exact.data(), exact.size(), columns_max);
  };
  CHECK(count("", 10) == 0);
  CHECK(count("{\"a\":1,\"b\":2}\n{\"b\":1,\"c\":2}\n", 10) == 3);
  CHECK(count("{\"a\":{\"x\":1},\"b\":{\"x\":2}}\n", 10) == 4);
  CHECK(count("{\"a\":[{\"x\":1},{\"x\":2,\"y\":3}]}\n", 10) == 3);
  CHECK(count("{\"a\":\"b\\\":\",\"c\":1}\n", 10) == 2);
  CHECK(count("{\"a\":1,\"b\":2,\"c\":3,\"d\":4}\n", 2) == 3);
  CHECK(count("{\"a", 10) == 0);
}

}  // namespace

int main() {
  any_bytes_equal_the_slow_twin();
  lines_equal_the_slow_twin();
  columns_are_counted_by_path();
  std::puts("test_json_bounds: passed");
  return 0;
}
