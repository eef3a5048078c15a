#include "lockstep/comm/collectives/monitored_barrier.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/naps.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/os/failure_note.h"

namespace lockstep::comm {
namespace {

constexpr int TAG = -2;  // tags of programs are not negative
constexpr std::chrono::milliseconds LOOK(1);

Work token(const ProcessGroup& group, Verb verb, int peer, std::uint8_t* byte, bool async_op) {
  Request request;
  request.verb = verb;
  request.root = peer;
  request.tag = TAG;
  request.count = 1;
  request.input = byte;
  request.output = byte;
  return run(group, std::move(request), async_op);
}

std::vector<int> missing_ranks(const std::vector<Work>& arrivals) {
  std::vector<int> missing;
  for (std::size_t i = 0; i < arrivals.size(); ++i) {
    if (!arrivals[i].is_completed()) missing.push_back(static_cast<int>(i) + 1);
  }
  return missing;
}

[[noreturn]] void give_up(const ProcessGroup& group, const std::vector<int>& missing,
                          std::chrono::milliseconds timeout) {
  const std::string reason = str(ranks_text(group, missing), " did not come within ", timeout.count(), " ms");
  note_failure(ErrorCode::TIMEOUT, group.ranks().at(static_cast<std::size_t>(missing.front())));
  group.abort(str("monitored_barrier: ", reason));
  throw RanksMissing(str("monitored_barrier on group \"", group.name(), "\", rank 0 of ", group.size(), ": ",
                         reason, "; the group is closed"),
                     missing);
}

void collect(const ProcessGroup& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  std::vector<std::uint8_t> bytes(static_cast<std::size_t>(group.size()));
  std::vector<Work> arrivals;
  for (int r = 1; r < group.size(); ++r)
    arrivals.push_back(token(group, Verb::RECV, r, &bytes[static_cast<std::size_t>(r)], /*async_op=*/true));
  const Deadline deadline = Deadline::in(timeout);
  std::vector<int> missing = missing_ranks(arrivals);
  for (Naps naps; !missing.empty();) {
    naps.now();
    if (deadline.expired()) {
      if (!wait_all_ranks) missing.resize(1);
      give_up(group, missing, timeout);
    }
    naps.sleep(LOOK);  // polls, because waiting for one rank would hide the others
    missing = missing_ranks(arrivals);
  }
  for (Work& arrival : arrivals) arrival.wait();  // throws the error of a failed receive
  for (int r = 1; r < group.size(); ++r) token(group, Verb::SEND, r, bytes.data(), /*async_op=*/false);
}

}  // namespace

void monitored_barrier(const ProcessGroup& group, std::chrono::milliseconds timeout, bool wait_all_ranks) {
  if (!takes_part(Verb::BARRIER, group)) return;
  if (timeout <= std::chrono::milliseconds::zero())
    refuse(Verb::BARRIER, group, "the timeout must be positive");
  timeout = bounded_timeout(timeout);
  if (group.rank() == 0) return collect(group, timeout, wait_all_ranks);
  std::uint8_t byte = 1;
  token(group, Verb::SEND, 0, &byte, /*async_op=*/false);
  // Twice the timeout, so that rank 0's error, which names all missing ranks, comes first.
  token(group, Verb::RECV, 0, &byte, /*async_op=*/true).wait(2 * timeout);
}

}  // namespace lockstep::comm
