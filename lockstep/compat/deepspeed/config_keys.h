// The keys of DeepSpeed's configuration, in one table: of what type each is, and what it does here.
//
//   const ConfigKey* key = find_config_key("zero_optimization.stage");   // null: DeepSpeed has no such key
//   std::cout << config_keys_as_markdown();                              // the table of docs/deepspeed.md
//
// Params      of an optimiser and of a scheduler depend on its type: "optimizer.params[AdamW].lr".
// SERVED      the key does what it does in DeepSpeed.
// NO_EFFECT   accepted and reported, with the reason.
// REFUSED     an error, with the reason, unless the value is `harmless`, which asks for nothing. A section is
//             harmless if it says "enabled": false.
// Source      DeepSpeed 0.17: runtime/constants.py, runtime/config.py, runtime/zero/config.py,
//             runtime/zero/offload_config.py, runtime/precision_config.py, monitor/config.py.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lockstep::compat::deepspeed {

enum class KeyType { BOOL, INTEGER, NUMBER, TEXT, NUMBERS, SECTION, ANYTHING };
enum class KeyEffect { SERVED, NO_EFFECT, REFUSED };

struct ConfigKey {
  std::string path;
  KeyType type;
  KeyEffect effect;
  std::string_view what;      // SERVED: what it does; otherwise why not
  std::string_view harmless;  // JSON; REFUSED only
};

const std::vector<ConfigKey>& config_keys();
const ConfigKey* find_config_key(std::string_view path);
// Names of the keys of a section, "" for the outermost: "stage" of "zero_optimization".
std::vector<std::string> keys_of_section(std::string_view section);
// "an integer"
std::string_view to_string(KeyType type);
std::string config_keys_as_markdown();

}  // namespace lockstep::compat::deepspeed
