#include "lockstep/formats/tensorboard_events.h"

#include <bit>
#include <cstring>

#include "lockstep/formats/crc32c.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little);

template <typename Number> std::string fixed_bytes(Number value) {
  std::string bytes(sizeof value, '\0');
  std::memcpy(bytes.data(), &value, sizeof value);
  return bytes;
}

// The mask keeps a checksum useful for data that contain checksums.
std::uint32_t masked_crc32c(std::string_view bytes) {
  constexpr std::uint32_t MASK = 0xA282EAD8;
  return std::rotr(crc32c(bytes), 15) + MASK;
}

// The wire types of Protocol Buffers.
enum class Wire : std::uint8_t { VARINT = 0, FIXED_64 = 1, BYTES = 2, FIXED_32 = 5 };

std::string varint(std::uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7U) bytes += static_cast<char>((value & 0x7FU) | 0x80U);
  return bytes + static_cast<char>(value);
}

std::string field_key(unsigned number, Wire wire) {
  return varint((number << 3U) | static_cast<unsigned>(wire));
}

std::string bytes_field(unsigned number, std::string_view bytes) {
  return field_key(number, Wire::BYTES) + varint(bytes.size()) + std::string(bytes);
}

std::string number_field(unsigned number, std::int64_t value) {
  return field_key(number, Wire::VARINT) + varint(static_cast<std::uint64_t>(value));
}

std::string event_of(double wall_time, std::int64_t step, const std::string& what) {
  return field_key(1, Wire::FIXED_64) + fixed_bytes(wall_time) + number_field(2, step) + what;
}

// Event.summary (5) with one Summary.value (1), whose tag is field 1.
std::string summary_of(std::string_view tag, const std::string& value) {
  return bytes_field(5, bytes_field(1, bytes_field(1, tag) + value));
}

constexpr std::size_t TF_LENGTH_BYTES = sizeof(std::uint64_t);
constexpr std::size_t TF_CRC_BYTES = sizeof(std::uint32_t);

}  // namespace

std::string tf_record(std::string_view data) {
  const std::string length = fixed_bytes(static_cast<std::uint64_t>(data.size()));
  return length + fixed_bytes(masked_crc32c(length)) + std::string(data) + fixed_bytes(masked_crc32c(data));
}

std::size_t whole_tf_records(std::string_view bytes, std::size_t limit) {
  bytes = bytes.substr(0, limit);
  std::size_t whole = 0;
  while (bytes.size() - whole >= TF_LENGTH_BYTES + 2 * TF_CRC_BYTES) {
    const std::string_view rest = bytes.substr(whole);
    std::uint64_t length = 0;
    std::memcpy(&length, rest.data(), sizeof length);
    if (length > rest.size() - TF_LENGTH_BYTES - 2 * TF_CRC_BYTES) break;
    const std::string_view record = rest.substr(0, TF_LENGTH_BYTES + 2 * TF_CRC_BYTES + length);
    if (tf_record(record.substr(TF_LENGTH_BYTES + TF_CRC_BYTES, length)) != record) break;
    whole += record.size();
  }
  return whole;
}

std::string file_version_event(double wall_time) {
  return event_of(wall_time, 0, bytes_field(3, "brain.Event:2"));
}

std::string scalar_event(std::string_view tag, float value, std::int64_t step, double wall_time) {
  return event_of(wall_time, step, summary_of(tag, field_key(2, Wire::FIXED_32) + fixed_bytes(value)));
}

std::string text_event(std::string_view tag, std::string_view text, std::int64_t step, double wall_time) {
  constexpr std::int64_t DT_STRING = 7;
  const std::string plugin = bytes_field(9, bytes_field(1, bytes_field(1, "text")));
  const std::string shape = bytes_field(2, bytes_field(2, number_field(1, 1)));  // of one element
  const std::string tensor = bytes_field(8, number_field(1, DT_STRING) + shape + bytes_field(8, text));
  return event_of(wall_time, step, summary_of(tag, plugin + tensor));
}

}  // namespace lockstep
