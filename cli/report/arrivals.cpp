#include "cli/report/arrivals.h"

#include <algorithm>
#include <set>

#include "lockstep/base/str.h"
#include "lockstep/comm/trace/trace_analysis.h"

namespace lockstep::cli {
namespace {

struct Attendance {
  int rank = 0;
  const ReportCall* call = nullptr;
};

// World ranks that have records of each group. Empty for a name of several groups.
std::map<std::string, std::set<int>> attendance_by_group(const ClockCalls& calls) {
  std::map<std::string, std::map<int, int>> seats;  // world rank, by group and rank in the group
  std::set<std::string> ambiguous;
  for (const RankCalls& rank : calls.ranks) {
    for (const ReportCall& call : rank.calls) {
      const auto [seat, is_new] = seats[call.group].emplace(call.rank, rank.rank);
      if (!is_new && seat->second != rank.rank) ambiguous.insert(call.group);
    }
  }
  std::map<std::string, std::set<int>> ranks;
  for (const auto& [group, taken] : seats) {
    if (ambiguous.contains(group)) continue;
    for (const auto& [seat, rank] : taken) ranks[group].insert(rank);
  }
  return ranks;
}

Arrival arrival_of(const std::vector<Attendance>& present) {
  const auto earlier = [](const Attendance& a, const Attendance& b) {
    return a.call->time.start < b.call->time.start;
  };
  const auto last = std::max_element(present.begin(), present.end(), earlier);
  const auto first = std::min_element(present.begin(), present.end(), earlier);
  Arrival arrival{.is_bucket = first->call->is_bucket,
                  .last = last->rank,
                  .lateness = last->call->time.start - first->call->time.start};
  for (const Attendance& one : present) arrival.ranks.push_back(one.rank);
  return arrival;
}

ReportCall call_of_record(const GroupTrace& group, const TraceRecord& record, std::int64_t read_ns) {
  // Groups with one name but other members are different groups.
  std::string name = group.name;
  if (name != "world") {
    name += " of ranks";
    for (const int member : group.members) name += str(' ', member);
  }
  const std::int64_t end = record.state == CallState::POSTED ? read_ns : record.end_ns;
  return {.verb = std::string(name_of(record.call.verb)),
          .group = std::move(name),
          .rank = group.rank,
          .sequence = record.sequence,
          .bytes = record.call.count * size_of(record.call.dtype),
          .is_bucket = record.call.purpose == Purpose::GRADIENTS,
          .time = {record.start_ns, std::max(record.start_ns, end)}};
}

RankCalls calls_of_rank(const RankTrace& trace) {
  RankCalls rank{.rank = trace.rank, .calls = {}};
  for (const GroupTrace& group : trace.groups) {
    for (const TraceRecord& record : group.records)
      if (record.sequence != 0) rank.calls.push_back(call_of_record(group, record, trace.read_ns));
  }
  return rank;
}

}  // namespace

std::map<CollectiveName, Arrival> arrivals(const ClockCalls& calls) {
  const auto expected = attendance_by_group(calls);
  std::map<CollectiveName, std::vector<Attendance>> present;
  for (const RankCalls& rank : calls.ranks) {
    for (const ReportCall& call : rank.calls)
      present[{call.group, call.sequence}].push_back({rank.rank, &call});
  }
  std::map<CollectiveName, Arrival> out;
  for (const auto& [name, ranks] : present) {
    const auto group = expected.find(name.first);
    if (group == expected.end() || ranks.size() < 2 || ranks.size() != group->second.size()) continue;
    out.emplace(name, arrival_of(ranks));
  }
  return out;
}

std::vector<RankArrivals> arrivals_of(const ClockCalls& calls) {
  std::map<int, RankArrivals> by_rank;
  for (const RankCalls& rank : calls.ranks) by_rank[rank.rank].rank = rank.rank;
  for (const auto& [name, arrival] : arrivals(calls)) {
    for (const int rank : arrival.ranks) {
      RankArrivals& one = by_rank[rank];
      ArrivalCount& count = arrival.is_bucket ? one.buckets : one.others;
      ++count.collectives;
      if (rank != arrival.last) continue;
      ++count.last;
      count.lateness.push_back(arrival.lateness);
    }
  }
  std::vector<RankArrivals> out;
  for (auto& [rank, one] : by_rank) out.push_back(std::move(one));
  return out;
}

ClockCalls calls_of(const std::vector<RankProfile>& profiles) {
  ClockCalls calls;
  for (const RankProfile& profile : profiles) calls.ranks.push_back({profile.rank, profile.calls});
  return calls;
}

std::vector<ClockCalls> calls_of(const std::vector<RankTrace>& traces) {
  std::vector<ClockCalls> out;
  const auto jobs = by_job(traces);
  for (const std::vector<RankTrace>& job : jobs) {
    std::map<int, const RankTrace*> latest;
    for (const RankTrace& trace : job) {
      const RankTrace*& one = latest[trace.rank];
      if (one == nullptr || std::pair(one->world, one->read_ns) < std::pair(trace.world, trace.read_ns))
        one = &trace;
    }
    std::map<std::string, ClockCalls> hosts;
    for (const auto& [rank, trace] : latest) hosts[trace->host].ranks.push_back(calls_of_rank(*trace));
    for (auto& [host, calls] : hosts) {
      calls.name = jobs.size() > 1 ? str("host ", host, ", job ", job[0].job) : str("host ", host);
      out.push_back(std::move(calls));
    }
  }
  return out;
}

}  // namespace lockstep::cli
