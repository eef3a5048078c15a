#include "lockstep/formats/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

namespace lockstep {
namespace {

constexpr std::size_t HEX_DIGITS = 32;

}  // namespace

struct Checksum::State {
  XXH3_state_t hash = {};
};

Checksum::Checksum() : state_(std::make_unique<State>()) { XXH3_128bits_reset(&state_->hash); }
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(&state_->hash, bytes.data(), bytes.size());
}

std::string Checksum::text() const {
  XXH128_canonical_t canonical = {};
  XXH128_canonicalFromHash(&canonical, XXH3_128bits_digest(&state_->hash));
  constexpr char HEX[] = "0123456789abcdef";
  std::string text;
  for (const unsigned char byte : canonical.digest) {
    text += HEX[byte >> 4U];
    text += HEX[byte & 15U];
  }
  return text;
}

std::string checksum_of(std::span<const std::byte> bytes) {
  Checksum checksum;
  checksum.add(bytes);
  return checksum.text();
}

std::string checksum_of(std::string_view text) { return checksum_of(std::as_bytes(std::span(text))); }

bool is_checksum(const std::string& text) {
  return text.size() == HEX_DIGITS && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

}  // namespace lockstep
