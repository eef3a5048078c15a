// Finds messages whose other end is missing.
#include <algorithm>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/comm/trace/group_findings.h"

namespace lockstep::trace {
namespace {

bool is_message(const TraceRecord& record) { return lockstep::is_message(record.call.verb); }

const Member* member_of(const GroupView& view, int rank) {
  const bool exists = rank >= 0 && rank < static_cast<int>(view.members.size());
  return exists ? &view.members[static_cast<std::size_t>(rank)] : nullptr;
}

std::string what_it_does(const GroupView& view, const Member& peer) {
  if (peer.process == nullptr) return "no records of it were found";
  if (peer.process->process == 'X') return "its process has ended";
  std::string text = peer.process->process == 'T' ? "it is stopped (SIGSTOP)" : "";
  const GroupTrace* group = nullptr;
  if (const TraceRecord* open = oldest_open(*peer.process, &group)) {
    const std::string where = group->name == view.name ? "" : str(" on group \"", group->name, "\"");
    return str(text, text.empty() ? "" : ", ", "it is in ", describe(*open), where);
  }
  if (peer.group != nullptr && !peer.group->records.empty())
    return str(text, text.empty() ? "" : ", ", "its last call was ", describe(peer.group->records.back()));
  return str(text, text.empty() ? "" : ", ", "it has made no call on this group");
}

std::string waiting_for_peer(const GroupView& view, const Member& member, const TraceRecord& record) {
  const std::string time = for_how_long(member.process->read_ns - record.start_ns);
  std::string text = str("rank ", member.rank, " (", name_of(*member.process), ") has waited in ",
                         describe(record), " on group \"", view.name, "\" for ", time);
  const bool sends = record.call.verb == Verb::SEND;
  if (const Member* peer = member_of(view, record.call.root)) {
    text += str(sends ? ", which rank " : ", and rank ", record.call.root,
                sends ? " does not receive: " : " has sent nothing for it: ", what_it_does(view, *peer));
  } else {
    text += ", and nobody has sent anything for it";
  }
  return text;
}

using Channel = std::tuple<int, int, int>;  // source, destination, tag

// Returns whether sends minus receives is the number of messages under way. That needs all calls of all
// members, and no receive from any source.
bool can_be_counted(const GroupView& view) {
  return std::all_of(view.members.begin(), view.members.end(), [](const Member& member) {
    if (member.group == nullptr || member.group->calls != member.group->records.size()) return false;
    const auto& records = member.group->records;
    return std::none_of(records.begin(), records.end(), [](const TraceRecord& record) {
      return record.call.verb == Verb::RECV && record.call.root == ANY_SOURCE;
    });
  });
}

std::map<Channel, long> left_over(const GroupView& view) {
  std::map<Channel, long> count;
  for (const Member& member : view.members) {
    for (const TraceRecord& record : member.group->records) {
      if (!is_message(record) || record.state != CallState::DONE) continue;
      const int peer = record.call.root;
      if (record.call.verb == Verb::SEND) {
        ++count[{member.rank, peer, record.tag}];
      } else {
        --count[{peer, member.rank, record.tag}];
      }
    }
  }
  return count;
}

}  // namespace

std::vector<Finding> find_in_messages(const GroupView& view) {
  std::vector<Finding> findings;
  const auto world_rank = [&](int rank) { return view.world_ranks[static_cast<std::size_t>(rank)]; };
  for (const Member& member : view.members) {
    if (member.group == nullptr) continue;
    for (const TraceRecord& record : member.group->records) {
      if (!is_message(record) || record.state == CallState::DONE) continue;
      Finding finding{waiting_for_peer(view, member, record), {}, {world_rank(member.rank)}};
      if (member_of(view, record.call.root) != nullptr)
        finding.culprits.push_back(world_rank(record.call.root));
      findings.push_back(std::move(finding));
      break;  // later messages wait for the same rank, or for this message
    }
  }
  if (!can_be_counted(view)) return findings;
  for (const auto& [channel, count] : left_over(view)) {
    if (count <= 0) continue;
    const auto& [from, to, tag] = channel;
    findings.push_back({str(count, count == 1 ? " message" : " messages", " from rank ", from, " to rank ",
                            to, tag < 0 ? "" : str(" with tag ", tag), " on group \"", view.name,
                            count == 1 ? "\" was" : "\" were", " never received"),
                        {},
                        {}});
  }
  return findings;
}

}  // namespace lockstep::trace
