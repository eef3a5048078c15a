#include "lockstep/formats/safetensors.h"

#include <array>
#include <bit>
#include <map>
#include <string_view>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/safetensors_writer.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian and are copied as they are");

constexpr std::uint64_t MAX_HEADER = 100'000'000;
constexpr std::uint64_t LENGTH_BYTES = 8;

}  // namespace

SafetensorsFile::SafetensorsFile(std::string path) : file_(std::move(path)) {
  const std::uint64_t size = file_.size();
  const auto refuse = [&](const std::string& defect) {
    throw FormatError(str("safetensors file ", in_quotes(file_.path()), ": ", defect));
  };
  std::array<std::byte, LENGTH_BYTES> length_bytes{};
  if (file_.read_at(0, length_bytes) < LENGTH_BYTES) refuse("truncated, it has no header");
  std::uint64_t length = 0;
  for (std::size_t i = LENGTH_BYTES; i-- > 0;)
    length = length << 8U | std::to_integer<std::uint64_t>(length_bytes[i]);
  if (length > MAX_HEADER)
    refuse(
        str("its header claims ", length, " bytes, more than the ", MAX_HEADER, " that the format allows"));
  if (length > size - LENGTH_BYTES)
    refuse(str("truncated: its header claims ", length, " bytes, the file has ", size));
  std::string json(length, '\0');
  if (file_.read_at(LENGTH_BYTES, std::as_writable_bytes(std::span(json))) < length)
    refuse("truncated, it ends inside the header");
  data_offset_ = LENGTH_BYTES + length;
  try {
    header_ = parse_safetensors_header(json, size - data_offset_);
  } catch (const FormatError& defect) {
    refuse(defect.what());
  }
}

void SafetensorsFile::read(const SafetensorsTensor& tensor, std::span<std::byte> out) const {
  if (out.size() != tensor.size())
    throw InvalidArgument(str("SafetensorsFile::read: tensor ", in_quotes(tensor.name), " has ",
                              tensor.size(), " bytes, the buffer ", out.size()));
  if (file_.read_at(data_offset_ + tensor.begin, out) < out.size())
    throw FormatError(str("safetensors file ", in_quotes(file_.path()), ": it ends inside tensor ",
                          in_quotes(tensor.name), "; it was cut after it had been opened"));
}

void write_safetensors(const std::string& path, const std::vector<SafetensorsSource>& tensors,
                       const SafetensorsMetadata& metadata) {
  std::vector<SafetensorsEntry> entries;
  std::map<std::string_view, std::span<const std::byte>> bytes;
  for (const SafetensorsSource& tensor : tensors) {
    entries.push_back({tensor.name, tensor.dtype, tensor.shape});
    bytes.emplace(tensor.name, tensor.bytes);
    const auto needed = shape_bytes(tensor.shape, safetensors_dtype_size(tensor.dtype));
    if (needed && *needed != tensor.bytes.size() && safetensors_dtype_size(tensor.dtype) != 0)
      throw InvalidArgument(str("write_safetensors: tensor ", in_quotes(tensor.name), ": its shape needs ",
                                *needed, " bytes, got ", tensor.bytes.size()));
  }
  SafetensorsWriter writer(path, std::move(entries), metadata);
  for (const SafetensorsTensor& tensor : writer.tensors()) writer.write(bytes.at(tensor.name));
  writer.commit();
}

}  // namespace lockstep
