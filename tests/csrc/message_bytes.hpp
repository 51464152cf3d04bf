// A message as one piece of memory, as it arrives: its header and its pieces, each from a multiple of 64 bytes on.
#pragma once

#include <cstdint>
#include <vector>

#include "jetfast/framing.hpp"

inline std::vector<uint8_t> message_bytes(const jetfast::Message& message) {
  std::vector<uint8_t> bytes;
  const auto append = [&bytes](const void* from, int64_t size) {
    bytes.resize(static_cast<size_t>(jetfast::aligned_bytes(static_cast<int64_t>(bytes.size()))));
    bytes.insert(bytes.end(), static_cast<const uint8_t*>(from), static_cast<const uint8_t*>(from) + size);
  };
  append(message.header.data(), static_cast<int64_t>(message.header.size()) * 8);
  for (const jetfast::MessagePiece& piece : message.pieces)
    if (piece.size > 0) append(piece.bytes, piece.size);
  return bytes;
}
