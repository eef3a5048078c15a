#include "lockstep/comm/trace/group_findings.h"

#include <algorithm>

#include "lockstep/base/str.h"

namespace lockstep::trace {
namespace {

bool is_open(const TraceRecord& record) { return record.state != CallState::DONE; }

const TraceRecord* find_call(const Member& member, std::uint64_t sequence) {
  if (member.group == nullptr) return nullptr;
  const auto& records = member.group->records;
  const auto found = std::find_if(records.rbegin(), records.rend(),
                                  [&](const TraceRecord& record) { return record.sequence == sequence; });
  return found == records.rend() ? nullptr : &*found;
}

const TraceRecord* last_collective(const Member& member) {
  if (member.group == nullptr) return nullptr;
  const auto& records = member.group->records;
  const auto found = std::find_if(records.rbegin(), records.rend(),
                                  [](const TraceRecord& record) { return record.sequence != 0; });
  return found == records.rend() ? nullptr : &*found;
}

std::uint64_t last_sequence(const Member& member) {
  const TraceRecord* last = last_collective(member);
  return last == nullptr ? 0 : last->sequence;
}

std::int64_t since(const Member& member, std::int64_t moment) { return member.process->read_ns - moment; }

// "rank 1 (rank 3 of the world, pid 4121)"
std::string full_name(const GroupView& view, const Member& member) {
  const int world = view.world_ranks[static_cast<std::size_t>(member.rank)];
  std::string details = world == member.rank ? "" : str("rank ", world, " of the world");
  if (member.process != nullptr) details += str(details.empty() ? "" : ", ", name_of(*member.process));
  return str("rank ", member.rank, details.empty() ? "" : " (" + details + ")");
}

std::string condition(const RankTrace& process) {
  if (process.process == 'T' || process.process == 't') return "it is stopped (SIGSTOP)";
  if (process.process == 'X') return "its process has ended";
  return "";
}

// Says where a rank is that others wait for: "it is stopped (SIGSTOP); its last call was ..., done 4.2 s
// before".
std::string whereabouts(const GroupView& view, const Member& member) {
  if (member.process == nullptr)
    return "no records of it were found: it has not joined the job, has ended, or runs on another machine";
  std::string text = condition(*member.process);
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (member.group == nullptr) {
    add("it has not joined the group");
  } else if (member.group->is_closed) {
    add("it has left the group");
  }
  if (const TraceRecord* last = last_collective(member); last == nullptr) {
    if (member.group != nullptr) add("it has made no collective call on this group");
  } else if (!is_open(*last)) {
    add(str("its last call was ", describe(*last), ", done ", for_how_long(since(member, last->end_ns)),
            " before"));
  }
  const GroupTrace* group = nullptr;
  if (const TraceRecord* open = oldest_open(*member.process, &group)) {
    const std::string where = group->name == view.name ? "" : str(" on group \"", group->name, "\"");
    add(str("it has been in ", describe(*open), where, " for ", for_how_long(since(member, open->start_ns))));
  }
  return text;
}

std::string whereabouts_of_all(const GroupView& view, const std::vector<const Member*>& members) {
  constexpr std::size_t SHOWN = 4;
  if (members.size() == 1) return whereabouts(view, *members[0]);
  std::string text;
  for (std::size_t i = 0; i < std::min(members.size(), SHOWN); ++i)
    text += str(i == 0 ? "" : "; ", full_name(view, *members[i]), ": ", whereabouts(view, *members[i]));
  if (members.size() > SHOWN) text += str("; and ", members.size() - SHOWN, " others");
  return text;
}

std::vector<int> ranks_of(const std::vector<const Member*>& members) {
  std::vector<int> ranks;
  for (const Member* member : members) ranks.push_back(member->rank);
  return ranks;
}

std::vector<int> world_ranks_of(const GroupView& view, const std::vector<const Member*>& members) {
  std::vector<int> ranks;
  for (const Member* member : members)
    ranks.push_back(view.world_ranks[static_cast<std::size_t>(member->rank)]);
  return ranks;
}

std::string names_of(const GroupView& view, const std::vector<const Member*>& members) {
  return members.size() == 1 ? full_name(view, *members[0]) : list_of(ranks_of(members));
}

// A collective in which some rank waits, and each rank's place relative to it.
struct Front {
  std::uint64_t sequence = 0;
  const TraceRecord* call = nullptr;  // the call of the first waiting rank
  std::vector<const Member*> waiting, missing, past;
};

std::optional<Front> front_of(const GroupView& view) {
  Front front;
  for (const Member& member : view.members) {
    if (member.group == nullptr) continue;
    for (const TraceRecord& record : member.group->records) {
      if (record.sequence == 0 || !is_open(record)) continue;
      if (front.sequence == 0 || record.sequence < front.sequence) front.sequence = record.sequence;
    }
  }
  if (front.sequence == 0) return std::nullopt;
  for (const Member& member : view.members) {
    const TraceRecord* record = find_call(member, front.sequence);
    if (record != nullptr && is_open(*record)) {
      front.waiting.push_back(&member);
      if (front.call == nullptr) front.call = record;
    } else {
      (last_sequence(member) < front.sequence ? front.missing : front.past).push_back(&member);
    }
  }
  return front;
}

std::string longest_wait(const Front& front) {
  std::int64_t longest = 0;
  for (const Member* member : front.waiting) {
    const TraceRecord& record = *find_call(*member, front.sequence);
    const std::int64_t until = record.end_ns == 0 ? member->process->read_ns : record.end_ns;
    longest = std::max(longest, until - record.start_ns);
  }
  return for_how_long(longest);
}

// Lists the ranks by their calls: "ranks 0 and 1 called ..., rank 2 called ...".
std::string disagreement(const GroupView& view, std::uint64_t sequence) {
  std::vector<std::pair<const TraceRecord*, std::vector<int>>> opinions;
  for (const Member& member : view.members) {
    const TraceRecord* record = find_call(member, sequence);
    if (record == nullptr) continue;
    const auto same = std::find_if(opinions.begin(), opinions.end(), [&](const auto& opinion) {
      return agree(opinion.first->call, record->call);
    });
    if (same == opinions.end()) {
      opinions.push_back({record, {member.rank}});
    } else {
      same->second.push_back(member.rank);
    }
  }
  if (opinions.size() < 2) return "";
  std::string text;
  for (const auto& [record, ranks] : opinions)
    text += str(text.empty() ? "" : ", ", list_of(ranks), " called ", lockstep::describe(record->call));
  return text;
}

std::string on(const GroupView& view) { return str(" on group \"", view.name, "\""); }

std::string sentence_about_missing(const GroupView& view, const Front& front) {
  const std::string operation = describe(*front.call) + on(view);
  const std::string number = str("#", front.sequence);
  const auto have = [](std::size_t count) { return count == 1 ? "has" : "have"; };
  std::string text;
  const bool excused = std::any_of(front.missing.begin(), front.missing.end(), [](const Member* member) {
    return member->process == nullptr || !condition(*member->process).empty();
  });
  if (front.waiting.size() < front.missing.size() && view.members.size() > 2 && !excused) {
    text = str(names_of(view, front.waiting), front.waiting.size() == 1 ? " is" : " are", " ahead, in ",
               operation, " for ", longest_wait(front), ", which ", list_of(ranks_of(front.missing)), " ",
               have(front.missing.size()), " not called: ", whereabouts_of_all(view, front.missing));
  } else {
    text =
        str(names_of(view, front.missing), front.missing.size() == 1 ? " is" : " are", " missing from ",
            operation, ": ", whereabouts_of_all(view, front.missing), "; ", list_of(ranks_of(front.waiting)),
            " ", have(front.waiting.size()), " waited in ", number, " for ", longest_wait(front));
  }
  return text;
}

// For a collective that all ranks have called alike, and that some have not completed.
std::string sentence_about_unfinished(const GroupView& view, const Front& front) {
  std::string text =
      str("all ranks have called ", describe(*front.call), on(view), " and ", names_of(view, front.waiting),
          front.waiting.size() == 1 ? " is" : " are", " still in it, for ", longest_wait(front));
  for (const Member* member : front.waiting) {
    const std::string state = condition(*member->process);
    if (!state.empty()) text += str("; ", full_name(view, *member), ": ", state);
  }
  return text;
}

}  // namespace

std::vector<GroupView> group_views(const std::map<int, RankTrace>& ranks) {
  std::vector<GroupView> views;
  for (const auto& [world_rank, process] : ranks) {
    for (const GroupTrace& group : process.groups) {
      const auto is_it = [&, &group = group](const GroupView& view) {
        return view.name == group.name && view.world_ranks == group.members;
      };
      auto view = std::find_if(views.begin(), views.end(), is_it);
      if (view == views.end()) {
        view = views.insert(views.end(), GroupView{group.name, group.members, {}});
        for (std::size_t r = 0; r < group.members.size(); ++r) {
          const auto found = ranks.find(group.members[r]);
          view->members.push_back(
              {static_cast<int>(r), found == ranks.end() ? nullptr : &found->second, nullptr});
        }
      }
      Member& member = view->members[static_cast<std::size_t>(group.rank)];
      if (member.process != &process) continue;  // the file contradicts itself
      if (member.group == nullptr || member.group->is_closed) member.group = &group;
    }
  }
  return views;
}

const TraceRecord* oldest_open(const RankTrace& process, const GroupTrace** group) {
  const TraceRecord* oldest = nullptr;
  for (const GroupTrace& candidate : process.groups) {
    for (const TraceRecord& record : candidate.records) {
      if (!is_open(record) || (oldest != nullptr && oldest->start_ns <= record.start_ns)) continue;
      oldest = &record;
      *group = &candidate;
    }
  }
  return oldest;
}

std::string failure_of(const GroupView& view) {
  for (const Member& member : view.members) {
    if (member.group != nullptr && !member.group->failure.empty())
      return str("group \"", view.name, "\" has failed: ", member.group->failure);
  }
  return "";
}

std::optional<Finding> find_in_collectives(const GroupView& view) {
  const auto front = front_of(view);
  if (!front) return std::nullopt;
  Finding finding;
  finding.waiters = world_ranks_of(view, front->waiting);
  if (const std::string opinions = disagreement(view, front->sequence); !opinions.empty()) {
    finding.sentence =
        str("the ranks disagree about collective #", front->sequence, on(view), ": ", opinions);
    finding.culprits = finding.waiters;
    return finding;
  }
  if (front->missing.empty()) {
    finding.sentence = sentence_about_unfinished(view, *front);
  } else {
    finding.sentence = sentence_about_missing(view, *front);
    finding.culprits = world_ranks_of(view, front->missing);
  }
  std::vector<const Member*> ahead;
  for (const Member* member : front->past) {
    const TraceRecord* last = last_collective(*member);
    if (last != nullptr && is_open(*last)) ahead.push_back(member);
  }
  if (!ahead.empty())
    finding.sentence += str("; ", names_of(view, ahead), ahead.size() == 1 ? " is" : " are", " ahead, in ",
                            describe(*last_collective(*ahead[0])));
  return finding;
}

}  // namespace lockstep::trace
