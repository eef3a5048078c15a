#include "lockstep/formats/safetensors_writer.h"

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <string_view>
#include <tuple>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/round_up.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

constexpr std::uint64_t MOST_HEADER_BYTES = 100'000'000;
constexpr std::uint64_t HEAD_LENGTH_BYTES = 8;
constexpr std::size_t DATA_ALIGNMENT = 64;  // of the first tensor, because readers map files

[[noreturn]] void refuse_writing(const std::string& path, const std::string& defect) {
  throw InvalidArgument(str("safetensors file ", in_quotes(path), " cannot be written: ", defect));
}

std::string json_text(const std::string& path, const std::string& text) {
  try {
    return nlohmann::json(text).dump();
  } catch (const nlohmann::json::exception&) {
    refuse_writing(path, str(in_quotes(text), " is not UTF-8"));
  }
}

std::uint64_t checked_size(const std::string& path, const SafetensorsEntry& tensor) {
  const auto fail = [&](const std::string& defect) {
    refuse_writing(path, str("tensor ", in_quotes(tensor.name), ": ", defect));
  };
  if (tensor.name == "__metadata__") fail("the name is taken by the format");
  const std::size_t element = safetensors_dtype_size(tensor.dtype);
  if (element == 0) fail(str("unknown dtype ", in_quotes(tensor.dtype)));
  const auto size = shape_bytes(tensor.shape, element);
  if (!size) fail("its shape is negative or overflows");
  return *size;
}

void check_names(const std::string& path, const std::vector<SafetensorsEntry>& tensors) {
  std::vector<std::string_view> names;
  names.reserve(tensors.size());
  for (const SafetensorsEntry& tensor : tensors) names.emplace_back(tensor.name);
  std::sort(names.begin(), names.end());
  if (const auto twice = std::adjacent_find(names.begin(), names.end()); twice != names.end())
    refuse_writing(path, str("the name ", in_quotes(*twice), " occurs twice"));
}

// The tensors in the order of their bytes.
std::vector<SafetensorsTensor> layout(const std::string& path, std::vector<SafetensorsEntry> tensors) {
  for (const SafetensorsEntry& tensor : tensors) checked_size(path, tensor);
  check_names(path, tensors);
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::make_tuple(safetensors_dtype_size(b.dtype), std::string_view(a.name)) <
           std::make_tuple(safetensors_dtype_size(a.dtype), std::string_view(b.name));
  });
  std::vector<SafetensorsTensor> placed;
  placed.reserve(tensors.size());
  std::uint64_t position = 0;
  for (SafetensorsEntry& tensor : tensors) {
    std::uint64_t end = 0;
    if (__builtin_add_overflow(position, checked_size(path, tensor), &end))
      refuse_writing(path, "its tensors have more than 2^64 bytes");
    placed.push_back(
        {std::move(tensor.name), std::move(tensor.dtype), std::move(tensor.shape), position, end});
    position = end;
  }
  return placed;
}

std::string entry_text(const std::string& path, const SafetensorsTensor& tensor) {
  std::string shape;
  for (const std::int64_t size : tensor.shape) shape += str(shape.empty() ? "" : ",", size);
  return str(json_text(path, tensor.name), R"(:{"dtype":")", tensor.dtype, R"(","shape":[)", shape,
             R"(],"data_offsets":[)", tensor.begin, ',', tensor.end, "]}");
}

std::string header_text(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                        const SafetensorsMetadata& metadata) {
  std::string text = "{";
  if (!metadata.empty()) {
    text += "\"__metadata__\":{";
    for (const auto& [key, value] : metadata)
      text += str(text.back() == '{' ? "" : ",", json_text(path, key), ':', json_text(path, value));
    text += '}';
  }
  for (const SafetensorsTensor& tensor : tensors) {
    if (text.size() > 1) text += ',';
    text += entry_text(path, tensor);
  }
  text += '}';
  text.resize(round_up(HEAD_LENGTH_BYTES + text.size(), DATA_ALIGNMENT) - HEAD_LENGTH_BYTES, ' ');
  if (text.size() > MOST_HEADER_BYTES)
    refuse_writing(path, str("its header would have ", text.size(), " bytes, more than the ",
                             MOST_HEADER_BYTES, " that the format allows"));
  return text;
}

}  // namespace

std::string safetensors_head(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                             const SafetensorsMetadata& metadata) {
  const std::string header = header_text(path, tensors, metadata);
  std::string head;
  for (std::size_t i = 0; i < HEAD_LENGTH_BYTES; ++i)
    head += static_cast<char>(header.size() >> (8 * i) & 0xffU);
  return head + header;
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, std::vector<SafetensorsEntry> tensors,
                                     const SafetensorsMetadata& metadata)
    : path_(path),
      tensors_(layout(path, std::move(tensors))),
      head_(safetensors_head(path, tensors_, metadata)),
      file_(path) {
  file_.write(std::as_bytes(std::span(head_)));
}

void SafetensorsWriter::write(std::span<const std::byte> bytes) {
  if (bytes.size() > data_size() - written_)
    refuse_writing(path_, str("its tensors have ", data_size(), " bytes, and ", bytes.size(),
                              " more came after ", written_));
  file_.write(bytes);
  written_ += bytes.size();
}

void SafetensorsWriter::commit(bool durable) {
  if (written_ < data_size())
    refuse_writing(path_, str("its tensors have ", data_size(), " bytes, and only ", written_, " came"));
  file_.commit(durable);
}

}  // namespace lockstep
