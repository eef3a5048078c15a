// A program's JSON values as they stand in a checkpoint's index, which is a text: JSON has no words for NaN
// and infinity, so these numbers become the object {"float": "NaN"} and an object with that one key becomes
// {"float": {…}}. Pure.
//
//   const nlohmann::json stored = value_to_text(value, "epoch");
//   value == value_from_text(stored);
//
// Throws InvalidArgument, naming the item, for a string that is not UTF-8 and for binary values.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace lockstep {

nlohmann::json value_to_text(const nlohmann::json& value, const std::string& item);
nlohmann::json value_from_text(const nlohmann::json& stored);

}  // namespace lockstep
