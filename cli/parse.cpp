#include "cli/parse.h"

#include <algorithm>

#include "cli/arguments.h"

namespace lockstep::cli {

using namespace std::string_literals;

std::optional<int> parse(CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> words(arguments.rbegin(), arguments.rend());  // CLI11 wants them reversed
  if (app.get_option_no_throw("-n") != nullptr) std::replace(words.begin(), words.end(), "-np"s, "-n"s);
  try {
    app.parse(std::move(words));
  } catch (const CLI::Success& help) {
    return app.exit(help);
  } catch (const CLI::ParseError& error) {
    throw UsageError(error.what());
  }
  return std::nullopt;
}

}  // namespace lockstep::cli
