// lockstep horovodrun: Horovod's launcher in its own words, over `lockstep run`.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <optional>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/deepspeed/hostfile.h"
#include "cli/deepspeed/launch_words.h"
#include "cli/horovodrun/hosts.h"
#include "cli/parse.h"
#include "lockstep/base/str.h"
#include "lockstep/os/plain_file.h"

namespace lockstep::cli {
namespace {

const std::array HOROVODRUN_OPTIONS = std::to_array<Option>({
    {"--num-proc", "-np", true},
    {"--hosts", "-H", true},
    {"--hostfile", "-hostfile", true},
    {"--output-filename", "", true},
    {"--node-rank", "", true},
    {"--master-addr", "", true},
    {"--master-port", "", true},
    {"--secret-file", "", true},
    {"--fusion-threshold-mb", "", true},
    {"--cycle-time-ms", "", true},
    {"--cache-capacity", "", true},
    {"--disable-cache", "", false},
    {"--timeline-filename", "", true},
    {"--timeline-mark-cycles", "", false},
    {"--no-stall-check", "", false},
    {"--stall-check-warning-time-seconds", "", true},
    {"--stall-check-shutdown-time-seconds", "", true},
    {"--reset-limit", "", true},
    {"--verbose", "", false},
    {"--dry-run", "", false},
    {"--help", "-h", false},
});

// Options of horovodrun that have no counterpart, and what to do instead.
struct Refused {
  std::string_view name, instead;
};
constexpr std::array REFUSED = std::to_array<Refused>({
    {"--min-np", "ranks cannot come and go; --reset-limit starts a job anew"},
    {"--max-np", "ranks cannot come and go; --reset-limit starts a job anew"},
    {"--min-num-proc", "ranks cannot come and go; --reset-limit starts a job anew"},
    {"--max-num-proc", "ranks cannot come and go; --reset-limit starts a job anew"},
    {"--host-discovery-script", "hosts are given by -H or --hostfile"},
    {"--slots-per-host", "hosts are given by -H or --hostfile"},
    {"--elastic-timeout", "ranks cannot come and go; LOCKSTEP_TIMEOUT is how long they wait for each other"},
    {"--blacklist-cooldown-range", "the hosts of a job do not change"},
    {"--ssh-port", "nothing is started by ssh; docs/clusters/ssh.sh does that"},
    {"--ssh-identity-file", "nothing is started by ssh; docs/clusters/ssh.sh does that"},
    {"--network-interfaces", "set LOCKSTEP_SOCKET_IFNAME"},
    {"--network-interface", "set LOCKSTEP_SOCKET_IFNAME"},
    {"--start-timeout", "set LOCKSTEP_TIMEOUT"},
    {"--prefix-output-with-timestamp", "lines have their rank in front"},
    {"--config-file", "give its values as options"},
    {"--gloo", "the transport is chosen by LOCKSTEP_BACKEND"},
    {"--mpi", "the transport is chosen by LOCKSTEP_BACKEND; or start the program with mpirun"},
    {"--mpi-args", "start the program with mpirun"},
    {"--tcp", "the transport is chosen by LOCKSTEP_BACKEND"},
    {"--jsrun", "use lockstep run, srun or mpirun"},
    {"--autotune", "lockstep bench --tune measures this machine"},
    {"--hierarchical-allreduce", "levels are chosen by LOCKSTEP_BACKEND"},
    {"--hierarchical-allgather", "levels are chosen by LOCKSTEP_BACKEND"},
    {"--check-build", "use lockstep info"},
});

struct HorovodOptions {
  std::string ranks, hosts, hostfile, log_dir;
  std::string node_rank, master_addr, master_port = "29500", secret_file;
  std::string fusion, cycle, cache, timeline, stall_check, stall_shutdown, restarts;
  bool no_cache = false, mark_cycles = false, no_stall_check = false, verbose = false, dry_run = false;
};

void describe_horovodrun_options(CLI::App& app, HorovodOptions& o) {
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS");  // it puts the outer brackets itself
  app.footer(
      "Everything from PROGRAM on is the program's. Ranks get RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR and "
      "MASTER_PORT.\n"
      "Nothing is started on other machines: on several hosts start the same command on each, with its own "
      "--node-rank\n"
      "and the same secret file, or use docs/clusters/ssh.sh.");
  const auto text = [&](const char* name, std::string& value, const char* what, const char* type) {
    app.add_option(name, value, what)->type_name(type);
  };
  text("--num-proc", o.ranks, "ranks of the job (-np N); default: every slot", "N");
  text("-H,--hosts", o.hosts, "HOST:SLOTS,HOST:SLOTS; default: this machine", "HOSTS");
  text("--hostfile", o.hostfile, "lines \"HOST slots=N\"", "FILE");
  text("--output-filename", o.log_dir, "folder for one file per rank", "DIR");
  text("--node-rank", o.node_rank, "number of this machine among the hosts, from 0", "N");
  text("--master-addr", o.master_addr, "address of the first host, where the others reach it", "ADDRESS");
  text("--master-port", o.master_port, "a port that is free there; default 29500", "PORT");
  text("--secret-file", o.secret_file, "as of lockstep run; needed for several hosts", "FILE");
  text("--fusion-threshold-mb", o.fusion, "HOROVOD_FUSION_THRESHOLD, in MiB", "N");
  text("--cycle-time-ms", o.cycle, "HOROVOD_CYCLE_TIME", "MS");
  text("--cache-capacity", o.cache, "HOROVOD_CACHE_CAPACITY", "N");
  app.add_flag("--disable-cache", o.no_cache, "the same with 0");
  text("--timeline-filename", o.timeline, "HOROVOD_TIMELINE", "FILE");
  app.add_flag("--timeline-mark-cycles", o.mark_cycles, "HOROVOD_TIMELINE_MARK_CYCLES");
  app.add_flag("--no-stall-check", o.no_stall_check, "HOROVOD_STALL_CHECK_DISABLE");
  text("--stall-check-warning-time-seconds", o.stall_check, "HOROVOD_STALL_CHECK_TIME_SECONDS", "N");
  text("--stall-check-shutdown-time-seconds", o.stall_shutdown, "HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", "N");
  text("--reset-limit", o.restarts,
       "start all ranks anew after a failure, so often; as --max-restarts of lockstep run", "N");
  app.add_flag("--verbose", o.verbose, "without effect");
  app.add_flag("--dry-run", o.dry_run, "print what would be started, and start nothing");
}

// Called when an option is unknown, because a refusal says more than "no such option". Words of the program
// are not looked at: they come after the first option that is unknown.
void refuse_options_without_counterpart(const std::vector<std::string>& arguments) {
  for (const std::string& word : arguments) {
    std::string name = word.substr(0, word.find('='));
    std::replace(name.begin(), name.end(), '_', '-');
    const bool is_known = std::any_of(HOROVODRUN_OPTIONS.begin(), HOROVODRUN_OPTIONS.end(),
                                      [&](const Option& option) { return option.name == name; });
    if (!word.starts_with("--") || is_known) continue;
    for (const Refused& one : REFUSED) {
      if (name == one.name)
        throw UsageError(str("lockstep horovodrun does without ", one.name, ": ", one.instead));
    }
    return;
  }
}

std::optional<int> number_of(const char* name, const std::string& text, int least) {
  constexpr int MOST = 1 << 20;
  if (text.empty()) return std::nullopt;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < least || value > MOST)
    throw UsageError(str(name, " must be a number from ", least, " to ", MOST, ", not ", in_quotes(text)));
  return value;
}

std::vector<Host> horovod_hosts(const HorovodOptions& o) {
  if (!o.hosts.empty() && !o.hostfile.empty()) throw UsageError("-H and --hostfile are one too many");
  const auto ranks = number_of("-np", o.ranks, 1);
  std::vector<Host> hosts;
  if (!o.hosts.empty()) hosts = parse_hosts(o.hosts, "-H");
  if (!o.hostfile.empty()) hosts = parse_hostfile(read_plain_file(o.hostfile), o.hostfile);
  if (!hosts.empty()) return ranks ? first_slots(hosts, *ranks) : hosts;
  if (!ranks) throw UsageError("how many ranks? lockstep horovodrun -np 4 ./my_program");
  return {{"localhost", slots_below(*ranks)}};
}

// The program, with the variables that the options stand for.
std::vector<std::string> program_words(const HorovodOptions& o, const std::vector<std::string>& program) {
  std::vector<std::string> words;
  const auto set = [&](const char* name, const std::string& value) {
    if (!value.empty()) words.push_back(str(name, "=", value));
  };
  if (const auto mebibytes = number_of("--fusion-threshold-mb", o.fusion, 0))
    set("HOROVOD_FUSION_THRESHOLD", std::to_string(static_cast<long>(*mebibytes) << 20));
  set("HOROVOD_CYCLE_TIME", o.cycle);
  set("HOROVOD_CACHE_CAPACITY", o.no_cache ? "0" : o.cache);
  set("HOROVOD_TIMELINE", o.timeline);
  set("HOROVOD_TIMELINE_MARK_CYCLES", o.mark_cycles ? "1" : "");
  set("HOROVOD_STALL_CHECK_DISABLE", o.no_stall_check ? "1" : "");
  set("HOROVOD_STALL_CHECK_TIME_SECONDS", o.stall_check);
  set("HOROVOD_STALL_SHUTDOWN_TIME_SECONDS", o.stall_shutdown);
  if (!words.empty()) words.insert(words.begin(), "env");
  words.insert(words.end(), program.begin(), program.end());
  return words;
}

}  // namespace

int horovodrun_command(const std::vector<std::string>& arguments) {
  const Arguments split = [&] {
    try {
      return split_arguments(arguments, HOROVODRUN_OPTIONS, "lockstep horovodrun");
    } catch (const UsageError&) {
      refuse_options_without_counterpart(arguments);
      throw;
    }
  }();
  HorovodOptions o;
  CLI::App app("Starts the ranks of a program as horovodrun does.", "lockstep horovodrun");
  describe_horovodrun_options(app, o);
  if (const auto exit_code = parse(app, split.options)) return *exit_code;
  if (split.program.empty())
    throw UsageError("a program to run is needed: lockstep horovodrun -np 4 ./my_program");
  DeepSpeedLaunch launch{
      .hosts = horovod_hosts(o), .master_addr = o.master_addr, .master_port = o.master_port};
  launch.program = program_words(o, split.program);
  if (!o.log_dir.empty()) launch.options.insert(launch.options.end(), {"--log-dir", o.log_dir});
  if (!o.secret_file.empty()) launch.options.insert(launch.options.end(), {"--secret-file", o.secret_file});
  if (const auto restarts = number_of("--reset-limit", o.restarts, 0))
    launch.options.insert(launch.options.end(), {"--max-restarts", std::to_string(*restarts)});
  const auto node = number_of("--node-rank", o.node_rank, 0);
  const int nodes = static_cast<int>(launch.hosts.size());
  if (node && *node >= nodes)
    throw UsageError(str("--node-rank is ", *node, ", but the hosts have numbers from 0 to ", nodes - 1));
  if (o.dry_run) {
    std::fputs(commands_of_all_nodes(launch).c_str(), stdout);
    return 0;
  }
  if (nodes > 1 && !node)
    throw UsageError(str("there are ", nodes,
                         " hosts, and nothing is started on other machines: start the same command on each, "
                         "with its own --node-rank and the same --secret-file, or use docs/clusters/ssh.sh. "
                         "That is\n",
                         commands_of_all_nodes(launch)));
  launch.node = node.value_or(0);
  return run_command(run_words(launch));
}

}  // namespace lockstep::cli
