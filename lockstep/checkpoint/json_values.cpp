#include "lockstep/checkpoint/json_values.h"

#include <cmath>
#include <limits>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

using nlohmann::json;

constexpr const char* FLOAT = "float";

const char* word_of(double number) {
  if (std::isnan(number)) return "NaN";
  return number > 0 ? "Infinity" : "-Infinity";
}

bool is_marked(const json& value) { return value.is_object() && value.size() == 1 && value.contains(FLOAT); }

void expect_text(const json& text, const std::string& item) {
  try {
    (void)text.dump();
  } catch (const json::exception&) {
    throw InvalidArgument(
        str("checkpoint: the value of ", in_quotes(item), " holds a string that is not UTF-8"));
  }
}

json with_parts(const json& value, const std::string& item) {
  json stored = value;
  if (value.is_object()) {
    for (const auto& [key, part] : value.items()) {
      expect_text(json(key), item);
      stored[key] = value_to_text(part, item);
    }
  } else {
    for (std::size_t i = 0; i < value.size(); ++i) stored[i] = value_to_text(value[i], item);
  }
  return is_marked(value) ? json{{FLOAT, stored}} : stored;
}

}  // namespace

json value_to_text(const json& value, const std::string& item) {
  if (value.is_binary())
    throw InvalidArgument(
        str("checkpoint: the value of ", in_quotes(item), " holds bytes; add them as a tensor"));
  if (value.is_number_float() && !std::isfinite(value.get<double>()))
    return {{FLOAT, word_of(value.get<double>())}};
  if (value.is_string()) expect_text(value, item);
  return value.is_structured() ? with_parts(value, item) : value;
}

json value_from_text(const json& stored) {
  if (is_marked(stored) && stored.at(FLOAT).is_string()) {
    const auto word = stored.at(FLOAT).get<std::string>();
    if (word == "NaN") return std::numeric_limits<double>::quiet_NaN();
    return word == "Infinity" ? std::numeric_limits<double>::infinity()
                              : -std::numeric_limits<double>::infinity();
  }
  if (is_marked(stored) && stored.at(FLOAT).is_object()) {
    json value = stored.at(FLOAT);
    for (auto& part : value) part = value_from_text(part);
    return value;
  }
  json value = stored;
  if (value.is_structured())
    for (auto& part : value) part = value_from_text(part);
  return value;
}

}  // namespace lockstep
