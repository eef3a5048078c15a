// lockstep bench VERB: times a collective. If a launcher started it, it measures. Otherwise it starts its
// ranks first.
#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/arguments.h"
#include "cli/bench_bound.h"
#include "cli/bench_measure.h"
#include "cli/bench_tune.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/job/job.h"
#include "lockstep/launch/guardian.h"
#include "lockstep/os/process.h"

namespace lockstep::cli {
namespace {

struct BenchOptions {
  std::string verb;
  std::string sizes = "8,1K,64K,1M,25M";
  std::string backend = "auto";
  std::string memory = "shared";
  int ranks = 2;
  bool json = false;
  bool no_bound = false;
  bool tune = false;
};

void describe_options(CLI::App& app, BenchOptions& options) {
  app.footer(
      "float32, op sum. busbw is algbw times the verb's factor, as nccl-tests defines it. Every round works "
      "on freshly\n"
      "written data and counts from the last rank's start to the last rank's end; the clock is that of one "
      "machine.\n"
      "The bound is measured in the same run: threads on the ranks' CPUs that only move the data, each "
      "result "
      "once, with\n"
      "the best of several kernels and nothing of the library in between (cli/bound_kernels.h). 100 % of "
      "it is "
      "what this\n"
      "machine's memory allows; private memory needs more copies than that, and small sizes are ruled by the "
      "time "
      "that a\n"
      "cache line takes from core to core.\n"
      "Under a launcher (lockstep run, srun, mpirun) the ranks are those of the job, and -n is not used.");
  app.add_option("VERB", options.verb,
                 "all_reduce, broadcast, reduce, all_gather, gather, scatter, reduce_scatter, "
                 "all_to_all, barrier or send");
  app.add_option("--sizes", options.sizes, "bytes of the whole operation, default 8,1K,64K,1M,25M")
      ->type_name("LIST");
  app.add_option("--backend", options.backend, "as in init_process_group; default auto")->type_name("NAME");
  app.add_option("--memory", options.memory,
                 "shared: the group's own memory, nothing is copied in or out; private")
      ->check(CLI::IsMember({"shared", "private"}));
  app.add_option("-n,--nproc-per-node", options.ranks, "ranks to start, default 2")
      ->check(CLI::Range(1, 4096));
  app.add_flag("--no-bound", options.no_bound, "do not measure the machine's own bound beside");
  app.add_flag(
      "--tune", options.tune,
      "without VERB: measure every path of an all_reduce of private memory through shared memory, and "
      "print the best\ntable of sizes as a value of LOCKSTEP_PATHS");
  app.add_flag("--json", options.json, "one JSON object per line");
}

void print(const std::string& line) { std::puts(line.c_str()); }

int measure_as_rank(const BenchOptions& options, const std::vector<std::size_t>& sizes, Verb verb) {
  init_process_group(options.backend);
  const ProcessGroup& group = world();
  if (verb == Verb::SEND && group.size() < 2) throw UsageError("lockstep bench send needs two ranks");
  const BenchSetting setting = {verb, options.memory == "shared"};
  if (group.rank() == 0 && !options.json) {
    print(str("# ", name_of(verb), ", ", group.size(), " ranks over ", group.backend_name(), ", float32, ",
              options.memory, " memory"));
    print(header_line());
  }
  for (const std::size_t size : sizes) {
    BenchRow row = measure(group, setting, size);
    if (!options.no_bound) row.bound_us = measure_bound(group, verb, row.count);
    if (group.rank() != 0) continue;
    const std::string backend(group.backend_name());
    print(options.json ? json_line(row, verb, group.size(), backend, options.memory)
                       : text_line(row, verb, group.size()));
  }
  destroy_process_group();
  return 0;
}

}  // namespace

int bench_command(const std::vector<std::string>& arguments) {
  BenchOptions options;
  CLI::App app("Times a collective by size.", "lockstep bench");
  describe_options(app, options);
  if (const auto exit_code = parse(app, arguments)) return *exit_code;
  if (options.tune) {
    if (!options.verb.empty() || job_environment().source != Launcher::NONE)
      throw UsageError("lockstep bench --tune takes no verb and starts its ranks itself");
    return tune(options.ranks);
  }
  const Verb verb = parse_verb(options.verb);
  const std::vector<std::size_t> sizes =
      verb == Verb::BARRIER ? std::vector<std::size_t>{8} : parse_sizes(options.sizes);
  if (job_environment().source != Launcher::NONE) return measure_as_rank(options, sizes, verb);
  LaunchSpec spec;
  spec.command = {program_file(), "bench"};
  spec.command.insert(spec.command.end(), arguments.begin(), arguments.end());
  spec.ranks = options.ranks;
  spec.prefix = false;
  spec.log_base.clear();
  return run_guarded(prepare_job(spec));
}

}  // namespace lockstep::cli
