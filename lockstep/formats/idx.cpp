#include "lockstep/formats/idx.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/gzip_reader.h"

namespace lockstep {
namespace {

constexpr int MAX_DIMENSIONS = 8;
constexpr std::uint8_t UNSIGNED_BYTES = 0x08;
constexpr std::size_t CHUNK = std::size_t{1} << 20;

[[noreturn]] void refuse_idx(const GzipReader& reader, const std::string& defect) {
  throw FormatError(str("idx file \"", printable(reader.path()), "\": ", defect));
}

std::string hex(std::uint32_t value) {
  std::ostringstream out;
  out << "0x" << std::hex;
  out.width(8);
  out.fill('0');
  out << value;
  return out.str();
}

std::uint32_t read_number(GzipReader& reader, const char* what) {
  std::array<std::byte, 4> bytes{};
  if (reader.read(bytes) != bytes.size()) refuse_idx(reader, str("truncated, it ends inside ", what));
  std::uint32_t value = 0;
  for (const std::byte byte : bytes) value = value << 8U | std::to_integer<std::uint32_t>(byte);
  return value;
}

void check_magic(GzipReader& reader, int dimensions) {
  const std::uint32_t magic = read_number(reader, "the magic number");
  const std::uint32_t type = magic >> 8U & 0xffU;
  const std::string expected =
      hex(static_cast<std::uint32_t>(UNSIGNED_BYTES) << 8U | static_cast<std::uint32_t>(dimensions));
  if (magic >> 16U != 0)
    refuse_idx(reader,
               str("wrong magic number ", hex(magic), ", expected ", expected, "; this is not an idx file"));
  if (type != UNSIGNED_BYTES)
    refuse_idx(reader, str("magic number ", hex(magic), " is for another element type, expected ", expected,
                           " (unsigned bytes)"));
  if ((magic & 0xffU) != static_cast<std::uint32_t>(dimensions))
    refuse_idx(reader, str("it has ", magic & 0xffU, " dimension(s), expected ", dimensions,
                           " (magic number ", expected, ")"));
}

// Returns the number of bytes in the header, checked against what the file can hold.
std::int64_t read_dims(GzipReader& reader, int dimensions, std::vector<std::int64_t>& dims) {
  constexpr auto TOO_MANY = static_cast<std::uint64_t>(IDX_MAX_BYTES) + 1;
  std::uint64_t count = 0;
  std::uint64_t item = 1;  // bytes of one of `count` items: too many are refused even if there are no items
  std::string product;
  for (int i = 0; i < dimensions; ++i) {
    const std::uint64_t size = read_number(reader, "the sizes");
    dims.push_back(static_cast<std::int64_t>(size));
    product += str(i > 0 ? " x " : "", size);
    if (i > 0 && size == 0) refuse_idx(reader, str("dimension ", i, " has size 0"));
    // At most (2^32 + 1) * (2^32 - 1) = 2^64 - 1: the products cannot wrap before they are compared.
    (i == 0 ? count : item) = i == 0 ? size : std::min(item * size, TOO_MANY);
  }
  const std::uint64_t total = std::min(count * item, TOO_MANY);
  if (total == TOO_MANY || item == TOO_MANY)
    refuse_idx(reader, str("its header claims ", product, " bytes, more than the ", IDX_MAX_BYTES,
                           " that are allowed"));
  const std::uint64_t header = 4 + 4 * static_cast<std::uint64_t>(dimensions);
  if (header + total > reader.size_limit())
    refuse_idx(reader, str("truncated: its header claims ", product,
                           " bytes, which a file of this size cannot hold"));
  return static_cast<std::int64_t>(total);
}

}  // namespace

IdxArray read_idx(const std::string& path, int dimensions) {
  if (dimensions < 1 || dimensions > MAX_DIMENSIONS)
    throw InvalidArgument(str("read_idx: dimensions is ", dimensions, ", expected 1 to ", MAX_DIMENSIONS));
  GzipReader reader(path);
  IdxArray array;
  check_magic(reader, dimensions);
  const auto total = static_cast<std::size_t>(read_dims(reader, dimensions, array.dims));

  if (!reader.is_gzip()) array.bytes.reserve(total);  // the file's size limits it
  while (array.bytes.size() < total) {
    const std::size_t begin = array.bytes.size();
    const std::size_t wanted = std::min(CHUNK, total - begin);
    array.bytes.resize(begin + wanted);
    const std::size_t got = reader.read(std::as_writable_bytes(std::span(array.bytes).subspan(begin)));
    if (got < wanted)
      refuse_idx(reader,
                 str("truncated: it holds ", begin + got, " bytes after the header, expected ", total));
  }
  std::array<std::byte, 1> extra{};
  if (reader.read(extra) != 0)
    refuse_idx(reader, str("trailing bytes after the ", total, " that its header claims"));
  return array;
}

}  // namespace lockstep
