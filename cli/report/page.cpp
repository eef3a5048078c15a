#include "cli/report/page.h"

#include <algorithm>

#include "cli/report/arrivals.h"
#include "cli/report/buckets.h"
#include "cli/report/curves.h"
#include "cli/report/steps.h"
#include "cli/report/svg.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/trace/trace_analysis.h"

namespace lockstep::cli {
namespace {

constexpr char HEAD[] = R"(<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<style>
:root { --page: #ffffff; --text: #1f2328; --soft: #59636e; --grid: #e1e5ea; --axis: #8b949e; --box: #f6f8fa;
  --s0: #0969da; --s1: #bc4c00; --s2: #1a7f37; --s3: #8250df; --s4: #bf3989; --s5: #7a6200;
  --backward: #3b7dd8; --operations: #2a9d8f; --communication: #e07b39; --rest: #b6bec8;
  --bucket: #e9b44c; --call: #a48bd0; --last: #cf222e; --warning: #cf222e; --on: #1f2328; }
@media (prefers-color-scheme: dark) {
:root { --page: #0d1117; --text: #e6edf3; --soft: #9198a1; --grid: #262c36; --axis: #6e7681; --box: #161b22;
  --s0: #58a6ff; --s1: #f0883e; --s2: #56d364; --s3: #bc8cff; --s4: #ff7bbf; --s5: #d4b72f;
  --backward: #4a8fe7; --operations: #2fae9f; --communication: #e8894a; --rest: #59636e;
  --bucket: #d9a63e; --call: #9a80c9; --last: #ffffff; --warning: #ff6a61; --on: #0d1117; } }
body { background: var(--page); color: var(--text); font: 15px/1.5 system-ui, sans-serif; margin: 0 auto;
  max-width: 1000px; padding: 16px 20px 40px; }
h1 { font-size: 24px; overflow-wrap: anywhere; } h2 { font-size: 19px; margin-top: 36px;
  border-bottom: 1px solid var(--grid); padding-bottom: 4px; }
.note, figcaption, caption { color: var(--soft); font-size: 13px; text-align: left; }
.missing { background: var(--box); border-left: 3px solid var(--axis); padding: 8px 12px; }
.warning { color: var(--warning); font-size: 13px; }
.charts { display: flex; flex-wrap: wrap; gap: 8px 20px; }
.charts figure { width: 470px; }
figure { margin: 12px 0; max-width: 100%; } svg { max-width: 100%; height: auto; vertical-align: middle; }
text { fill: var(--soft); font-size: 12px; } .label { fill: var(--text); } .on { fill: var(--on); font-size: 11px; }
.grid { stroke: var(--grid); fill: none; } .axis { stroke: var(--axis); fill: none; }
.line { fill: none; stroke-width: 1.6; stroke-linejoin: round; }
.dense { stroke-width: 0.8; } .hidden { opacity: 0; }
.legend { font-size: 13px; margin: 4px 0; } .key { margin-right: 14px; white-space: nowrap; }
.s0 { fill: var(--s0); } .s1 { fill: var(--s1); } .s2 { fill: var(--s2); }
.s3 { fill: var(--s3); } .s4 { fill: var(--s4); } .s5 { fill: var(--s5); }
.line.s0 { stroke: var(--s0); } .line.s1 { stroke: var(--s1); } .line.s2 { stroke: var(--s2); }
.line.s3 { stroke: var(--s3); } .line.s4 { stroke: var(--s4); } .line.s5 { stroke: var(--s5); }
.line.s0, .line.s1, .line.s2, .line.s3, .line.s4, .line.s5 { fill: none; }
.backward { fill: var(--backward); } .operations { fill: var(--operations); } .rest { fill: var(--rest); }
.communication { fill: var(--communication); } .bucket { fill: var(--bucket); } .call { fill: var(--call); }
.last { fill: var(--last); } path.last { stroke: var(--page); stroke-width: 1; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: 13px; margin: 12px 0; }
th, td { border: 1px solid var(--grid); padding: 3px 9px; text-align: left; overflow-wrap: break-word; }
th { background: var(--box); font-weight: 600; } .n { text-align: right; font-variant-numeric: tabular-nums; }
</style>
)";

std::string missing(std::string_view text) { return str(R"(<p class="missing">)", text, "</p>\n"); }

std::string metrics_section(const ReportInputs& inputs) {
  std::string out = "<h2>Loss and metrics</h2>\n";
  if (inputs.metrics.empty())
    return out + missing(
                     "No metrics files (.jsonl, .csv): curves need a MetricsFile, as the examples write "
                     "with --metrics run.jsonl.");
  return out + curves_html(inputs.metrics) + R"(<div class="wide">)" + summary_html(inputs.metrics) +
         "</div>\n";
}

std::string steps_section(const ReportInputs& inputs) {
  const std::string out = "<h2>Step times</h2>\n";
  if (inputs.profiles.empty())
    return out + missing(
                     "No profiler traces: step times need profile(...) and export_chrome_trace(...) on each "
                     "rank, see docs/performance.md.");
  const std::string steps = steps_html(inputs.profiles);
  if (steps.empty())
    return out +
           missing(R"(The profiler traces have no steps: put record_function("step") around each step.)");
  std::string note;
  const auto size = static_cast<std::size_t>(std::max(inputs.profiles.front().world_size, 0));
  if (inputs.profiles.size() < size)
    note = missing(str("Profiler traces of ", inputs.profiles.size(), " of ", size, " ranks."));
  return out + note + R"(<div class="wide">)" + steps + "</div>\n";
}

std::string recorder_part(const ReportInputs& inputs) {
  std::string out = "<h3>Flight recorders</h3>\n";
  for (const auto& job : by_job(inputs.recorders)) out += str("<p>", escaped_whole(analyze(job)), "</p>\n");
  for (const ClockCalls& calls : calls_of(inputs.recorders))
    out += timeline_html({}, calls) + arrivals_html(calls);
  return out +
         R"(<p class="note">Of flight recorders only ranks of one host are compared, because their times )"
         "are of that machine's clock.</p>\n";
}

std::string buckets_section(const ReportInputs& inputs) {
  std::string out = "<h2>Buckets, and who came last</h2>\n<div class=\"wide\">";
  if (inputs.profiles.empty() && inputs.recorders.empty())
    out += missing(
        "No profiler traces and no flight-recorder files: the timeline needs one of them, see "
        "docs/performance.md.");
  if (!inputs.profiles.empty()) {
    const ClockCalls calls = calls_of(inputs.profiles);
    if (std::all_of(calls.ranks.begin(), calls.ranks.end(),
                    [](const RankCalls& rank) { return rank.calls.empty(); }))
      out += missing("The profiler traces have no collective.");
    else
      out +=
          timeline_html(inputs.profiles, calls) + arrivals_html(calls) +
          R"(<p class="note">Came last: the rank whose call of a collective began latest, which the others )"
          "waited for. Ranks of several machines compare as well as their clocks agree.</p>\n";
  }
  if (!inputs.recorders.empty()) out += recorder_part(inputs);
  return out + "</div>\n";
}

std::string files_section(const ReportInputs& inputs) {
  std::string rows;
  const auto add = [&](const std::string& path, std::string_view kind, const std::string& what) {
    rows += str("<tr><td>", escaped(path), "</td><td>", kind, "</td><td>", escaped(what), "</td></tr>\n");
  };
  for (const MetricsTable& table : inputs.metrics)
    add(table.path, "metrics", str(table.rows, " rows over ", table.x));
  for (const RankProfile& profile : inputs.profiles)
    add(profile.path, "profiler trace",
        str("rank ", profile.rank, " of ", profile.world_size, ", ", profile.steps.size(), " steps, ",
            profile.calls.size(), " collectives"));
  for (const auto& [path, ranks] : inputs.recorder_files) add(path, "flight recorder", str(ranks, " ranks"));
  return "<h2>Files</h2>\n<table><tr><th>file</th><th>kind</th><th>what is in it</th></tr>\n" + rows +
         "</table>\n";
}

}  // namespace

std::string report_page(const ReportInputs& inputs) {
  const std::string title = escaped(inputs.title);
  return str("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n", HEAD, "<title>Lockstep report: ", title,
             "</title>\n</head>\n<body>\n<h1>Run ", title, "</h1>\n", metrics_section(inputs),
             steps_section(inputs), buckets_section(inputs), files_section(inputs), "</body>\n</html>\n");
}

}  // namespace lockstep::cli
