#include "lockstep/comm/group/group_failure.h"

#include "lockstep/base/exception_text.h"
#include "lockstep/base/str.h"
#include "lockstep/os/fork_generation.h"

namespace lockstep {
namespace {

constexpr std::size_t MOST_NAMED = 8;

double seconds(std::chrono::nanoseconds span) { return std::chrono::duration<double>(span).count(); }

std::string how_gone(const LostPeer& lost) {
  if (lost.has_left) return " has left the group";
  if (lost.unreachable.empty()) return " is dead";
  return str(" cannot be reached (", lost.unreachable, ")");
}

std::string where(const std::string& what, const GroupPlace& place) {
  return str(what, " on ", text_of(place), ": ");
}

}  // namespace

std::string text_of(const GroupPlace& place) {
  return str("group \"", place.group, "\", rank ", place.rank, " of ", place.size,
             place.world_rank == place.rank ? "" : str(" (rank ", place.world_rank, " of the world)"));
}

GroupFailure aborted(int reporter, const std::string& reason, ErrorCode code, int peer) {
  return {code, str("rank ", reporter, " aborted the group: ", reason), peer, reporter};
}

GroupFailure given_up(int reporter, const std::string& operation, const std::exception_ptr& error) {
  return {ErrorCode::ABORTED, str("rank ", reporter, " gave up ", operation, ": ", exception_text(error)), -1,
          reporter};
}

GroupFailure timed_out(int reporter, std::chrono::nanoseconds patience, const std::string& late,
                       const std::string& cause, int peer) {
  return {ErrorCode::TIMEOUT, str("no progress for ", seconds(patience), " s, waiting for ", late, cause),
          peer, reporter};
}

GroupFailure mismatched(int reporter, const std::string& disagreement, MismatchKind kind) {
  return {ErrorCode::MISMATCH, disagreement, -1, reporter, kind};
}

GroupFailure peer_lost(int reporter, const LostPeer& lost, const std::string& operation,
                       const std::string& direction, const std::string& cause) {
  const std::string last = lost.last_call.empty() ? "it had made no collective call"
                                                  : "its last collective call was " + lost.last_call;
  return {ErrorCode::PEER_LOST,
          str(lost.description, how_gone(lost), " while rank ", reporter, " was in ", operation, direction,
              "; ", last, lost.has_left ? cause : std::string()),
          lost.rank, reporter};
}

std::string list_of_late(const std::vector<int>& late, const std::function<std::string(int)>& describe) {
  std::string text;
  for (std::size_t i = 0; i < late.size() && i < MOST_NAMED; ++i)
    text += str(i == 0 ? "" : ", ", describe(late[i]));
  if (late.size() > MOST_NAMED) text += str(" and ", late.size() - MOST_NAMED, " more");
  return text.empty() ? "the other ranks to finish their part" : text;
}

std::string waiting_text(const std::string& operation, const GroupPlace& place,
                         std::chrono::nanoseconds waited, const std::string& late) {
  return str(operation, " on ", text_of(place), ": waiting for ", seconds(waited), " s for ", late);
}

void throw_failure(const std::string& what, const GroupPlace& place, const GroupFailure& failure,
                   const std::string& trace_note) {
  constexpr const char* ADVICE =
      "; the group is closed: destroy_process_group(), then init_process_group() to start anew";
  const std::string found = failure.reporter == place.rank || failure.reporter < 0
                                ? std::string()
                                : str(" (found by rank ", failure.reporter, ")");
  const std::string text = where(what, place) + failure.text + found + ADVICE + trace_note;
  if (failure.code == ErrorCode::MISMATCH) throw Mismatch(text, failure.kind);
  throw_error(failure.code, text, failure.peer);
}

void throw_left(const std::string& what, const GroupPlace& place) {
  throw Aborted(where(what, place) + "this rank has left the group (destroy_process_group)");
}

void throw_forked(const std::string& what, const GroupPlace& place) {
  throw Aborted(str(where(what, place), IS_A_FORK));
}

}  // namespace lockstep
