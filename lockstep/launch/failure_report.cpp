#include "lockstep/launch/failure_report.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <iomanip>
#include <nlohmann/json.hpp>
#include <sstream>

#include "lockstep/base/str.h"
#include "lockstep/launch/output_text.h"

namespace lockstep {
namespace {

constexpr std::chrono::milliseconds OVERTAKEN{100};

bool is_own_failure(const RankResult& death) { return !death.status.success() && !death.was_stopped; }

bool is_killed(const RankResult& death) {
  constexpr std::array HARD = {SIGKILL, SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGSYS, SIGTRAP};
  return std::find(HARD.begin(), HARD.end(), death.status.signal) != HARD.end();
}

std::string seconds(std::chrono::milliseconds span) {
  std::ostringstream out;
  out << std::fixed << std::setprecision(1) << static_cast<double>(span.count()) / 1000.0 << " s";
  return out.str();
}

// "rank 0 exit code 1, rank 3 stopped"
std::string victims(const RunResult& result, int first_rank) {
  std::string text;
  for (const auto& rank : result.ranks) {
    if (rank.rank == *result.first_failure || rank.status.success()) continue;
    text += text.empty() ? "" : ", ";
    text += str("rank ", first_rank + rank.rank, " ", rank.was_stopped ? "stopped" : describe(rank.status));
  }
  return text;
}

}  // namespace

std::optional<std::size_t> first_failure(std::span<const RankResult> deaths) {
  const auto first = std::find_if(deaths.begin(), deaths.end(), is_own_failure);
  if (first == deaths.end()) return std::nullopt;
  if (!is_killed(*first)) {
    for (auto later = first; later != deaths.end() && later->ended_after - first->ended_after <= OVERTAKEN;
         ++later) {
      if (is_own_failure(*later) && is_killed(*later))
        return static_cast<std::size_t>(later - deaths.begin());
    }
  }
  return static_cast<std::size_t>(first - deaths.begin());
}

std::vector<std::string> failure_summary(const FailureReport& report) {
  const RunResult& result = report.result;
  const RankResult& cause = result.ranks.at(static_cast<std::size_t>(*result.first_failure));
  const NodePlace& place = report.place;
  const auto world_size = place.world_size > 0 ? place.world_size : static_cast<int>(result.ranks.size());
  std::vector<std::string> lines = {str("rank ", place.first_rank + cause.rank, " of ", world_size,
                                        " failed first: ", describe(cause.status), ", pid ", cause.pid,
                                        " on ", place.nodes > 1 ? str("node ", place.node, ", ") : "",
                                        report.host, ", after ", seconds(cause.ended_after))};
  lines.emplace_back(cause.last_lines.empty() ? "it printed nothing" : "its last lines:");
  const std::string prefix = str("  [", place.first_rank + cause.rank, "] ");
  for (const auto& line : cause.last_lines) lines.push_back(prefix + safe_text(line));
  const std::string others = victims(result, place.first_rank);
  if (!others.empty()) lines.push_back("because of it: " + others);
  if (!report.log_folder.empty()) lines.push_back("more in " + printable(report.log_folder, 4096));
  return lines;
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
    entry["role"] = is_cause                ? "cause"
                    : rank.was_stopped      ? "stopped"
                    : rank.status.success() ? "finished"
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
