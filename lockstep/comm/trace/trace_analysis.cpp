#include "lockstep/comm/trace/trace_analysis.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/comm/trace/group_findings.h"

namespace lockstep {
namespace {

using trace::Finding;
using trace::GroupView;

std::map<int, RankTrace> latest_by_rank(const std::vector<RankTrace>& traces) {
  std::map<int, RankTrace> latest;
  for (const RankTrace& candidate : traces) {
    const auto [place, is_new] = latest.try_emplace(candidate.rank, candidate);
    const auto age = [](const RankTrace& trace) { return std::tie(trace.world, trace.read_ns); };
    if (!is_new && age(place->second) < age(candidate)) place->second = candidate;
  }
  return latest;
}

// If some ranks have left the group, only earlier faults matter, and the failure says those.
bool is_over(const GroupView& view) {
  return std::all_of(view.members.begin(), view.members.end(), [](const trace::Member& member) {
    return member.group == nullptr || member.group->is_closed;
  });
}

// Puts a finding after the findings about the ranks that its missing ranks wait for.
std::vector<Finding> causes_first(std::vector<Finding> findings) {
  std::vector<Finding> ordered;
  const auto waits_for = [](const Finding& finding, const Finding& other) {
    return std::any_of(finding.culprits.begin(), finding.culprits.end(), [&](int rank) {
      return std::find(other.waiters.begin(), other.waiters.end(), rank) != other.waiters.end();
    });
  };
  while (!findings.empty()) {
    const auto is_cause = [&](const Finding& finding) {
      return std::none_of(findings.begin(), findings.end(), [&](const Finding& other) {
        return &other != &finding && waits_for(finding, other);
      });
    };
    auto next = std::find_if(findings.begin(), findings.end(), is_cause);
    if (next == findings.end()) next = findings.begin();  // the findings wait for each other in a circle
    ordered.push_back(std::move(*next));
    findings.erase(next);
  }
  return ordered;
}

std::string about_absent(const std::map<int, RankTrace>& ranks) {
  const int size = ranks.begin()->second.size;
  std::vector<int> absent;
  for (int r = 0; r < size; ++r) {
    if (ranks.count(r) == 0) absent.push_back(r);
  }
  if (absent.empty()) return "";
  return str("no records of ", trace::list_of(absent), " of ", size,
             " were found: not joined, ended, or on another machine");
}

std::string about_joining(const std::map<int, RankTrace>& ranks) {
  std::vector<int> joining;
  const RankTrace* first = nullptr;
  for (const auto& [rank, process] : ranks) {
    if (process.joining_ns == 0) continue;
    joining.push_back(rank);
    if (first == nullptr || process.joining_ns < first->joining_ns) first = &process;
  }
  if (joining.empty()) return "";
  return str(trace::list_of(joining),
             joining.size() == 1 ? str(" (", trace::name_of(*first), ") has") : " have",
             " waited in init_process_group for ", trace::for_how_long(first->read_ns - first->joining_ns),
             ", where all ", first->size, " ranks of the job meet");
}

// About ranks that do not wait in init_process_group.
std::string about_quiet(std::map<int, RankTrace> ranks) {
  std::erase_if(ranks, [](const auto& entry) { return entry.second.joining_ns != 0; });
  if (ranks.empty()) return "";
  std::string text = str(trace::list_of([&] {
                           std::vector<int> all;
                           for (const auto& [rank, process] : ranks) all.push_back(rank);
                           return all;
                         }()),
                         ranks.size() == 1 ? " waits" : " wait", " for nothing");
  std::int64_t last_end = 0;
  const TraceRecord* last = nullptr;
  const RankTrace* of = nullptr;
  for (const auto& [rank, process] : ranks) {
    for (const GroupTrace& group : process.groups) {
      if (group.records.empty() || group.records.back().end_ns <= last_end) continue;
      last = &group.records.back();
      last_end = last->end_ns;
      of = &process;
    }
  }
  if (last == nullptr) return text + ": no call has been made";
  return text + str(": the last call was ", trace::describe(*last), ", done ",
                    trace::for_how_long(of->read_ns - last_end), " before");
}

}  // namespace

std::vector<std::vector<RankTrace>> by_job(const std::vector<RankTrace>& traces) {
  std::vector<std::vector<RankTrace>> jobs;
  for (const RankTrace& trace : traces) {
    const auto same = std::find_if(jobs.begin(), jobs.end(), [&](const auto& job) {
      // Without a job's name, each single process is a job.
      return job[0].job == trace.job && (!trace.job.empty() || trace.size > 1 || job[0].pid == trace.pid);
    });
    if (same == jobs.end()) {
      jobs.push_back({trace});
    } else {
      same->push_back(trace);
    }
  }
  return jobs;
}

std::string analyze(const std::vector<RankTrace>& traces) {
  if (traces.empty()) return "There are no records.";
  const std::map<int, RankTrace> ranks = latest_by_rank(traces);
  std::vector<Finding> findings;
  std::vector<std::string> sentences;
  for (const GroupView& view : trace::group_views(ranks)) {
    if (const std::string failure = trace::failure_of(view); !failure.empty()) sentences.push_back(failure);
    if (is_over(view) && sentences.empty()) continue;
    if (auto finding = trace::find_in_collectives(view)) findings.push_back(std::move(*finding));
    for (Finding& finding : trace::find_in_messages(view)) findings.push_back(std::move(finding));
  }
  const bool quiet = findings.empty();
  for (Finding& finding : causes_first(std::move(findings))) sentences.push_back(std::move(finding.sentence));
  const std::string joining = about_joining(ranks);
  if (!joining.empty()) sentences.push_back(joining);
  if (quiet && sentences.size() == (joining.empty() ? 0 : 1)) {
    if (const std::string others = about_quiet(ranks); !others.empty()) sentences.push_back(others);
  }
  if (const std::string absent = about_absent(ranks); !absent.empty()) sentences.push_back(absent);
  std::string paragraph;
  for (std::string& sentence : sentences)
    paragraph += str(paragraph.empty() ? "" : " ", trace::upper_first(std::move(sentence)), ".");
  return paragraph;
}

}  // namespace lockstep
