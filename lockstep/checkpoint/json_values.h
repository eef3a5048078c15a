// A program's JSON values in the form of a checkpoint's index, which is a text. JSON cannot express NaN and
// infinity, so such a number becomes the object {"float": "NaN"}. An object with that one key becomes
// {"float": {…}}. Pure.
//
//   const nlohmann::json stored = value_to_text(value, "epoch");
//   value == value_from_text(stored);
//
// Throws InvalidArgument that names the item, for a string that is not UTF-8 and for binary values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

nlohmann::json value_to_text(const nlohmann::json& value, const std::string& item);
nlohmann::json value_from_text(const nlohmann::json& stored);

}  // namespace lockstep
