#include "lockstep/formats/safetensors.h"

#include <algorithm>
#include <array>
#include <bit>
#include <nlohmann/json.hpp>
#include <tuple>

#include "lockstep/base/error.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/os/atomic_file.h"

namespace lockstep {
namespace {

static_assert(std::endian::native == std::endian::little,
              "safetensors are little-endian and are copied as they are");

constexpr std::uint64_t MAX_HEADER = 100'000'000;
constexpr std::uint64_t LENGTH_BYTES = 8;
constexpr std::size_t DATA_ALIGNMENT = 8;

std::string json_text(const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    throw InvalidArgument(str("write_safetensors: ", in_quotes(text), " is not UTF-8"));
  }
}

void check(const SafetensorsSource& tensor) {
  const std::string name = str("write_safetensors: tensor ", in_quotes(tensor.name));
  if (tensor.name == "__metadata__") throw InvalidArgument(str(name, ": the name is taken by the format"));
  const std::size_t element = safetensors_dtype_size(tensor.dtype);
  if (element == 0) throw InvalidArgument(str(name, ": unknown dtype ", in_quotes(tensor.dtype)));
  const auto needed = shape_bytes(tensor.shape, element);
  if (!needed) throw InvalidArgument(str(name, ": its shape is negative or overflows"));
  if (*needed != tensor.bytes.size())
    throw InvalidArgument(str(name, ": its shape needs ", *needed, " bytes, got ", tensor.bytes.size()));
}

std::string entry_text(const SafetensorsSource& tensor, std::uint64_t begin) {
  std::string shape;
  for (const std::int64_t size : tensor.shape) shape += str(shape.empty() ? "" : ",", size);
  return str(json_text(tensor.name), R"(:{"dtype":")", tensor.dtype, R"(","shape":[)", shape,
             R"(],"data_offsets":[)", begin, ',', begin + tensor.bytes.size(), "]}");
}

std::string header_text(const std::vector<SafetensorsSource>& tensors, const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata)
      text += str(text.back() == '{' ? "" : ",", json_text(key), ':', json_text(value));
    text += '}';
  }
  std::uint64_t position = 0;
  for (const SafetensorsSource& tensor : tensors) {
    if (text.size() > 1) text += ',';
    text += entry_text(tensor, position);
    position += tensor.bytes.size();
  }
  text += '}';
  text.resize((text.size() + DATA_ALIGNMENT - 1) / DATA_ALIGNMENT * DATA_ALIGNMENT, ' ');
  if (text.size() > MAX_HEADER)
    throw InvalidArgument(str("write_safetensors: the header would have ", text.size(),
                              " bytes, more than the ", MAX_HEADER, " that the format allows"));
  return text;
}

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

void write_safetensors(const std::string& path, std::vector<SafetensorsSource> tensors,
                       const SafetensorsMetadata& metadata) {
  for (const SafetensorsSource& tensor : tensors) check(tensor);
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(safetensors_dtype_size(b.dtype), std::string_view(a.name)) <
           std::make_tuple(safetensors_dtype_size(a.dtype), std::string_view(b.name));
  });
  std::vector<std::string_view> names;
  for (const SafetensorsSource& tensor : tensors) names.emplace_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    throw InvalidArgument(str("write_safetensors: the name ", in_quotes(*twice), " occurs twice"));

  const std::string header = header_text(tensors, metadata);
  std::array<std::byte, LENGTH_BYTES> length{};
  for (std::size_t i = 0; i < LENGTH_BYTES; ++i)
    length[i] = static_cast<std::byte>(header.size() >> (8 * i) & 0xffU);
  AtomicFile file(path);
  file.write(length);
  file.write(std::as_bytes(std::span(header)));
  for (const SafetensorsSource& tensor : tensors) file.write(tensor.bytes);
  file.commit();
}

}  // namespace lockstep
