#include "cli/deepspeed/launch_words.h"

#include <algorithm>
#include <string_view>

#include "lockstep/base/str.h"

namespace lockstep::cli {
namespace {

std::string shell_word(const std::string& word) {
  constexpr std::string_view PLAIN =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-+=./:,@%";
  if (!word.empty() && word.find_first_not_of(PLAIN) == std::string::npos) return word;
  std::string quoted = "'";
  for (const char letter : word) quoted += letter == '\'' ? std::string("'\\''") : std::string(1, letter);
  return quoted + "'";
}

}  // namespace

std::vector<std::string> run_words(const DeepSpeedLaunch& launch) {
  const Host& host = launch.hosts[static_cast<std::size_t>(launch.node)];
  std::vector<std::string> words = {"--nproc-per-node", std::to_string(host.slots.size())};
  const auto add = [&](std::initializer_list<std::string> more) {
    words.insert(words.end(), more.begin(), more.end());
  };
  if (launch.hosts.size() > 1)
    add({"--nnodes", std::to_string(launch.hosts.size()), "--node-rank", std::to_string(launch.node),
         "--master-addr", launch.master_addr.empty() ? launch.hosts[0].name : launch.master_addr,
         "--master-port", launch.master_port});
  words.insert(words.end(), launch.options.begin(), launch.options.end());
  if (host.slots != slots_below(static_cast<int>(host.slots.size()))) {
    std::string devices;
    for (const int slot : host.slots) devices += str(devices.empty() ? "" : ",", slot);
    add({"env", "CUDA_VISIBLE_DEVICES=" + devices});
  }
  words.insert(words.end(), launch.program.begin(), launch.program.end());
  return words;
}

std::string commands_of_all_nodes(DeepSpeedLaunch launch) {
  std::string text;
  for (launch.node = 0; launch.node < static_cast<int>(launch.hosts.size()); ++launch.node) {
    text += str("  ", launch.hosts[static_cast<std::size_t>(launch.node)].name, ": lockstep run");
    for (const std::string& word : run_words(launch)) text += " " + shell_word(word);
    text += '\n';
  }
  return text;
}

}  // namespace lockstep::cli
