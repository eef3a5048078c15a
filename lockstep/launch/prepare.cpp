#include "lockstep/launch/prepare.h"

#include <array>
#include <cerrno>
#include <ctime>
#include <filesystem>

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/console.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/open_files.h"

namespace lockstep {
namespace {

constexpr std::size_t JOB_ID_BYTES = 8;

std::string time_stamp() {
  const std::time_t now = std::time(nullptr);
  std::tm local{};
  localtime_r(&now, &local);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y%m%d-%H%M%S", &local);
  return text.data();
}

ProgramPath require_program(const LaunchSpec& spec) {
  if (spec.command.empty()) throw InvalidArgument("a launch needs a program to run");
  if (spec.ranks < 1) throw InvalidArgument(str("a launch needs at least one rank, not ", spec.ranks));
  const ProgramPath program =
      find_program(spec.command[0], env("PATH").value_or("/usr/local/bin:/usr/bin:/bin"));
  if (program.error_number != 0) throw program_error(spec.command[0], program.error_number);
  return program;
}

// Descriptors of the launcher: each rank's output, errors, log, and the report of its start.
std::size_t open_files_of(const LaunchSpec& spec) {
  constexpr std::size_t OWN = 10;
  return (spec.log_base.empty() ? 3 : 4) * static_cast<std::size_t>(spec.ranks) + OWN;
}

void make_logs(PreparedJob& job) {
  const LaunchSpec& spec = job.spec;
  if (spec.log_base.empty()) return;
  const std::string node = spec.place.nodes > 1 ? str("-node", spec.place.node) : "";
  try {
    job.logs = PrivateFolder::create(spec.log_base, str(time_stamp(), "-", job.facts.job_id, node));
    job.facts.log_folder = job.log_root = job.logs->path();
  } catch (const SystemError& error) {
    if (spec.needs_logs) throw;
    job.no_logs = error.what();
  }
}

bool is_file(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::is_regular_file(path, ignored);
}

}  // namespace

ProgramError program_error(const std::string& program, int error_number) {
  const std::string name = str("\"", printable(program), "\"");
  const bool is_path = program.find('/') != std::string::npos;
  switch (error_number) {
    case ENOENT:
      if (is_path)
        return {str("there is no program ", name, " (or the interpreter in its #! line is missing)"),
                EXIT_NOT_FOUND};
      return {str("there is no program ", name, " on PATH",
                  is_file(program) ? str("; did you mean ./", printable(program), "?") : ""),
              EXIT_NOT_FOUND};
    case EISDIR: return {str(name, " is a folder, not a program"), EXIT_NOT_EXECUTABLE};
    case EACCES:
      return {str(name, " may not be executed; chmod +x makes a file a program"), EXIT_NOT_EXECUTABLE};
    case ENOEXEC:
      return {str(name, " is not a program; a script needs a first line like #!/bin/sh"),
              EXIT_NOT_EXECUTABLE};
    default: return {SystemError(str("cannot run ", name), error_number).what(), EXIT_NOT_EXECUTABLE};
  }
}

PreparedJob prepare_job_with_others(const LaunchSpec& spec, const NodeAccess& access, Deadline deadline) {
  require_program(spec);  // before the other launchers wait for this one
  Nodes nodes(access, random_hex(JOB_ID_BYTES));
  Nodes::Joined joined = nodes.meet({spec.ranks, spec.max_restarts}, deadline);
  LaunchSpec whole = spec;
  whole.place.first_rank = joined.first_rank;
  whole.place.world_size = joined.world_size;
  whole.job_id = joined.job_id;
  PreparedJob job = prepare_job(whole);
  job.nodes = access;
  job.stores = std::move(joined.stores);
  job.store_server = nodes.server();
  return job;
}

PreparedJob prepare_job(const LaunchSpec& spec) {
  const ProgramPath program = require_program(spec);
  require_room_for_files(open_files_of(spec), str("starting ", spec.ranks, " ranks"));
  PreparedJob job{spec, {}, {}, std::nullopt};
  job.facts.job_id = spec.job_id.empty() ? random_hex(JOB_ID_BYTES) : spec.job_id;
  job.facts.master_port = free_port();
  job.facts.terminal_columns = columns_for_ranks(spec.prefix);
  job.facts.environment = whole_environment();
  job.facts.machine = cpu_topology();
  make_logs(job);
  job.plan = launch_plan(spec, job.facts);
  job.plan.executable = program.path;
  return job;
}

void prepare_restart(PreparedJob& job) {
  ++job.facts.restarts;
  job.facts.master_port = free_port();
  job.no_logs.clear();
  if (!job.log_root.empty()) {
    job.logs.reset();
    job.facts.log_folder.clear();
    try {
      job.logs = PrivateFolder::create(job.log_root, str("restart-", job.facts.restarts));
      job.facts.log_folder = job.logs->path();
    } catch (const SystemError& error) {  // the job can run without logs
      job.no_logs = error.what();
    }
  }
  std::string executable = std::move(job.plan.executable);
  job.plan = launch_plan(job.spec, job.facts);
  job.plan.executable = std::move(executable);
}

}  // namespace lockstep
