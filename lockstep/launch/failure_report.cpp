#include "lockstep/launch/failure_report.h"

#include <algorithm>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>

#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/last_lines.h"
#include "lockstep/launch/output_text.h"

namespace lockstep {
namespace {

// Up to this number each rank has its own entry. Beyond it, ranks with the same end share one.
constexpr std::size_t MOST_VICTIMS = 8;
constexpr std::size_t MOST_WITNESS_LINES = 3;
constexpr std::size_t LONGEST_WORDS = 300;

std::string seconds(std::chrono::milliseconds span) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(span.count()) / 1000.0 << " s";
  return out.str();
}

using RanksByEnd = std::vector<std::pair<std::string, std::vector<int>>>;  // "exit code 1": 0, 1

RanksByEnd together(const RanksByEnd& one_by_one) {
  RanksByEnd all;
  for (const auto& [end, ranks] : one_by_one) {
    const auto same =
        std::find_if(all.begin(), all.end(), [&, &end = end](const auto& one) { return one.first == end; });
    if (same == all.end()) {
      all.emplace_back(end, ranks);
    } else {
      same->second.insert(same->second.end(), ranks.begin(), ranks.end());
    }
  }
  return all;
}

// "rank 0 exit code 1, rank 3 stopped". For many ranks "ranks 0-2, 4-254 exit code 1, rank 3 stopped".
std::string victims(const RunResult& result, int first_rank) {
  RanksByEnd by_end;
  for (const auto& rank : result.ranks) {
    if (rank.rank != *result.first_failure && !is_well(rank.status))
      by_end.push_back({rank.was_stopped ? "stopped" : describe(rank.status), {first_rank + rank.rank}});
  }
  std::size_t left = by_end.size();
  if (left > MOST_VICTIMS) by_end = together(by_end);
  std::string text;
  for (std::size_t i = 0; i < by_end.size(); ++i) {
    if (i == MOST_VICTIMS) return text + str(" and ", left, " more");
    text += str(text.empty() ? "" : ", ", rank_list(by_end[i].second), " ", by_end[i].first);
    left -= by_end[i].second.size();
  }
  return text;
}

std::string what_happened(const RankResult& rank, const FirstCause& cause) {
  return str(describe(cause.kind, rank.status), cause.kind == CauseKind::FAILED ? rank.killer : "", ", pid ",
             rank.pid, " on ");
}

FirstCause cause_of(const RunResult& result, const RankResult& rank) {
  return result.cause ? *result.cause
                      : FirstCause{.rank = rank.rank, .after = rank.ended_after, .witness = -1};
}

// Adds the last lines of the rank that reported the cause, if the cause itself did not fail and so printed no
// error.
void add_witness(const FailureReport& report, const FirstCause& cause, std::vector<std::string>& lines) {
  const int local = cause.witness - report.place.first_rank;
  if (cause.kind == CauseKind::FAILED || local < 0 || local >= static_cast<int>(report.result.ranks.size()))
    return;
  const auto& said = report.result.ranks[static_cast<std::size_t>(local)].last_lines;
  if (said.empty()) return;
  lines.push_back(str("the last lines of rank ", cause.witness, ", which found it:"));
  const std::size_t shown = std::min(said.size(), MOST_WITNESS_LINES);
  for (std::size_t i = said.size() - shown; i < said.size(); ++i)
    lines.push_back(str("  [", cause.witness, "] ", safe_text(said[i])));
}

}  // namespace

std::vector<std::string> failure_summary(const FailureReport& report) {
  const RunResult& result = report.result;
  const RankResult& rank = result.ranks.at(static_cast<std::size_t>(*result.first_failure));
  const FirstCause cause = cause_of(result, rank);
  const NodePlace& place = report.place;
  const auto world_size = place.world_size > 0 ? place.world_size : static_cast<int>(result.ranks.size());
  std::vector<std::string> lines = {str(
      "rank ", place.first_rank + rank.rank, " of ", world_size, " ", what_happened(rank, cause),
      place.nodes > 1 ? str("node ", place.node, ", ") : "", report.host, ", after ", seconds(cause.after))};
  lines.emplace_back(rank.last_lines.empty() ? "it printed nothing" : "its last lines:");
  const std::string prefix = str("  [", place.first_rank + rank.rank, "] ");
  for (const auto& line : rank.last_lines) lines.push_back(prefix + safe_text(line));
  add_witness(report, cause, lines);
  const std::string others = victims(result, place.first_rank);
  if (!others.empty()) lines.push_back("because of it: " + others);
  if (!report.log_folder.empty()) lines.push_back("more in " + printable(report.log_folder, 4096));
  return lines;
}

std::string failure_in_a_line(const RankResult& rank, const FirstCause& cause, const std::string& host) {
  const std::string words = last_words(rank.last_lines);
  return str("rank ", cause.rank, " ", what_happened(rank, cause), host, ", after ", seconds(cause.after),
             words.empty() ? "; it printed nothing" : "; its last words: " + printable(words, LONGEST_WORDS));
}

std::string failure_json(const FailureReport& report) {
  const RunResult& result = report.result;
  nlohmann::ordered_json ranks = nlohmann::ordered_json::array();
  for (const auto& rank : result.ranks) {
    nlohmann::ordered_json entry = {{"rank", report.place.first_rank + rank.rank}, {"pid", rank.pid}};
    const bool is_cause = result.first_failure == rank.rank;
    if (rank.status.signal != 0) {
      entry["signal"] = signal_name(rank.status.signal);
    } else {
      entry["exit_code"] = rank.status.code;
    }
    entry["ended_after_seconds"] = static_cast<double>(rank.ended_after.count()) / 1000.0;
    entry["role"] = is_cause               ? "cause"
                    : rank.was_stopped     ? "stopped"
                    : is_well(rank.status) ? "finished"
                                           : "victim";
    if (is_cause) entry["last_lines"] = rank.last_lines;
    ranks.push_back(std::move(entry));
  }
  nlohmann::ordered_json first = nullptr;
  if (result.first_failure) first = report.place.first_rank + *result.first_failure;
  nlohmann::ordered_json record = {{"job_id", report.job_id},          {"host", report.host},
                                   {"command", report.command},        {"exit_code", result.exit_code},
                                   {"first_failing_rank", first},      {"ranks", std::move(ranks)},
                                   {"left_behind", result.left_behind}};
  if (report.place.nodes > 1) record["node"] = report.place.node;
  if (!result.other_node.empty()) record["failed_first"] = result.other_node;
  return record.dump(2, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace lockstep
