// lockstep trace: shows the last calls of a job's ranks, from their flight recorders or from files.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <optional>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/parse.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/trace/trace_analysis.h"
#include "lockstep/comm/trace/trace_files.h"
#include "lockstep/launch/prepare.h"

namespace lockstep::cli {
namespace {

struct TraceOptions {
  std::optional<long> pid;
  std::string output;
  std::vector<std::string> files;
};

void describe_options(CLI::App& app, TraceOptions& options) {
  app.footer(
      "Each rank keeps its last 256 calls on each group: verb, dtype, op, root or peer, count, start, end, "
      "state.\n"
      "They can be read while the job runs, hangs or is stopped, and those of a dead rank as long as another "
      "rank of\n"
      "its machine lives. With LOCKSTEP_TRACE_DIR (lockstep run --trace-dir DIR) each rank writes a file "
      "there when its\n"
      "group fails. PID is that of the launcher or of any rank; without one, the one job of this user on "
      "this "
      "machine.");
  app.require_subcommand(1);
  CLI::App* dump = app.add_subcommand("dump", "print the last calls of every rank as JSON");
  CLI::App* analyze = app.add_subcommand(
      "analyze", "say in one paragraph which rank is missing or ahead, and in which operation");
  for (CLI::App* command : {dump, analyze}) {
    command->add_option("--pid", options.pid, "a process of the job")
        ->type_name("PID")
        ->check(CLI::PositiveNumber);
  }
  dump->add_option("-o,--output", options.output, "write there, instead of to the standard output")
      ->type_name("FILE");
  analyze
      ->add_option("FILES", options.files, "trace files, or folders with some; without any, the running job")
      ->type_name("");
}

std::vector<RankTrace> live_job(const TraceOptions& options) {
  std::vector<RankTrace> traces = live_traces(options.pid);
  if (traces.empty()) {
    throw ProgramError(options.pid ? str("no records of process ", *options.pid,
                                         " or a job of it can be read here: it has no group, has ended, or "
                                         "belongs to another user")
                                   : std::string("no job that can be looked at runs here"),
                       EXIT_FAILURE);
  }
  const auto jobs = by_job(traces);
  if (options.pid || jobs.size() == 1) return traces;
  std::string list;
  for (const auto& job : jobs) list += str("\n  --pid ", job[0].pid, "  (", job.size(), " ranks)");
  throw UsageError("several jobs run here; name a process of one:" + list);
}

// The trace files in a folder.
std::vector<std::string> files_in(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::filesystem::path& file = at->path();
    if (file.extension() == ".json" && file.filename().string()[0] != '.') files.push_back(file.string());
  }
  if (error) throw SystemError(str("cannot look into the folder ", printable(folder)), error.value());
  return files;
}

std::vector<RankTrace> from_files(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;  // of a path that cannot be read; reading it as a file gives the reason
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    const auto more = files_in(path);
    files.insert(files.end(), more.begin(), more.end());
  }
  std::sort(files.begin(), files.end());
  std::vector<RankTrace> traces;
  for (const std::string& file : files) {
    for (RankTrace& trace : read_trace_file(file)) traces.push_back(std::move(trace));
  }
  if (traces.empty()) throw ProgramError("no records in the files given", EXIT_FAILURE);
  return traces;
}

int dump(const TraceOptions& options) {
  const std::vector<RankTrace> traces = live_job(options);
  if (options.output.empty()) {
    std::fputs(trace_text(traces).c_str(), stdout);
  } else {
    write_trace(options.output, traces);
  }
  return 0;
}

int analyze_and_print(const TraceOptions& options) {
  if (options.pid && !options.files.empty())
    throw UsageError("lockstep trace analyze takes --pid or files, not both");
  const auto jobs = by_job(options.files.empty() ? live_job(options) : from_files(options.files));
  for (const auto& job : jobs) {
    const std::string name = jobs.size() > 1 ? str("Job ", job[0].job, ": ") : "";
    std::puts((name + analyze(job)).c_str());
  }
  return 0;
}

}  // namespace

int trace_command(const std::vector<std::string>& arguments) {
  TraceOptions options;
  CLI::App app("What the ranks of a job did last.", "lockstep trace");
  describe_options(app, options);
  if (const auto exit_code = parse(app, arguments)) return *exit_code;
  try {
    return app.got_subcommand("dump") ? dump(options) : analyze_and_print(options);
  } catch (const Error& error) {  // a file is not a trace, or a folder cannot be written
    throw ProgramError(error.what(), EXIT_FAILURE);
  }
}

}  // namespace lockstep::cli
