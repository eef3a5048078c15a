#include <algorithm>
#include <array>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/shape_bytes.h"
#include "lockstep/base/str.h"
#include "lockstep/formats/safetensors.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::array DTYPE_SIZES = std::to_array<std::pair<std::string_view, std::size_t>>({
    {"F64", 8},     {"I64", 8},     {"U64", 8},         {"C64", 8},         {"F32", 4},
    {"I32", 4},     {"U32", 4},     {"F16", 2},         {"BF16", 2},        {"I16", 2},
    {"U16", 2},     {"BOOL", 1},    {"U8", 1},          {"I8", 1},          {"F8_E4M3", 1},
    {"F8_E5M2", 1}, {"F8_E8M0", 1}, {"F8_E4M3FNUZ", 1}, {"F8_E5M2FNUZ", 1},
});

// A tensor's entry lies at depth 1 and its arrays at depth 2. No safetensors file has deeper values.
constexpr int DEEPEST_VALUE = 3;
constexpr std::size_t NAME_SHOWN = 100;  // characters of a name in a message

[[noreturn]] void refuse_header(const std::string& defect) { throw FormatError(defect); }

std::uint64_t unsigned_number(const Json& value, const std::string& tensor, const char* field) {
  if (!value.is_number_unsigned())
    refuse_header(str("tensor ", tensor, ": ", field, " must hold whole numbers from 0"));
  const auto number = value.get<std::uint64_t>();
  if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    refuse_header(str("tensor ", tensor, ": ", field, " holds ", number, ", which overflows"));
  return number;
}

const Json& field(const Json& entry, const std::string& tensor, const char* name, Json::value_t type) {
  const auto found = entry.find(name);
  if (found == entry.end() || found->type() != type)
    refuse_header(str("tensor ", tensor, ": \"", name, "\" is missing or no ",
                      type == Json::value_t::array ? "list" : "text"));
  return *found;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const std::int64_t size : shape) text += str(text.size() > 1 ? ", " : "", size);
  return text + "]";
}

// Number of bytes of the shape.
std::uint64_t byte_count(const SafetensorsTensor& tensor) {
  const auto count = shape_bytes(tensor.shape, safetensors_dtype_size(tensor.dtype));
  if (!count)
    refuse_header(str("tensor ", in_quotes(tensor.name, NAME_SHOWN), ": shape ", shape_text(tensor.shape),
                      " overflows"));
  return *count;
}

SafetensorsTensor parse_entry(const std::string& name, const Json& entry) {
  const std::string tensor = in_quotes(name, NAME_SHOWN);
  if (!entry.is_object()) refuse_header(str("tensor ", tensor, ": its entry is not an object"));
  if (entry.size() != 3)
    refuse_header(
        str("tensor ", tensor, ": its entry must hold dtype, shape and data_offsets and nothing else"));
  SafetensorsTensor result;
  result.name = name;
  result.dtype = field(entry, tensor, "dtype", Json::value_t::string).get<std::string>();
  if (safetensors_dtype_size(result.dtype) == 0)
    refuse_header(str("tensor ", tensor, ": unknown dtype ", in_quotes(result.dtype, NAME_SHOWN)));
  for (const Json& size : field(entry, tensor, "shape", Json::value_t::array))
    result.shape.push_back(static_cast<std::int64_t>(unsigned_number(size, tensor, "shape")));
  const Json& offsets = field(entry, tensor, "data_offsets", Json::value_t::array);
  if (offsets.size() != 2) refuse_header(str("tensor ", tensor, ": data_offsets must hold two numbers"));
  result.begin = unsigned_number(offsets[0], tensor, "data_offsets");
  result.end = unsigned_number(offsets[1], tensor, "data_offsets");
  if (result.begin > result.end)
    refuse_header(
        str("tensor ", tensor, ": it ends at byte ", result.end, ", before it begins at ", result.begin));
  if (const std::uint64_t needed = byte_count(result); needed != result.size())
    refuse_header(str("tensor ", tensor, ": ", result.dtype, shape_text(result.shape), " needs ", needed,
                      " bytes, its data_offsets span ", result.size()));
  return result;
}

SafetensorsMetadata parse_metadata(const Json& entry) {
  if (!entry.is_object()) refuse_header("__metadata__ is not an object");
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : entry.items()) {
    if (!value.is_string()) refuse_header(str("__metadata__ ", in_quotes(key, NAME_SHOWN), " is not text"));
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// Takes the header's entries one after the other as they are parsed. nlohmann's own parser would keep the
// last of two equal keys and follow any depth. Its time would grow with the square of the number of entries.
class HeaderReader : public Json::json_sax_t {
 public:
  SafetensorsHeader header;

  bool null() override { return put(nullptr); }
  bool boolean(bool value) override { return put(value); }
  bool number_integer(number_integer_t value) override { return put(value); }
  bool number_unsigned(number_unsigned_t value) override { return put(value); }
  bool number_float(number_float_t value, const string_t& /*text*/) override { return put(value); }
  bool string(string_t& value) override { return put(std::move(value)); }
  bool binary(binary_t& /*value*/) override { return false; }  // does not occur in JSON text
  bool start_object(std::size_t /*elements*/) override {
    keys_.emplace_back();
    return is_root() ? true : open(Json::object());
  }
  bool start_array(std::size_t /*elements*/) override { return open(Json::array()); }
  bool end_object() override {
    keys_.pop_back();
    return keys_.empty() ? true : close();
  }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!keys_.back().insert(name).second)
      refuse_header(str("the name ", in_quotes(name, NAME_SHOWN), " occurs twice in its header"));
    (is_root() ? name_ : fields_.back()) = std::move(name);
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& error) override {
    refuse_header(str("its header is not JSON: ", printable(error.what())));
  }

 private:
  bool is_root() const { return open_.empty() && keys_.size() == 1; }

  bool open(Json value) {
    if (static_cast<int>(open_.size()) >= DEEPEST_VALUE) refuse_header("its header is nested too deeply");
    open_.push_back(std::move(value));
    fields_.emplace_back();
    return true;
  }
  bool close() {
    Json value = std::move(open_.back());
    open_.pop_back();
    fields_.pop_back();
    return put(std::move(value));
  }
  bool put(Json value) {
    if (open_.empty()) {
      take_entry(value);
    } else if (open_.back().is_array()) {
      open_.back().push_back(std::move(value));
    } else {
      open_.back()[fields_.back()] = std::move(value);
    }
    return true;
  }
  void take_entry(const Json& entry) {
    if (name_ == "__metadata__") {
      header.metadata = parse_metadata(entry);
    } else {
      header.tensors.push_back(parse_entry(name_, entry));
    }
  }

  std::vector<std::unordered_set<std::string>>
      keys_;                         // those read so far, of each open object; the header's first
  std::string name_;                 // of the next entry
  std::vector<Json> open_;           // parts of this entry that have begun and not ended
  std::vector<std::string> fields_;  // the last key of each of these
};

// Every byte belongs to exactly one tensor.
void check_layout(std::vector<SafetensorsTensor>& tensors, std::uint64_t data_size) {
  std::sort(tensors.begin(), tensors.end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  std::uint64_t position = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    if (tensor.begin > position)
      refuse_header(str("bytes ", position, " to ", tensor.begin, " of its data belong to no tensor"));
    if (tensor.begin < position)
      refuse_header(str("tensor ", in_quotes(tensor.name, NAME_SHOWN), " overlaps the one before it at byte ",
                        tensor.begin));
    position = tensor.end;
  }
  if (position > data_size)
    refuse_header(str("truncated: its tensors need ", position, " bytes of data, it holds ", data_size));
  if (position < data_size)
    refuse_header(str(data_size - position, " bytes after the last tensor belong to no tensor"));
}

}  // namespace

std::size_t safetensors_dtype_size(std::string_view dtype) {
  const auto* row = std::find_if(DTYPE_SIZES.begin(), DTYPE_SIZES.end(),
                                 [&](const auto& entry) { return entry.first == dtype; });
  return row == DTYPE_SIZES.end() ? 0 : row->second;
}

SafetensorsHeader parse_safetensors_header(std::string_view json, std::uint64_t data_size) {
  if (json.empty() || json.front() != '{') refuse_header("its header does not start with '{'");
  HeaderReader reader;
  Json::sax_parse(json, &reader);
  check_layout(reader.header.tensors, data_size);
  return std::move(reader.header);
}

}  // namespace lockstep
