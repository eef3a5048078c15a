// lockstep report: makes one page of HTML from the files of a run.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <span>

#include "cli/commands.h"
#include "cli/parse.h"
#include "cli/report/inputs.h"
#include "cli/report/page.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/prepare.h"
#include "lockstep/os/atomic_file.h"

namespace lockstep::cli {
namespace {

struct ReportOptions {
  std::vector<std::string> paths;
  std::string output = "report.html";
};

void describe_report(CLI::App& app, ReportOptions& options) {
  app.footer(
      "RUN is a folder, whose files and those of the folders in it are looked at, or files:\n"
      "  metrics            .jsonl and .csv, as MetricsFile writes them: curves over step, else epoch, else "
      "row\n"
      "  profiler traces    export_chrome_trace() of each rank, with record_function(\"step\") around each "
      "step:\n"
      "                     step times by part and rank, when each rank was in which bucket, who came last\n"
      "  flight recorders   of lockstep run --trace-dir or lockstep trace dump -o: the last collectives\n"
      "The page needs no network and no scripts. What the run has no files of is said there. "
      "docs/performance.md\n"
      "shows how to make them.");
  app.add_option("RUN", options.paths, "folder or files of a run")->type_name("")->required();
  app.add_option("-o,--output", options.output, "the page")->type_name("FILE")->capture_default_str();
}

int write_report(const ReportOptions& options) {
  const ReportInputs inputs = read_inputs(options.paths);
  if (inputs.metrics.empty() && inputs.profiles.empty() && inputs.recorders.empty())
    throw ProgramError(str("no metrics file, profiler trace or flight-recorder file in ",
                           in_quotes(options.paths.front()), "; lockstep report --help says what these are"),
                       EXIT_FAILURE);
  const std::string page = report_page(inputs);
  AtomicFile file(options.output);
  file.write(std::as_bytes(std::span(page)));
  file.commit(/*durable=*/false);  // the file can be made again
  std::printf("%s: %zu metrics files, %zu profiler traces, %zu flight-recorder files\n",
              printable(options.output).c_str(), inputs.metrics.size(), inputs.profiles.size(),
              inputs.recorder_files.size());
  return EXIT_SUCCESS;
}

}  // namespace

int report_command(const std::vector<std::string>& arguments) {
  ReportOptions options;
  CLI::App app("One page of a run: curves, step times, buckets, who came last.", "lockstep report");
  describe_report(app, options);
  if (const auto exit_code = parse(app, arguments)) return *exit_code;
  try {
    return write_report(options);
  } catch (const ProgramError&) {
    throw;
  } catch (const Error& error) {  // a file is broken, or the page cannot be written
    throw ProgramError(error.what(), EXIT_FAILURE);
  }
}

}  // namespace lockstep::cli
