#include "lockstep/formats/safetensors_index.h"

#include <nlohmann/json.hpp>
#include <unordered_set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/plain_file.h"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr std::size_t INDEX_NAME_SHOWN = 100;
constexpr std::uint64_t MAX_BYTES = 100'000'000;
constexpr int DEEPEST_METADATA = 64;  // of the values of "metadata"

// Takes the entries one after the other as they are parsed. A parsed document would keep the last of two
// equal names.
class IndexParser : public Json::json_sax_t {
 public:
  std::vector<std::pair<std::string, std::string>> entries;  // tensor, file
  bool has_map = false;

  bool null() override { return value(); }
  bool boolean(bool /*value*/) override { return value(); }
  bool number_integer(number_integer_t /*value*/) override { return value(); }
  bool number_unsigned(number_unsigned_t /*value*/) override { return value(); }
  bool number_float(number_float_t /*value*/, const string_t& /*text*/) override { return value(); }
  bool binary(binary_t& /*value*/) override { return false; }  // does not occur in JSON text
  bool string(string_t& text) override {
    if (!is_in_map()) return value();
    entries.emplace_back(name_, std::move(text));
    return true;
  }
  bool start_object(std::size_t /*elements*/) override { return open(true); }
  bool start_array(std::size_t /*elements*/) override { return open(false); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (depth_ == 1) {
      section_ = name;
      if (name == "weight_map" && std::exchange(has_map, true)) throw FormatError("it has two weight_maps");
    } else if (is_in_map() && !names_.insert(name).second) {
      throw FormatError(str("the name ", in_quotes(name, INDEX_NAME_SHOWN), " occurs twice"));
    }
    name_ = std::move(name);
    return true;
  }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const Json::exception& error) override {
    throw FormatError(str("it is not JSON: ", printable(error.what())));
  }

 private:
  bool is_in_map() const { return depth_ == 2 && section_ == "weight_map"; }
  bool value() const {
    if (depth_ == 0 || is_in_map() || (depth_ == 1 && section_ == "weight_map"))
      throw FormatError("its weight_map must hold names and files, both texts");
    return true;
  }
  bool open(bool is_object) {
    if (depth_ == 0 ? !is_object : is_in_map() || (depth_ == 1 && section_ == "weight_map" && !is_object))
      value();
    if (++depth_ > DEEPEST_METADATA) throw FormatError("it is nested too deeply");
    return true;
  }
  bool close() {
    --depth_;
    return true;
  }

  int depth_ = 0;
  std::string section_;  // the last key of the document
  std::string name_;     // the last key
  std::unordered_set<std::string> names_;
};

void check_file_name(const std::string& tensor, const std::string& file) {
  if (file.empty() || file == "." || file == ".." || file.find('/') != std::string::npos ||
      file.find('\0') != std::string::npos)
    throw FormatError(str("tensor ", in_quotes(tensor, INDEX_NAME_SHOWN), " lies in ",
                          in_quotes(file, INDEX_NAME_SHOWN),
                          ", which is not a file in the index's own folder"));
}

}  // namespace

SafetensorsIndex read_safetensors_index(const std::string& path) {
  const PlainFile plain(path);
  const std::size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  try {
    if (plain.size() > MAX_BYTES)
      throw FormatError(str("it has ", plain.size(), " bytes; at most ", MAX_BYTES, " are read"));
    IndexParser parser;
    Json::sax_parse(read_plain_file(path), &parser);
    if (!parser.has_map) throw FormatError("it has no weight_map");
    SafetensorsIndex index;
    for (auto& [tensor, file] : parser.entries) {
      check_file_name(tensor, file);
      index[folder + file].push_back(std::move(tensor));
    }
    return index;
  } catch (const FormatError& defect) {
    throw FormatError(str("index ", in_quotes(path), " of safetensors files: ", defect.what()));
  }
}

}  // namespace lockstep
