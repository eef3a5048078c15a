#include "cli/parse.h"

#include <algorithm>

#include "cli/arguments.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"

namespace lockstep::cli {

using namespace std::string_literals;

namespace {

// Returns a hint about the first option that the command does not have.
std::string hint_at_option(const CLI::App& app) {
  std::vector<const CLI::App*> commands = {&app};
  for (const CLI::App* command : app.get_subcommands()) commands.push_back(command);
  std::vector<std::string> names;
  for (const CLI::App* command : commands)
    for (const CLI::Option* option : command->get_options())
      for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const std::string& word : app.remaining(/*recurse=*/true)) {
    if (!word.starts_with("--")) continue;
    const std::string close = nearest(word.substr(0, word.find('=')), names);
    return close.empty() ? "" : str("; did you mean ", close, "?");
  }
  return "";
}

}  // namespace

std::optional<int> parse(CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> words(arguments.rbegin(), arguments.rend());  // CLI11 wants them reversed
  if (app.get_option_no_throw("-n") != nullptr) std::replace(words.begin(), words.end(), "-np"s, "-n"s);
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ExtrasError& error) {
    throw UsageError(error.what() + hint_at_option(app));
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return std::nullopt;
}

}  // namespace lockstep::cli
