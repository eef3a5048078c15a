// lockstep COMMAND [OPTIONS]: finds the command. Turns an error into one line and an exit code.
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "lockstep/base/error.h"
#include "lockstep/base/nearest.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/os/pipe.h"

namespace lockstep::cli {
namespace {

constexpr char USAGE[] =
    "usage: lockstep COMMAND\n"
    "\n"
    "  run -n N PROGRAM [ARGUMENTS]   start N ranks of a program on this machine (lockstep run --help)\n"
    "  deepspeed --num_gpus N PROGRAM   the same in DeepSpeed's words, with its hostfile (lockstep deepspeed "
    "--help)\n"
    "  horovodrun -np N -H HOST:N PROGRAM   and in horovodrun's (lockstep horovodrun --help)\n"
    "  bench VERB -n N                time a collective by size (lockstep bench --help)\n"
    "  trace analyze [--pid PID]      say which rank of a job is missing or ahead (lockstep trace --help)\n"
    "  ckpt ls|verify|diff|convert|prune   look at checkpoints (lockstep ckpt --help)\n"
    "  report RUN [-o report.html]    one page of a run: curves, step times, who came last (lockstep report "
    "--help)\n"
    "  plan --params 7.5B --ranks 64  bytes a rank of DDP and of ZeRO's stages (lockstep plan --help)\n"
    "  plan --pipeline 1f1b --stages 4 --micro-batches 8   draw a pipeline's schedule; --mesh: groups of "
    "ranks\n"
    "  info                           version, environment variables, what this machine offers\n"
    "  --version                      the version alone\n";

int dispatch(const std::vector<std::string>& arguments) {
  const std::string command = arguments.empty() ? "" : arguments[0];
  const std::vector<std::string> rest(arguments.begin() + (arguments.empty() ? 0 : 1), arguments.end());
  if (command == "run") return run_command(rest);
  if (command == "deepspeed") return deepspeed_command(rest);
  if (command == "horovodrun") return horovodrun_command(rest);
  if (command == "bench") return bench_command(rest);
  if (command == "trace") return trace_command(rest);
  if (command == "ckpt") return ckpt_command(rest);
  if (command == "report") return report_command(rest);
  if (command == "plan") return plan_command(rest);
  if (command == "info") return info_command(rest);
  if (command == "--version" || command == "version") {
    std::puts("lockstep " LOCKSTEP_VERSION);
    return 0;
  }
  if (command == "--help" || command == "-h" || command == "help") {
    std::fputs(USAGE, stdout);
    return 0;
  }
  if (command.empty()) throw UsageError(str("a command is needed\n", USAGE));
  const std::vector<std::string> known = {"run",    "deepspeed", "horovodrun", "bench",     "trace", "ckpt",
                                          "report", "plan",      "info",       "--version", "--help"};
  const std::string close = nearest(command, known);
  throw UsageError(str("there is no command ", printable(command),
                       close.empty() ? "" : str("; did you mean ", close, "?")));
}

int complain(const char* message, int code) {
  std::fprintf(stderr, "lockstep: %s\n", message);
  return code;
}

int guarded_main(const std::vector<std::string>& arguments) {
  try {
    ensure_standard_descriptors();
    return dispatch(arguments);
  } catch (const UsageError& error) {
    return complain(error.what(), EXIT_USAGE);
  } catch (const ProgramError& error) {
    return complain(error.what(), error.exit_code());
  } catch (const InvalidArgument& error) {
    return complain(error.what(), EXIT_USAGE);
  } catch (const std::exception& error) {
    return complain(error.what(), EXIT_INTERNAL);
  }
}

}  // namespace
}  // namespace lockstep::cli

int main(int argc, char** argv) {
  return lockstep::cli::guarded_main(std::vector<std::string>(argv + (argc > 0 ? 1 : 0), argv + argc));
}
