#include "cli/arguments.h"

#include <algorithm>

#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

// "--nproc_per_node=4" -> "--nproc-per-node=4"
std::string dashed(std::string text) {
  const auto end = std::min(text.find('='), text.size());
  std::replace(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(end), '_', '-');
  return text;
}

std::string hint(const std::string& word, std::span<const Option> known) {
  std::vector<std::string> names;
  for (const auto& option : known) names.push_back(option.name);
  const std::string close = nearest(dashed(word.substr(0, word.find('='))), names);
  return close.empty() ? "" : str("; did you mean ", close, "?");
}

const Option* find_long(const std::string& name, std::span<const Option> known) {
  const auto found =
      std::find_if(known.begin(), known.end(), [&](const Option& option) { return option.name == name; });
  return found == known.end() ? nullptr : &*found;
}

const Option* find_letter(const std::string& text, std::span<const Option> known) {
  const auto found = std::find_if(known.begin(), known.end(), [&](const Option& option) {
    return !option.letter.empty() && text.starts_with(option.letter);
  });
  return found == known.end() ? nullptr : &*found;
}

// Takes the option that starts at arguments[next], with its value. Moves `next` behind it.
void take_option(std::span<const std::string> arguments, std::size_t& next, std::span<const Option> known,
                 const char* command, std::vector<std::string>& options) {
  const std::string& word = arguments[next++];
  const bool is_long = word.starts_with("--");
  const std::string text = is_long ? dashed(word) : word;
  const auto equals = is_long ? text.find('=') : std::string::npos;
  const Option* option = is_long ? find_long(text.substr(0, equals), known) : find_letter(text, known);
  if (option == nullptr || (!is_long && !option->takes_value && text != option->letter)) {
    throw UsageError(str(command, " has no option ", printable(word), hint(word, known)));
  }
  options.push_back(option->name);
  if (!option->takes_value) {
    if (equals != std::string::npos) throw UsageError(str(option->name, " takes no value"));
  } else if (equals != std::string::npos && equals + 1 < text.size()) {
    options.push_back(text.substr(equals + 1));
  } else if (!is_long && text.size() > option->letter.size()) {
    options.push_back(text.substr(option->letter.size()));  // -n4
  } else if (equals == std::string::npos && next < arguments.size()) {
    options.push_back(arguments[next++]);
  } else {
    throw UsageError(str(option->name, " needs a value"));
  }
}

}  // namespace

Arguments split_arguments(std::span<const std::string> arguments, std::span<const Option> known,
                          const char* command) {
  Arguments result;
  std::size_t next = 0;
  while (next < arguments.size() && arguments[next].starts_with('-') && arguments[next] != "--") {
    take_option(arguments, next, known, command, result.options);
  }
  if (next < arguments.size() && arguments[next] == "--") ++next;
  result.program.assign(arguments.begin() + static_cast<std::ptrdiff_t>(next), arguments.end());
  if (!result.program.empty() && result.program[0].starts_with('-')) {
    const std::string& program = result.program[0];
    const std::string close = hint(program, known);
    throw UsageError(
        str("a program cannot start with '-': ", printable(program),
            close.empty() ? str("; did you mean ./", printable(program), "?") : close + " (before the --)"));
  }
  return result;
}

}  // namespace lockstep::cli
