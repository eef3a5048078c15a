// lockstep deepspeed: DeepSpeed's launcher in its own words, over `lockstep run`.
#include <CLI/CLI.hpp>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/deepspeed/hostfile.h"
#include "cli/deepspeed/launch_words.h"
#include "cli/parse.h"
#include "lockstep/base/str.h"
#include "lockstep/os/cpu_topology.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/plain_file.h"

namespace lockstep::cli {
namespace {

constexpr char DEFAULT_HOSTFILE[] = "/job/hostfile";

const std::array DEEPSPEED_OPTIONS = std::to_array<Option>({
    {"--hostfile", "-H", true},
    {"--include", "-i", true},
    {"--exclude", "-e", true},
    {"--num-nodes", "", true},
    {"--num-gpus", "", true},
    {"--num-accelerators", "", true},
    {"--master-addr", "", true},
    {"--master-port", "", true},
    {"--node-rank", "", true},
    {"--enable-each-rank-log", "", true},
    {"--secret-file", "", true},
    {"--no-ssh", "", false},
    {"--no-python", "", false},
    {"--no-local-rank", "", false},
    {"--bind-cores-to-rank", "", false},
    {"--dry-run", "", false},
    {"--help", "-h", false},
});

struct DeepSpeedOptions {
  std::string hostfile, include, exclude;
  std::string nodes, gpus;
  std::string master_addr, master_port = "29500", node_rank;
  std::string log_dir, secret_file;
  bool no_ssh = false, no_python = false, no_local_rank = false, bind_cores = false, dry_run = false;
};

void describe_deepspeed_options(CLI::App& app, DeepSpeedOptions& o) {
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS");  // it puts the outer brackets itself
  app.footer(
      "Everything from PROGRAM on is the program's, as --deepspeed and --deepspeed_config FILE are. Ranks "
      "get "
      "RANK,\n"
      "LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and no --local_rank. Nothing is started on other "
      "machines:\n"
      "on several hosts start the same command on each, with its own --node_rank and the same secret file, "
      "or "
      "use\n"
      "docs/clusters/ssh.sh.");
  app.add_option("-H,--hostfile", o.hostfile, "lines \"HOST slots=N\"; default /job/hostfile, if it is there")
      ->type_name("FILE");
  app.add_option("-i,--include", o.include, "only these: HOST@HOST:SLOT,SLOT")->type_name("HOSTS");
  app.add_option("-e,--exclude", o.exclude, "all but these, written as --include")->type_name("HOSTS");
  app.add_option("--num-nodes", o.nodes, "only the first N hosts")->type_name("N");
  app.add_option("--num-gpus,--num-accelerators", o.gpus,
                 "ranks on each host; default: its slots, and without a hostfile one per GPU, else per core")
      ->type_name("N");
  app.add_option("--master-addr", o.master_addr, "address of the first host, where the others reach it")
      ->type_name("ADDRESS");
  app.add_option("--master-port", o.master_port, "a port that is free there; default 29500")
      ->type_name("PORT");
  app.add_option("--node-rank", o.node_rank, "number of this machine among the hosts, from 0")
      ->type_name("N");
  app.add_option("--enable-each-rank-log", o.log_dir, "folder for one file per rank")->type_name("DIR");
  app.add_option("--secret-file", o.secret_file, "as of lockstep run; needed for several hosts")
      ->type_name("FILE");
  app.add_flag("--no-ssh", o.no_ssh, "so it is");
  app.add_flag("--no-python", o.no_python, "so it is: PROGRAM is any program");
  app.add_flag("--no-local-rank", o.no_local_rank, "so it is");
  app.add_flag("--bind-cores-to-rank", o.bind_cores, "so it is: each rank has its own cores");
  app.add_flag("--dry-run", o.dry_run, "print what would be started, and start nothing");
}

std::optional<int> count_in(const char* name, const std::string& text, int least) {
  constexpr int MOST = 4096;
  if (text.empty()) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > MOST)
    throw UsageError(
        str(name, " must be a number from ", least, " to ", MOST, ", not \"", printable(text), "\""));
  return value;
}

std::vector<Host> hosts_of(const DeepSpeedOptions& o) {
  const auto nodes = count_in("--num_nodes", o.nodes, 1);
  const auto gpus = count_in("--num_gpus", o.gpus, 1);
  if ((nodes || gpus) && (!o.include.empty() || !o.exclude.empty()))
    throw UsageError("--num_nodes and --num_gpus do not go with --include and --exclude");
  std::string file = o.hostfile;
  std::error_code ignored;
  if (file.empty() && std::filesystem::exists(DEFAULT_HOSTFILE, ignored)) file = DEFAULT_HOSTFILE;
  std::vector<Host> hosts;
  if (file.empty()) {
    const int here = gpu_count() > 0 ? gpu_count() : cpu_topology().usable_cores();
    hosts = {{"localhost", slots_below(here)}};
  } else {
    hosts = parse_hostfile(read_plain_file(file), file);
  }
  return first_hosts(filter_hosts(hosts, o.include, o.exclude), nodes, gpus);
}

}  // namespace

int deepspeed_command(const std::vector<std::string>& arguments) {
  const Arguments split = split_arguments(arguments, DEEPSPEED_OPTIONS, "lockstep deepspeed");
  DeepSpeedOptions o;
  CLI::App app("Starts the ranks of a program as DeepSpeed's launcher does.", "lockstep deepspeed");
  describe_deepspeed_options(app, o);
  if (const auto exit_code = parse(app, split.options)) return *exit_code;
  if (split.program.empty())
    throw UsageError("a program to run is needed: lockstep deepspeed --num_gpus 4 ./my_program");
  DeepSpeedLaunch launch{.hosts = hosts_of(o),
                         .master_addr = o.master_addr,
                         .master_port = o.master_port,
                         .program = split.program};
  if (!o.log_dir.empty()) launch.options.insert(launch.options.end(), {"--log-dir", o.log_dir});
  if (!o.secret_file.empty()) launch.options.insert(launch.options.end(), {"--secret-file", o.secret_file});
  const auto node = count_in("--node_rank", o.node_rank, 0);
  const int nodes = static_cast<int>(launch.hosts.size());
  if (node && *node >= nodes)
    throw UsageError(str("--node_rank is ", *node, ", but the hosts have numbers from 0 to ", nodes - 1));
  if (o.dry_run) {
    std::fputs(commands_of_all_nodes(launch).c_str(), stdout);
    return 0;
  }
  if (nodes > 1 && !node)
    throw UsageError(str("there are ", nodes,
                         " hosts, and nothing is started on other machines: start the same command on each, "
                         "with its own --node_rank and the same --secret_file, or use docs/clusters/ssh.sh. "
                         "That is\n",
                         commands_of_all_nodes(launch)));
  launch.node = node.value_or(0);
  return run_command(run_words(launch));
}

}  // namespace lockstep::cli
