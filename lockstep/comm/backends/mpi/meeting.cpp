#include "lockstep/comm/backends/mpi/meeting.h"

#include <cstring>
#include <numeric>
#include <span>

#include "lockstep/base/error.h"
#include "lockstep/base/naps.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/comm/meeting/missing_rank.h"

namespace lockstep {
namespace {

constexpr int TAG = 0;  // reserved for meetings
constexpr std::chrono::microseconds REST{200};

struct Header {
  std::uint32_t meeting = 0;
  std::uint32_t round = 0;
  std::uint32_t bytes = 0;
};

std::vector<int> everybody(int size) {
  std::vector<int> ranks(static_cast<std::size_t>(size));
  std::iota(ranks.begin(), ranks.end(), 0);
  return ranks;
}

}  // namespace

MpiMeeting& MpiMeeting::of(const std::shared_ptr<mpi::Communicator>& communicator) {
  using Meetings = std::map<const mpi::Communicator*, std::unique_ptr<MpiMeeting>>;
  static auto* const meetings = new Meetings;  // outlives static destructors, as MPI does
  auto& meeting = (*meetings)[communicator.get()];
  if (!meeting) meeting.reset(new MpiMeeting(communicator));
  return *meeting;
}

MpiMeeting::MpiMeeting(std::shared_ptr<mpi::Communicator> communicator)
    : communicator_(std::move(communicator)),
      streams_(communicator_->open(TAG, everybody(communicator_->size()))),
      neighbours_(static_cast<std::size_t>(communicator_->size())) {}

void MpiMeeting::begin() {
  now_ = {now_.first + 1, 0};
  for (Neighbour& one : neighbours_) one.texts.erase(one.texts.begin(), one.texts.lower_bound(now_));
}

std::vector<Message> MpiMeeting::exchange(const std::string& text, const std::vector<int>& fds,
                                          Deadline deadline) {
  if (!fds.empty()) throw InternalError("a meeting over MPI passes no descriptors");
  if (text.size() > MAX_MESSAGE_BYTES - 16)
    throw InternalError(str("a meeting's message of ", text.size(), " bytes is too long"));
  ++now_.second;
  const Header header{now_.first, now_.second, static_cast<std::uint32_t>(text.size())};
  const auto head = std::as_bytes(std::span(&header, 1));
  const auto body = std::as_bytes(std::span(text));
  for (int r = 0; r < size(); ++r) {
    Neighbour& one = neighbours_[static_cast<std::size_t>(r)];
    if (r == rank()) {
      one.texts[now_] = text;
      continue;
    }
    one.outgoing.insert(one.outgoing.end(), head.begin(), head.end());
    one.outgoing.insert(one.outgoing.end(), body.begin(), body.end());
  }
  std::vector<int> missing;
  const Awaited awaited([&] { return str("rank(s) ", number_list(missing), " of the MPI job"); });
  for (Naps naps;; naps.sleep(REST)) {
    missing.clear();
    bool sent = true;
    for (int r = 0; r < size(); ++r) {
      sent = move(r) && sent;
      if (!neighbours_[static_cast<std::size_t>(r)].texts.contains(now_)) missing.push_back(r);
    }
    if (missing.empty() && sent) break;
    naps.now();
    if (deadline.expired())
      throw MissingRank(
          str(place(), ": rank(s) ", number_list(missing), " of the MPI job did not come before the timeout"),
          missing.empty() ? rank() : missing.front());
  }
  std::vector<Message> all(neighbours_.size());
  for (std::size_t r = 0; r < all.size(); ++r)
    all[r].text = std::move(neighbours_[r].texts.extract(now_).mapped());
  return all;
}

// Sends and receives as far as possible now. Returns whether everything has been sent.
bool MpiMeeting::move(int r) {
  if (r == rank()) return true;
  Neighbour& one = neighbours_[static_cast<std::size_t>(r)];
  const auto check = [&](const mpi::Streams::Moved& moved) {
    if (!moved.broken.empty())
      throw PeerLost(str(place(), ": rank ", r, " cannot be reached (", moved.broken, ")"), r);
    return moved.bytes;
  };
  while (!one.outgoing.empty()) {
    const std::size_t bytes = check(streams_->send(r, {std::span<const std::byte>(one.outgoing), {}}));
    if (bytes == 0) break;
    one.outgoing.erase(one.outgoing.begin(), one.outgoing.begin() + static_cast<std::ptrdiff_t>(bytes));
  }
  std::array<std::byte, 4096> buffer = {};
  while (const std::size_t bytes = check(streams_->receive(r, buffer)))
    one.incoming.insert(one.incoming.end(), buffer.begin(),
                        buffer.begin() + static_cast<std::ptrdiff_t>(bytes));
  while (parse(one)) {
  }
  return one.outgoing.empty();
}

bool MpiMeeting::parse(Neighbour& from) {
  Header header;
  if (from.incoming.size() < sizeof header) return false;
  std::memcpy(&header, from.incoming.data(), sizeof header);
  if (header.bytes > MAX_MESSAGE_BYTES)
    throw FormatError(str(place(), ": a message of ", header.bytes, " bytes in a meeting; at most ",
                          MAX_MESSAGE_BYTES, " are allowed"));
  if (from.incoming.size() < sizeof header + header.bytes) return false;
  const auto* const text = reinterpret_cast<const char*>(from.incoming.data() + sizeof header);
  const Key key{header.meeting, header.round};
  if (key >= now_) from.texts[key] = std::string(text, header.bytes);
  from.incoming.erase(from.incoming.begin(),
                      from.incoming.begin() + static_cast<std::ptrdiff_t>(sizeof header + header.bytes));
  return true;
}

}  // namespace lockstep
