#include "lockstep/launch/job_cause.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "lockstep/base/str.h"

namespace lockstep {
namespace {

// Other machines notice a failed rank and stop their ranks within a second, so they publish in time.
constexpr std::chrono::seconds OTHERS_END{5};
constexpr std::chrono::seconds OWNER_SAYS{2};

// The published ends of all nodes.
struct AllEnds {
  std::vector<RankEnd> ends;
  std::vector<std::pair<int, int>> nodes;  // rank, node
  std::vector<int> silent;                 // nodes that published none
  std::vector<int> gone;                   // those of them whose launcher is gone
};

AllEnds all_ends(NodeLink& link, int node, std::span<const RankEnd> mine) {
  AllEnds all;
  const auto published = link.published(Deadline::in(OTHERS_END));
  for (std::size_t i = 0; i < published.size(); ++i) {
    const bool is_own = static_cast<int>(i) == node;
    const Published& its = published[i];
    if (!its.ends && !is_own) all.silent.push_back(static_cast<int>(i));
    if (its.is_gone && !is_own) all.gone.push_back(static_cast<int>(i));
    const std::vector<RankEnd> ends = is_own     ? std::vector<RankEnd>(mine.begin(), mine.end())
                                      : its.ends ? unpack_ends(*its.ends)
                                                 : std::vector<RankEnd>();
    for (const RankEnd& end : ends) {
      all.ends.push_back(end);
      all.nodes.emplace_back(end.rank, static_cast<int>(i));
    }
  }
  return all;
}

int node_of(const AllEnds& all, int rank) {
  const auto found =
      std::find_if(all.nodes.begin(), all.nodes.end(), [&](const auto& one) { return one.first == rank; });
  if (found != all.nodes.end()) return found->second;
  return all.silent.empty() ? 0 : all.silent.front();
}

std::string line_of(const NodeFailure& failure) { return str("node ", failure.node, ": ", failure.what); }

// The description of a rank's failure if its launcher did not give one.
std::string without_words(const FirstCause& cause, std::span<const RankEnd> ends, int node) {
  if (!cause.is_known)
    return str("rank ", cause.rank, " failed first, and the launcher of node ", node, " is gone");
  const auto end =
      std::find_if(ends.begin(), ends.end(), [&](const RankEnd& one) { return one.rank == cause.rank; });
  return str("rank ", cause.rank, " ", describe(cause.kind, end->status));
}

}  // namespace

int exit_code_of(const FirstCause& cause, std::span<const RankEnd> ends) {
  const RankEnd* best = nullptr;
  for (const RankEnd& end : ends) {
    if (end.rank == cause.rank && end.has_failed()) return end.status.shell_code();
    if (end.has_failed() && (best == nullptr || end.after < best->after)) best = &end;
  }
  return best != nullptr ? best->status.shell_code() : 1;
}

std::optional<JobCause> find_job_cause(NodeLink& link, int node, std::span<const RankEnd> mine,
                                       const std::function<std::string(const FirstCause&)>& words) {
  link.publish(pack_ends(mine));
  const AllEnds all = all_ends(link, node, mine);
  const auto cause = first_cause(all.ends);
  if (!cause && all.gone.empty()) return std::nullopt;
  if (!cause) {
    const NodeFailure agreed =
        link.agree({all.gone.front(), 1, str("the launcher of node ", all.gone.front(), " is gone")});
    return JobCause{false, {}, line_of(agreed), agreed.exit_code, true};
  }
  const int owner = node_of(all, cause->rank);
  const auto say = [&](const std::string& what) {
    return link.agree({owner, exit_code_of(*cause, all.ends), what});
  };
  std::optional<NodeFailure> agreed;
  if (owner == node) {
    agreed = say(words(*cause));
  } else {
    if (cause->is_known) agreed = link.agreed(Deadline::in(OWNER_SAYS));
    if (!agreed) agreed = say(without_words(*cause, all.ends, owner));
  }
  const bool is_here = owner == node && agreed->node == node;
  return JobCause{is_here, *cause, line_of(*agreed), agreed->exit_code, !all.gone.empty()};
}

std::string pack_ends(std::span<const RankEnd> ends) {
  std::string text;
  for (const RankEnd& end : ends) {
    const ToldFailure told = end.told.value_or(ToldFailure{});
    text += str(end.rank, ' ', end.status.code, ' ', end.status.signal, ' ', end.was_stopped ? 1 : 0, ' ',
                end.stood_still ? 1 : 0, ' ', end.after.count(), ' ', end.told ? 1 : 0, ' ',
                static_cast<std::uint32_t>(told.code), ' ', told.culprit, ' ', told.after.count(), '\n');
  }
  return text;
}

std::vector<RankEnd> unpack_ends(const std::string& text) {
  std::vector<RankEnd> ends;
  std::istringstream in(text);
  RankEnd end;
  ToldFailure told;
  bool has_told = false;
  long after = 0;
  long told_after = 0;
  std::uint32_t code = 0;
  while (in >> end.rank >> end.status.code >> end.status.signal >> end.was_stopped >> end.stood_still >>
         after >> has_told >> code >> told.culprit >> told_after) {
    end.after = std::chrono::milliseconds(after);
    told.code = static_cast<ErrorCode>(code);
    told.after = std::chrono::milliseconds(told_after);
    end.told = has_told ? std::optional(told) : std::nullopt;
    ends.push_back(end);
  }
  return ends;
}

}  // namespace lockstep
