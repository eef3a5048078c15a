#include "lockstep/launch/launch_plan.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Variables that describe a rank's place. The launcher may itself be a rank, so inherited ones are dropped.
constexpr std::array PLACE = std::to_array<std::string_view>({"RANK",
                                                              "WORLD_SIZE",
                                                              "LOCAL_RANK",
                                                              "LOCAL_WORLD_SIZE",
                                                              "MASTER_ADDR",
                                                              "MASTER_PORT",
                                                              "LOCKSTEP_JOB_ID",
                                                              "GROUP_RANK",
                                                              "GROUP_WORLD_SIZE",
                                                              "ROLE_RANK",
                                                              "ROLE_WORLD_SIZE",
                                                              "LOCKSTEP_STORE",
                                                              "LOCKSTEP_RESTART_COUNT",
                                                              "LOCKSTEP_SECRET_FD",
                                                              "LOCKSTEP_FAILURE_FD",
                                                              "TORCHELASTIC_RUN_ID",
                                                              "TORCHELASTIC_RESTART_COUNT",
                                                              "TORCHELASTIC_USE_AGENT_STORE",
                                                              "LOCKSTEP_HUB_FDS",
                                                              "LOCKSTEP_TERMINAL",
                                                              "LOCKSTEP_LOG_DIR",
                                                              "LOCKSTEP_SPAWN"});

constexpr std::string_view THREADS = "OMP_NUM_THREADS";

std::string_view name_of(std::string_view variable) { return variable.substr(0, variable.find('=')); }

std::optional<std::string> value_in(const std::vector<std::string>& environment, std::string_view name) {
  for (const auto& variable : environment) {
    if (name_of(variable) == name && variable.size() > name.size() + 1)
      return variable.substr(name.size() + 1);
  }
  return std::nullopt;
}

std::vector<std::string> variables_of(const LaunchSpec& spec, const JobFacts& facts, int rank, int threads) {
  const NodePlace& place = spec.place;
  const int world_size = place.world_size > 0 ? place.world_size : spec.ranks;
  std::vector<std::string> out = {
      str("RANK=", place.first_rank + rank),
      str("WORLD_SIZE=", world_size),
      str("LOCAL_RANK=", rank),
      str("LOCAL_WORLD_SIZE=", spec.ranks),
      str("GROUP_RANK=", place.node),
      str("GROUP_WORLD_SIZE=", place.nodes),
      str("ROLE_RANK=", place.first_rank + rank),
      str("ROLE_WORLD_SIZE=", world_size),
      "MASTER_ADDR=" + place.master_addr,
      str("MASTER_PORT=", place.master_port > 0 ? place.master_port : facts.master_port),
      "LOCKSTEP_JOB_ID=" + facts.job_id,
  };
  for (const char* name : {"LOCKSTEP_RESTART_COUNT=", "TORCHELASTIC_RESTART_COUNT="})
    out.push_back(str(name, facts.restarts));
  if (place.nodes > 1) out.emplace_back("LOCKSTEP_STORE=launcher");
  if (threads > 0) out.push_back(str(THREADS, "=", threads));
  if (!facts.log_folder.empty()) out.push_back("LOCKSTEP_LOG_DIR=" + facts.log_folder);
  if (place.first_rank + rank == 0 && facts.terminal_columns > 0)
    out.push_back(str("LOCKSTEP_TERMINAL=", facts.terminal_columns));
  for (const auto& [name, value] : spec.environment) {
    const auto is_same = [&, &name = name](const std::string& other) { return name_of(other) == name; };
    // The user's variables replace the launcher's.
    out.erase(std::remove_if(out.begin(), out.end(), is_same), out.end());
    out.push_back(str(name, "=", value));
  }
  return out;
}

std::string quoted_argument(const std::string& argument) {
  const bool plain = !argument.empty() && argument.find_first_of(" \t\"'\\$`") == std::string::npos;
  return plain ? printable(argument, 4096) : "'" + printable(argument, 4096) + "'";
}

}  // namespace

LaunchPlan launch_plan(const LaunchSpec& spec, const JobFacts& facts) {
  LaunchPlan plan;
  plan.command = spec.command;
  plan.first_rank = spec.place.first_rank;
  plan.has_hub = spec.place.nodes == 1 && spec.ranks > 1;
  plan.pass_local_rank = spec.pass_local_rank;
  auto user_threads = value_in(facts.environment, THREADS);
  for (const auto& [name, value] : spec.environment) {
    if (name == THREADS) user_threads = value;
  }
  plan.cores = core_plan(facts.machine, {.ranks = spec.ranks, .pin = spec.pin, .user_threads = user_threads});
  for (int rank = 0; rank < spec.ranks; ++rank) {
    plan.variables.push_back(variables_of(spec, facts, rank, user_threads ? 0 : plan.cores.threads));
  }
  for (const auto& variable : facts.environment) {
    const std::string_view name = name_of(variable);
    const auto is_name = [&](const std::string& other) { return name_of(other) == name; };
    const bool is_set = std::any_of(plan.variables[0].begin(), plan.variables[0].end(), is_name);
    if (!is_set && std::find(PLACE.begin(), PLACE.end(), name) == PLACE.end())
      plan.inherited.push_back(variable);
  }
  return plan;
}

std::vector<std::string> rank_environment(const LaunchPlan& plan, int rank, const std::vector<int>& hub_fds) {
  std::vector<std::string> out = plan.inherited;
  const auto& own = plan.variables.at(static_cast<std::size_t>(rank));
  out.insert(out.end(), own.begin(), own.end());
  if (!hub_fds.empty()) {
    std::string list;
    for (const int fd : hub_fds) list += (list.empty() ? "" : ",") + std::to_string(fd);
    out.push_back("LOCKSTEP_HUB_FDS=" + list);
  }
  return out;
}

std::vector<std::string> rank_command(const LaunchPlan& plan, int rank) {
  std::vector<std::string> out = plan.command;
  if (plan.pass_local_rank) out.insert(out.begin() + 1, str("--local_rank=", rank));
  return out;
}

std::string describe(const LaunchPlan& plan) {
  std::string text = plan.cores.summary + "\n";
  const auto ranks = plan.variables.size();
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    text += str("rank ", plan.first_rank + static_cast<int>(rank), "\n");
    for (const auto& variable : plan.variables[rank]) text += "  " + printable(variable, 4096) + "\n";
    if (plan.has_hub) {
      const std::size_t sockets = rank == 0 ? ranks - 1 : 1;
      text += str("  LOCKSTEP_HUB_FDS=<", sockets, sockets == 1 ? " inherited socket" : " inherited sockets",
                  ">\n");
    }
    text += str("  cpus ", plan.cores.cpus[rank].empty() ? "any" : cpu_list(plan.cores.cpus[rank]), "\n");
    text += " ";
    for (const auto& argument : rank_command(plan, static_cast<int>(rank)))
      text += " " + quoted_argument(argument);
    text += "\n";
  }
  return text;
}

}  // namespace lockstep
