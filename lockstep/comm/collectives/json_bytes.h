// json_bytes, json_of: convert a JSON value to the bytes of a message, and back.
//
//   const std::string bytes = json_bytes({{"loss", NAN}});
//   nlohmann::json value = json_of(bytes);                      // the same value: NaN stays NaN
//
// Carries     every value that nlohmann::json holds: NaN and infinity, which JSON text cannot express,
//             strings and keys that are not UTF-8, and byte strings with their subtype. -0.0 and every bit of
//             a double are kept.
// Format      MessagePack after the byte 0xc1, with which neither MessagePack nor UTF-8 text can begin.
//             json_of() also reads JSON text.
// Fails       json_bytes: InvalidArgument for a value that is not JSON (discarded), that is nested deeper
//             than MAX_JSON_DEPTH, or that has a subtype above 255. json_of: FormatError; it trusts no byte.
//             Both messages only have the reason: the caller knows the ranks and adds them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::comm {

inline constexpr int MAX_JSON_DEPTH = 1000;  // reading and writing recurse

std::string json_bytes(const nlohmann::json& value);
nlohmann::json json_of(const std::string& bytes);

}  // namespace lockstep::comm
