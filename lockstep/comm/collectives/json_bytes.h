// A JSON value as the bytes in which it travels, and back.
//
//   const std::string bytes = json_bytes({{"loss", NAN}});
//   nlohmann::json value = json_of(bytes);                      // the same: NaN, not null
//
// Carries     every value that nlohmann::json holds: NaN and infinity, for which JSON's text has no words,
//             strings and keys that are not UTF-8, and byte strings with their subtype. -0.0 and every bit
//             of a double stay.
// Format      MessagePack behind the byte 0xc1, with which neither MessagePack nor UTF-8 text can begin.
//             json_of also reads JSON's text.
// Fails       json_bytes: InvalidArgument for a value that is no JSON (discarded), is nested deeper than
//             MAX_JSON_DEPTH, or has a subtype above 255. json_of: FormatError; no byte is trusted. Both
//             give the reason only; the caller, which knows the ranks, adds them.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace lockstep::comm {

inline constexpr int MAX_JSON_DEPTH = 1000;  // reading and writing recurse

std::string json_bytes(const nlohmann::json& value);
nlohmann::json json_of(const std::string& bytes);

}  // namespace lockstep::comm
