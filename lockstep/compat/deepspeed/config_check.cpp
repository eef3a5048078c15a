#include "lockstep/compat/deepspeed/config_check.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/compat/deepspeed/config_keys.h"

namespace lockstep::compat::deepspeed {
namespace {

using Json = nlohmann::json;

bool is_integral(const Json& value) {
  if (value.is_number_integer()) return true;
  constexpr double EXACT = 9007199254740992;  // 2^53
  return value.is_number_float() && std::abs(value.get<double>()) <= EXACT &&
         value.get<double>() == std::floor(value.get<double>());
}

bool is_list_of_numbers(const Json& value) {
  return value.is_array() &&
         std::all_of(value.begin(), value.end(), [](const Json& one) { return one.is_number(); });
}

bool has_type(const Json& value, KeyType type) {
  switch (type) {
    case KeyType::BOOL: return value.is_boolean();
    case KeyType::INTEGER: return is_integral(value);
    case KeyType::NUMBER: return value.is_number();
    case KeyType::TEXT: return value.is_string();
    case KeyType::NUMBERS: return is_list_of_numbers(value);
    case KeyType::SECTION: return value.is_object();
    case KeyType::ANYTHING: return true;
  }
  return false;
}

bool is_harmless(const Json& value, const ConfigKey& key) {
  if (!key.harmless.empty()) return value == Json::parse(key.harmless);
  if (value.is_boolean()) return !value.get<bool>();
  return value.is_object() && value.contains("enabled") && value["enabled"] == Json(false);
}

// Names of the types of an optimiser or a scheduler, as the table of keys has them.
constexpr std::array OPTIMIZERS = std::to_array<std::string_view>({"Adam", "AdamW", "SGD", "Lamb"});
constexpr std::array SCHEDULERS = std::to_array<std::string_view>(
    {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR", "OneCycle", "LRRangeTest"});

bool same_letters(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

class KeyCheck {
 public:
  explicit KeyCheck(std::vector<std::string>& notes) : notes_(notes) {}

  // `shown` is how messages call the section, `section` how the table does.
  void check_section(const Json& json, const std::string& shown, const std::string& section) {
    for (const auto& [key, value] : json.items()) {
      const ConfigKey* const known = find_config_key(below(section, key));
      if (known == nullptr) refuse_unknown(key, shown, section);
      if (value.is_null()) continue;
      check_value(value, below(shown, key), *known);
    }
    if (section != "optimizer" && section != "scheduler") return;
    const std::string type = chosen_type(json, section);
    const auto params = json.find("params");
    if (params == json.end() || params->is_null()) return;
    check_section(*params, shown + ".params", lockstep::str(section, ".params[", type, ']'));
  }

 private:
  void check_value(const Json& value, const std::string& path, const ConfigKey& key) {
    if (value == Json("auto"))
      refuse_config(path + " is \"auto\": Hugging Face's Trainer replaces that word; write the value");
    if (!has_type(value, key.type))
      refuse_config(lockstep::str(path, " is ",
                                  printable(value.dump(-1, ' ', true, Json::error_handler_t::replace)),
                                  " and must be ", to_string(key.type)));
    if (key.effect == KeyEffect::REFUSED && !is_harmless(value, key))
      refuse_config(lockstep::str(path, " is not possible: ", key.what));
    if (key.effect == KeyEffect::NO_EFFECT)
      notes_.push_back(lockstep::str(path, " has no effect: ", key.what));
    if (key.type == KeyType::SECTION && !key.path.ends_with(".params")) check_section(value, path, key.path);
  }

  [[noreturn]] static void refuse_unknown(const std::string& key, const std::string& shown,
                                          const std::string& section) {
    const std::vector<std::string> names = keys_of_section(section);
    std::string close = nearest(key, names);
    std::string elsewhere;
    for (const ConfigKey& one : config_keys()) {
      if (close.empty() && elsewhere.empty() && one.path.ends_with("." + key)) elsewhere = one.path;
    }
    const std::string hint = !close.empty()      ? lockstep::str("; did you mean ", below(shown, close), "?")
                             : elsewhere.empty() ? ""
                                                 : lockstep::str("; there is ", elsewhere);
    refuse_config(lockstep::str(printable(below(shown, key)), " is not a key of DeepSpeed", hint));
  }

  std::vector<std::string>& notes_;
};

}  // namespace

void refuse_config(const std::string& what) { throw InvalidArgument("DeepSpeed config: " + what); }

std::string below(const std::string& path, const std::string& key) {
  return path.empty() ? key : path + "." + key;
}

std::string chosen_type(const nlohmann::json& section, const std::string& path) {
  if (!section.contains("type")) refuse_config(path + " needs a type");
  const std::string& type = section["type"].get_ref<const std::string&>();
  const bool is_optimizer = path == "optimizer";
  std::vector<std::string> names;
  std::string list, close;
  for (const std::string_view name : is_optimizer ? std::span<const std::string_view>(OPTIMIZERS)
                                                  : std::span<const std::string_view>(SCHEDULERS)) {
    if (name == type || (is_optimizer && same_letters(name, type))) return std::string(name);
    if (same_letters(name, type)) close = name;
    names.emplace_back(name);
    list += lockstep::str(list.empty() ? "" : ", ", name);
  }
  if (close.empty()) close = nearest(type, names);
  refuse_config(lockstep::str(path, ".type is ", in_quotes(type), "; served are ", list,
                              close.empty() ? "" : lockstep::str("; did you mean ", close, "?")));
}

void check_group_options(const nlohmann::json& options, const std::string& shown, const std::string& type) {
  if (!options.is_object()) refuse_config(shown + " is no JSON object");
  const std::string section = lockstep::str("optimizer.params[", type, ']');
  std::vector<std::string> notes;
  KeyCheck(notes).check_section(options, shown, section);
  for (const auto& [key, value] : options.items()) {
    const bool is_of_all = key == "adam_w_mode" || key == "torch_adam";
    if (is_of_all || find_config_key(below(section, key))->effect != KeyEffect::SERVED)
      refuse_config(below(shown, key) + " cannot differ from group to group; write it in optimizer.params");
  }
}

std::vector<std::string> check_config(const nlohmann::json& json) {
  if (!json.is_object()) refuse_config("it is no JSON object");
  std::vector<std::string> notes;
  KeyCheck(notes).check_section(json, "", "");
  return notes;
}

}  // namespace lockstep::compat::deepspeed
