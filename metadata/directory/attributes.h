// SPDX-License-Identifier: Apache-2.0
//
// An object's attributes in the directory (besides its size), and their encoding as one
//   byte in a slot of the table and on the wire.
// Threads: any; values.
// Trusts: nothing. Attributes that are not valid() have no byte. An unknown byte gives attributes
//   that are not valid().
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace mc::metadata {

enum class Pin : std::uint8_t { kNone = 0, kSoft = 1, kHard = 2 };

struct Attributes {
  Pin pin = Pin::kNone;
  bool grouped = false;
  // Striped: each holder has at least one part of the object's stripes, and all parts together are
  // the object. The size is the whole object's. Holders keep the pin of a striped object; here it
  // is none.
  bool striped = false;
  std::uint8_t replicas = 1;  // wanted, 1 to 8; if striped, for each part
  std::uint8_t parts = 0;     // striped only: number of parts, 1 to most_parts()
  std::uint8_t part = 0;      // striped only: the holder's part

  bool operator==(const Attributes&) const = default;
};

inline constexpr std::uint8_t kMaxReplicas = 8;
inline constexpr std::uint8_t kMaxParts = 16;

// The most parts of an object with this many replicas of each part: 16, 8, 4 or 2. So an object has
// at most 16 parts' holders, and attributes fit in a byte. REQUIRES: 1 to kMaxReplicas.
constexpr std::uint8_t most_parts(std::uint8_t replicas) {
  return static_cast<std::uint8_t>(kMaxParts / std::bit_ceil(replicas));
}

constexpr bool valid(Attributes attributes) {
  if (attributes.pin > Pin::kHard) return false;
  if (attributes.replicas < 1 || attributes.replicas > kMaxReplicas) return false;
  if (attributes.striped) {
    return attributes.pin == Pin::kNone && !attributes.grouped && attributes.parts >= 1 &&
           attributes.parts <= most_parts(attributes.replicas) &&
           attributes.part < attributes.parts;
  }
  return attributes.parts == 0 && attributes.part == 0;
}

// Attributes as a byte.
//   0 … 119    bits: pin 2, grouped 1, 0, replicas - 1: 3. Codes that are not valid this way mean
//              striped with more than one replica: for two replicas the part of one part, the parts
//              of two parts …; then for three replicas …
//   120 … 255  striped, one replica: the part of one part; the first and the second of two parts; …
class AttributeCodes {
 public:
  constexpr AttributeCodes() {
    constexpr unsigned kFirstStriped = 120;
    unsigned code = kFirstStriped;
    for (std::uint8_t parts = 1; parts <= kMaxParts; ++parts) code = add(parts, 1, code);
    for (unsigned byte = 0; byte < kFirstStriped; ++byte) of_byte_[byte] = ordinary(byte);
    code = next_free(0);
    for (std::uint8_t replicas = 2; replicas <= kMaxReplicas; ++replicas) {
      for (std::uint8_t parts = 1; parts <= most_parts(replicas); ++parts) {
        code = add(parts, replicas, code);
      }
    }
  }
  // REQUIRES: valid(attributes).
  [[nodiscard]] constexpr std::uint8_t pack(const Attributes& attributes) const {
    if (!attributes.striped) {
      return static_cast<std::uint8_t>(static_cast<unsigned>(attributes.pin) |
                                       (attributes.grouped ? 4u : 0u) |
                                       (attributes.replicas - 1u) << 4);
    }
    return of_parts_[attributes.replicas - 1u][attributes.parts - 1u][attributes.part];
  }
  // A byte that pack() never returns gives attributes that are not valid.
  [[nodiscard]] constexpr const Attributes& unpack(std::uint8_t byte) const {
    return of_byte_[byte];
  }

 private:
  static constexpr Attributes ordinary(unsigned byte) {
    Attributes attributes;
    attributes.pin = static_cast<Pin>(byte & 3u);
    attributes.grouped = (byte & 4u) != 0;
    const bool is_known = (byte & 8u) == 0;
    attributes.replicas = is_known ? static_cast<std::uint8_t>((byte >> 4) + 1) : std::uint8_t{0};
    return attributes;
  }
  [[nodiscard]] constexpr unsigned next_free(unsigned code) const {
    while (code < of_byte_.size() && valid(of_byte_[code])) ++code;
    return code;
  }
  // Assigns codes to all parts of an object with this many parts. Returns the next free code.
  constexpr unsigned add(std::uint8_t parts, std::uint8_t replicas, unsigned code) {
    for (std::uint8_t part = 0; part < parts; ++part) {
      Attributes attributes;
      attributes.striped = true;
      attributes.replicas = replicas;
      attributes.parts = parts;
      attributes.part = part;
      of_byte_[code] = attributes;
      of_parts_[replicas - 1u][parts - 1u][part] = static_cast<std::uint8_t>(code);
      code = replicas == 1 ? code + 1 : next_free(code);
    }
    return code;
  }

  std::array<Attributes, 256> of_byte_{};
  std::array<std::array<std::array<std::uint8_t, kMaxParts>, kMaxParts>, kMaxReplicas> of_parts_{};
};
inline constexpr AttributeCodes kAttributeCodes;

// REQUIRES: valid(attributes).
constexpr std::uint8_t pack(const Attributes& attributes) {
  return kAttributeCodes.pack(attributes);
}
constexpr Attributes unpack(std::uint8_t byte) { return kAttributeCodes.unpack(byte); }

}  // namespace mc::metadata
