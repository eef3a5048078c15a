// Whether a configuration has DeepSpeed's keys, each with a value of its type (config_keys.h), before anybody
// reads it. Used by config.cpp.
//
//   const std::vector<std::string> notes = check_config(json);    // "aio.use_gds has no effect: ..."
//   const std::string type = chosen_type(json["optimizer"], "optimizer");
//
// Throws  InvalidArgument that names the key's path.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace lockstep::compat::deepspeed {

// The keys that have no effect here, with the reason.
std::vector<std::string> check_config(const nlohmann::json& json);
// Of the section "optimizer" or "scheduler", as the table writes it: "AdamW" for "adamw". DeepSpeed takes
// optimisers in any letters, and schedulers only as they are written.
std::string chosen_type(const nlohmann::json& section, const std::string& path);

// The options of a parameter group of an optimiser of this type ("AdamW"), which messages call `shown`: keys
// of "optimizer.params" that can differ from group to group.
void check_group_options(const nlohmann::json& options, const std::string& shown, const std::string& type);

// Throws InvalidArgument.
[[noreturn]] void refuse_config(const std::string& what);
// "zero_optimization.stage"
std::string below(const std::string& path, const std::string& key);

}  // namespace lockstep::compat::deepspeed
