#include "lockstep/comm/collectives/json_bytes.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::comm {
namespace {

using nlohmann::json;

constexpr char MARK = '\xc1';

void check_value(const json& value, int depth) {
  if (value.is_discarded())
    throw InvalidArgument("it has a part that is not JSON (the result of a failed parse)");
  if (depth > MAX_JSON_DEPTH) throw InvalidArgument(str("it is nested more than ", MAX_JSON_DEPTH, " deep"));
  if (value.is_binary() && value.get_binary().has_subtype() && value.get_binary().subtype() > 255)
    throw InvalidArgument(
        str("it has bytes of subtype ", value.get_binary().subtype(), "; subtypes end at 255"));
}

// Not recursive, because it must also check values that are nested too deep for recursion.
void check(const json& whole) {
  check_value(whole, 0);
  // Objects and arrays whose parts are not checked yet.
  std::vector<std::pair<const json*, int>> left = {{&whole, 0}};
  while (!left.empty()) {
    const auto [value, depth] = left.back();
    left.pop_back();
    if (!value->is_structured()) continue;
    for (const json& part : *value) {
      check_value(part, depth + 1);
      if (part.is_structured()) left.emplace_back(&part, depth + 1);
    }
  }
}

// Builds the value while it is read, and stops if it is nested too deep.
class Reader final : public json::json_sax_t {
 public:
  json take() { return std::move(root_); }
  const std::string& failure() const { return failure_; }

  bool null() override { return put(nullptr) != nullptr; }
  bool boolean(bool value) override { return put(value) != nullptr; }
  bool number_integer(json::number_integer_t value) override { return put(value) != nullptr; }
  bool number_unsigned(json::number_unsigned_t value) override { return put(value) != nullptr; }
  bool number_float(json::number_float_t value, const std::string& /*text*/) override {
    return put(value) != nullptr;
  }
  bool string(std::string& value) override { return put(std::move(value)) != nullptr; }
  bool binary(json::binary_t& value) override { return put(json::binary_t(std::move(value))) != nullptr; }
  bool start_object(std::size_t /*size*/) override { return open(json::object()); }
  bool key(std::string& value) override {
    key_ = std::move(value);
    return true;
  }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*size*/) override { return open(json::array()); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t /*position*/, const std::string& /*token*/,
                   const nlohmann::detail::exception& error) override {
    failure_ = error.what();
    return false;
  }

 private:
  json* put(json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& into = *open_.back();
    if (into.is_array()) {
      into.push_back(std::move(value));
      return &into.back();
    }
    return &(into[key_] = std::move(value));
  }
  bool open(json empty) {
    if (open_.size() > MAX_JSON_DEPTH) {
      failure_ = str("it is nested more than ", MAX_JSON_DEPTH, " deep");
      return false;
    }
    open_.push_back(put(std::move(empty)));
    return true;
  }
  bool close() {
    open_.pop_back();
    return true;
  }

  json root_;
  std::vector<json*> open_;  // the objects and arrays that are being read, the outermost first
  std::string key_;
  std::string failure_;
};

}  // namespace

std::string json_bytes(const json& value) {
  check(value);
  std::string bytes(1, MARK);
  json::to_msgpack(value, bytes);
  return bytes;
}

json json_of(const std::string& bytes) {
  const bool is_text = bytes.empty() || bytes.front() != MARK;
  Reader reader;
  const bool is_read = json::sax_parse(bytes.begin() + (is_text ? 0 : 1), bytes.end(), &reader,
                                       is_text ? json::input_format_t::json : json::input_format_t::msgpack);
  if (!is_read) throw FormatError(printable(reader.failure()));
  return reader.take();
}

}  // namespace lockstep::comm
