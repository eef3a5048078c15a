// lockstep run: turns the command line into a LaunchSpec.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <iostream>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/streams.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/comm/backends/registry.h"
#include "lockstep/launch/guardian.h"
#include "lockstep/os/cpu_topology.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/secret.h"
#include "lockstep/os/tcp_socket.h"

namespace lockstep::cli {
namespace {

constexpr int MAX_RANKS = 4096;

const std::array OPTIONS = std::to_array<Option>({
    {"--nproc-per-node", "-np", true},  // the spellings of mpirun and horovodrun
    {"--nproc-per-node", "-n", true},
    {"--backend", "", true},
    {"--virtual-ranks", "", true},
    {"--nnodes", "", true},
    {"--node-rank", "", true},
    {"--master-addr", "", true},
    {"--master-port", "", true},
    {"--secret-file", "", true},
    {"--tee", "", true},
    {"--redirects", "", true},
    {"--pass-local-rank", "", false},
    {"--log-dir", "", true},
    {"--no-logs", "", false},
    {"--trace-dir", "", true},
    {"--no-prefix", "", false},
    {"--no-affinity", "", false},
    {"--grace", "", true},
    {"--max-restarts", "", true},
    {"--dry-run", "", false},
    {"--help", "-h", false},
});

struct RunOptions {
  std::string ranks = "1";
  std::string backend;
  std::string virtual_ranks;
  std::string nodes = "1";
  std::string node;
  std::string master_addr;
  std::string master_port;
  std::string secret_file;
  std::string tee;
  std::string redirects;
  bool pass_local_rank = false;
  std::string log_dir;
  bool no_logs = false;
  std::string trace_dir;
  bool no_prefix = false;
  bool no_affinity = false;
  std::string grace;
  std::string max_restarts = "0";
  bool dry_run = false;
};

void describe_node_options(CLI::App& app, RunOptions& options) {
  app.add_option("--nnodes", options.nodes, "machines of the job; default 1")->type_name("N");
  app.add_option("--node-rank", options.node, "number of this machine, from 0")->type_name("N");
  app.add_option("--master-addr", options.master_addr, "address of node 0, where the others reach it")
      ->type_name("ADDRESS");
  app.add_option("--master-port", options.master_port, "a port that is free there; default 29500")
      ->type_name("PORT");
  app.add_option(
         "--secret-file", options.secret_file,
         "file (mode 0600) with the job's secret, needed for several machines; default $LOCKSTEP_SECRET_FILE")
      ->type_name("FILE");
  app.add_option("--tee", options.tee,
                 "streams shown and kept: 0, 1 (output), 2 (errors), 3, or by local rank: 0:3,1:1");
  app.add_option("--redirects", options.redirects,
                 "streams kept in the files and not shown, as --tee; default: all are shown and kept");
  app.add_flag("--pass-local-rank", options.pass_local_rank,
               "--local_rank=N becomes the program's first argument, as torch.distributed.launch did");
}

void describe_options(CLI::App& app, RunOptions& options) {
  // CLI11 adds the outer brackets itself
  app.get_formatter()->label("OPTIONS", "OPTIONS] PROGRAM [ARGUMENTS");
  app.footer(
      "On several machines start the same command on each, with its own --node-rank and the same secret "
      "file:\n"
      "  (umask 077; head -c 32 /dev/urandom > ~/.lockstep-secret), copied to every machine.\n\n"
      "Everything from PROGRAM on is the program's. Every rank gets RANK, LOCAL_RANK, WORLD_SIZE, "
      "LOCAL_WORLD_SIZE,\n"
      "MASTER_ADDR, MASTER_PORT and OMP_NUM_THREADS. Standard input goes to rank 0. When one rank fails the "
      "others are\n"
      "stopped within a second, and the exit code is that rank's (128 + N for signal N); 64 usage, 70 "
      "internal error,\n"
      "75 the ranks saved their state and ask to be started again,\n"
      "126 not executable, 127 not found, 130 Ctrl-C. A second Ctrl-C ends everything at once.");
  app.add_option(
         "-n,--nproc-per-node", options.ranks,
         "ranks to start: a number, cpu (one per usable core) or auto (one per GPU, else as cpu); default 1")
      ->type_name("N");
  app.add_option("--backend", options.backend,
                 "backend for init_process_group() without a name, as LOCKSTEP_BACKEND; default auto")
      ->type_name("NAME");
  app.add_option("--virtual-ranks", options.virtual_ranks,
                 "the same bits on any number of ranks up to N, in programs that loop over virtual_ranks(); "
                 "each has one thread, unless OMP_NUM_THREADS says otherwise")
      ->type_name("N");
  describe_node_options(app, options);
  app.add_option("--log-dir", options.log_dir,
                 "in DIR the job makes a folder with one file per rank; default runs")
      ->type_name("DIR");
  app.add_flag("--no-logs", options.no_logs, "keep no files");
  app.add_option(
         "--trace-dir", options.trace_dir,
         "folder in which each rank writes what all did last when its group fails, for lockstep trace "
         "analyze; default none")
      ->type_name("DIR");
  app.add_flag("--no-prefix", options.no_prefix, "do not start every line with its rank");
  app.add_flag("--no-affinity", options.no_affinity, "do not give every rank its own cores");
  app.add_option("--grace", options.grace,
                 "seconds from asking ranks to stop until killing them; default 5, after a failing rank 0.5")
      ->type_name("SECONDS");
  app.add_option(
         "--max-restarts", options.max_restarts,
         "number of times that all ranks are stopped and started again after one has failed; default 0")
      ->type_name("K");
  app.add_flag("--dry-run", options.dry_run, "print what every rank would get, and start nothing");
}

int rank_count(const std::string& text) {
  if (text == "cpu") return cpu_topology().usable_cores();
  if (text == "auto") return gpu_count() > 0 ? gpu_count() : cpu_topology().usable_cores();
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > MAX_RANKS) {
    throw UsageError(str("--nproc-per-node must be a number from 1 to ", MAX_RANKS, ", cpu or auto, not \"",
                         printable(text), "\""));
  }
  return value;
}

int number_option(const char* name, const std::string& text, int minimum, int maximum) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < minimum || value > maximum) {
    throw UsageError(
        str(name, " must be a number from ", minimum, " to ", maximum, ", not \"", printable(text), "\""));
  }
  return value;
}

NodePlace node_place(const RunOptions& options, int ranks) {
  constexpr int DEFAULT_PORT = 29500;
  constexpr int LARGEST_PORT = 65535;
  NodePlace place;
  place.nodes = number_option("--nnodes", options.nodes, 1, MAX_RANKS);
  if (!options.node.empty()) place.node = number_option("--node-rank", options.node, 0, place.nodes - 1);
  if (!options.master_addr.empty()) place.master_addr = without_brackets(options.master_addr);
  if (!options.master_port.empty())
    place.master_port = number_option("--master-port", options.master_port, 1, LARGEST_PORT);
  if (place.nodes == 1) return place;
  if (options.node.empty() || options.master_addr.empty()) {
    throw UsageError(
        "several machines (--nnodes) need --node-rank, a number from 0, and --master-addr, the address of "
        "node 0");
  }
  if (place.master_port == 0) place.master_port = DEFAULT_PORT;
  place.first_rank = place.node * ranks;  // until the launchers have exchanged their numbers
  place.world_size = place.nodes * ranks;
  return place;
}

NodeAccess node_access(const NodePlace& place, const RunOptions& options) {
  const std::string file =
      options.secret_file.empty() ? env("LOCKSTEP_SECRET_FILE").value_or("") : options.secret_file;
  if (file.empty()) {
    throw UsageError(
        "several machines need a secret that only they know: (umask 077; head -c 32 /dev/urandom > "
        "~/.lockstep-secret), copy the "
        "file to every machine and give it with --secret-file");
  }
  return {place.master_addr, place.master_port, Secret::from_file(file), place.node, place.nodes};
}

Deadline deadline_for_others() {
  constexpr long YEAR = 365L * 24 * 3600;
  constexpr long HALF_AN_HOUR = 1800;
  return Deadline::in(std::chrono::seconds(env_number("LOCKSTEP_TIMEOUT", 1, YEAR).value_or(HALF_AN_HOUR)));
}

std::chrono::milliseconds grace_period(const std::string& text) {
  constexpr double A_DAY = 86400;
  double seconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), seconds);
  if (error != std::errc() || end != text.data() + text.size() || !(seconds >= 0 && seconds <= A_DAY)) {
    throw UsageError(
        str("--grace must be a number of seconds from 0 to 86400, not \"", printable(text), "\""));
  }
  return std::chrono::milliseconds(static_cast<long>(seconds * 1000));
}

std::string absolute(const std::string& folder) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(folder, error);
  if (!error) return path.string();
  throw UsageError(str("--trace-dir ", printable(folder),
                       " is below a current folder that is gone; give an absolute path"));
}

LaunchSpec launch_spec(const RunOptions& options, std::vector<std::string> program) {
  LaunchSpec spec;
  spec.command = std::move(program);
  spec.ranks = rank_count(options.ranks);
  spec.place = node_place(options, spec.ranks);
  spec.streams = stream_choices(options.tee, options.redirects, spec.ranks);
  spec.pass_local_rank = options.pass_local_rank;
  spec.pin = !options.no_affinity;
  spec.prefix = !options.no_prefix;
  if (!options.log_dir.empty()) spec.log_base = options.log_dir;
  spec.needs_logs = !options.log_dir.empty();
  if (options.no_logs || options.dry_run) spec.log_base.clear();
  if (!options.backend.empty()) {
    const BackendChoice choice = choose_backends(options.backend);
    find_backend(choice.cpu, spec.place.world_size > 0 ? spec.place.world_size : spec.ranks);
    spec.environment.emplace_back("LOCKSTEP_BACKEND", options.backend);
  }
  if (!options.virtual_ranks.empty()) {
    const int ranks = spec.place.world_size > 0 ? spec.place.world_size : spec.ranks;
    const int virtual_ranks = number_option("--virtual-ranks", options.virtual_ranks, ranks, 1 << 16);
    spec.environment.emplace_back("LOCKSTEP_VIRTUAL_RANKS", std::to_string(virtual_ranks));
    // A rank's share of the cores depends on the number of ranks, and the bits of sums depend on the number
    // of threads.
    spec.environment.emplace_back("OMP_NUM_THREADS", env("OMP_NUM_THREADS").value_or("1"));
  }
  if (!options.trace_dir.empty())  // ranks may change their current folder
    spec.environment.emplace_back("LOCKSTEP_TRACE_DIR", absolute(options.trace_dir));
  if (!options.grace.empty()) {
    spec.stop_grace = grace_period(options.grace);
    spec.failure_grace = spec.stop_grace;
  }
  return spec;
}

// Restarts must come soon. So surviving ranks have less time to report what they saw, unless --grace gives
// them more.
void set_restarts(LaunchSpec& spec, const RunOptions& options) {
  constexpr int MOST = 1000000;
  spec.max_restarts = number_option("--max-restarts", options.max_restarts, 0, MOST);
  if (spec.max_restarts == 0 || !options.grace.empty()) return;
  spec.report_window = std::chrono::milliseconds(200);
  spec.failure_grace = std::chrono::milliseconds(200);
}

PreparedJob prepare(const LaunchSpec& spec, const RunOptions& options) {
  if (spec.place.nodes > 1 && !options.dry_run) {
    const NodeAccess access = node_access(spec.place, options);
    set_log_sink(
        [](LogLevel, const std::string& line) { std::fputs(("lockstep: " + line + "\n").c_str(), stderr); });
    constexpr long YEAR = 365L * 24 * 3600;
    const WaitReminder reminder(std::chrono::seconds(env_number("LOCKSTEP_WARN_AFTER", 1, YEAR).value_or(5)),
                                str("lockstep run, node ", access.node, " of ", access.nodes),
                                str("the nodes meet at ", printable(access.host), ':', access.port));
    return prepare_job_with_others(spec, access, deadline_for_others());
  }
  return prepare_job(spec);
}

}  // namespace

int run_command(const std::vector<std::string>& arguments) {
  const Arguments split = split_arguments(arguments, OPTIONS);
  RunOptions options;
  CLI::App app("Starts N ranks of a program on this machine and looks after them.", "lockstep run");
  describe_options(app, options);
  if (const auto exit_code = parse(app, split.options)) return *exit_code;
  if (split.program.empty()) throw UsageError("a program to run is needed: lockstep run -n 4 ./my_program");
  for (const auto& name : unknown_lockstep_variables()) {
    std::fprintf(stderr,
                 "lockstep: %s is set but means nothing to this version; lockstep info lists what does\n",
                 printable(name).c_str());
  }
  LaunchSpec spec = launch_spec(options, split.program);
  set_restarts(spec, options);
  PreparedJob job = prepare(spec, options);
  if (options.dry_run) {
    std::cout << describe(job.plan);
    return 0;
  }
  return run_guarded(std::move(job));
}

}  // namespace lockstep::cli
