#include "lockstep/comm/meeting/hub.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text_hash.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/comm/meeting/greeting.h"
#include "lockstep/comm/meeting/missing_rank.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/private_folder.h"
#include "lockstep/os/process.h"

namespace lockstep {
namespace {

constexpr char PACKET = 'P';    // a rank's contribution
constexpr char ANSWERED = 'A';  // the same, and the receiver must answer with TAKEN
constexpr char TAKEN = 'T';
constexpr char FAILURE = 'F';  // from rank 0: it has given up, and why
constexpr char MIXED = 'M';    // the same if two jobs have met
// A larger job needs its descriptors for other purposes. There the death of a program before it joins is not
// noticed while its shell lives.
constexpr int MOST_WATCHED = 128;

// The most descriptors that are in flight to one rank.
constexpr std::size_t MOST_TO_ONE = 2 * MAX_MESSAGE_FDS;

// The most descriptors that rank 0 has in flight: a part of the kernel's limit for all processes of this
// user.
std::size_t descriptors_at_once() {
  constexpr std::size_t MOST = 256;
  constexpr std::size_t SHARE = 4;
  return std::clamp(open_files().soft / SHARE, MAX_MESSAGE_FDS, MOST);
}

// A job's name may hold any character; this name is valid for a socket file.
std::string file_name(const std::string& key) {
  std::uint64_t hash = text_hash(key);
  std::string text(16, '0');
  for (std::size_t i = text.size(); i-- > 0; hash >>= 4U) text[i] = "0123456789abcdef"[hash & 0xfU];
  return text;
}

// Throws the failure that give_up() of rank 0 sent: "F", the rank, ":", the reason; or "M" and the reason.
[[noreturn]] void rethrow(const std::string& failure, const std::string& caller) {
  if (failure[0] == MIXED) throw Mismatch(failure.substr(1));
  int peer = -1;
  const std::size_t colon = failure.find(':');
  std::from_chars(failure.data() + 1, failure.data() + std::min(colon, failure.size()), peer);
  throw PeerLost(colon == std::string::npos ? caller + ": rank 0 gave up" : failure.substr(colon + 1), peer);
}

constexpr std::chrono::seconds GREETING{2};  // of a process that has connected

}  // namespace

// Called by rank 0. If another process listens already, that process learns of this one, and both give up.
Fd Hub::listen_alone(const std::string& path, const Guest& self) const {
  try {
    return listen_at(path);
  } catch (const SystemError& error) {
    if (error.error_number() != EADDRINUSE) throw;
    const std::optional<Fd> other = connect_to(path);
    Message answer;
    if (other && send_message(other->get(), greeting(self.rank, self.job)) &&
        receive_message(other->get(), Deadline::in(GREETING), answer) == Received::MESSAGE &&
        answer.text[0] == MIXED)
      rethrow(answer.text, caller());
    throw Mismatch(str(place(), ": another process is rank 0 of ", describe(self.job), " (", error.what(),
                       "); ", TELL_JOBS_APART));
  }
}

void Hub::throw_missing(const std::vector<int>& missing, const std::string& path) const {
  throw MissingRank(
      str(place(), ": rank(s) ", number_list(missing), " did not come before the timeout to the Unix socket ",
          printable(path), "; were all ", size_, " processes started on this machine?"),
      missing.front());
}

Hub Hub::inherited(int rank, int size, const std::string& fds) {
  Hub hub(rank, size);
  hub.sockets_.resize(1);
  const char* at = fds.data();
  const char* end = at + fds.size();
  if (rank != 0) hub.sockets_.clear();
  while (at < end) {
    int fd = -1;
    const auto [next, error] = std::from_chars(at, end, fd);
    if (error != std::errc() || !is_packet_socket(fd) || (next != end && *next != ',')) {
      throw InvalidArgument(
          "environment: LOCKSTEP_HUB_FDS=\"" + printable(fds) +
          "\" does not name sockets of this process; it is set by `lockstep run` for its own ranks only");
    }
    set_close_on_exec(fd);
    hub.sockets_.emplace_back(fd);
    at = next + 1;
  }
  const int expected = rank == 0 ? size : 1;
  if (hub.sockets_.size() != static_cast<std::size_t>(expected)) {
    throw InvalidArgument(str("environment: LOCKSTEP_HUB_FDS has ", hub.sockets_.size(), " sockets for rank ",
                              rank, " of ", size, "; it is set by `lockstep run` for its own ranks only"));
  }
  make_room_for_files(open_files_of_rank(static_cast<std::size_t>(size)) - hub.sockets_.size(), hub.place());
  return hub;
}

Hub Hub::over(int rank, int size, std::vector<Fd> sockets) {
  Hub hub(rank, size);
  hub.sockets_ = std::move(sockets);
  return hub;
}

Hub Hub::meet(int rank, int size, const std::string& key, Deadline deadline, const JobFingerprint& job,
              const std::string& caller) {
  Hub hub(rank, size);
  hub.set_caller(caller);
  if (size == 1) return hub;
  if (rank == 0) make_room_for_files(open_files_of_rank(static_cast<std::size_t>(size)), hub.place());
  const std::string path = user_private_folder() + "/" + file_name(key);
  if (rank == 0) {
    hub.welcome(path, job, deadline);
    return hub;
  }
  // Rank 0 may start later: there is nothing to wait on until its socket exists.
  std::optional<Fd> socket;
  const Awaited awaited([&] { return str("rank 0 to open the Unix socket ", printable(path)); });
  while (!(socket = connect_to(path))) {
    if (deadline.expired()) hub.throw_missing({0}, path);
    nap(std::chrono::milliseconds(2));
  }
  send_message(socket->get(), greeting(rank, job));
  hub.sockets_.push_back(std::move(*socket));
  return hub;
}

void Hub::welcome(const std::string& path, const JobFingerprint& job, Deadline deadline) {
  const Guest self = {.rank = 0, .pid = current_pid(), .job = job};
  const Fd listener = listen_alone(path, self);
  sockets_.resize(static_cast<std::size_t>(size_));
  std::vector<pid_t> taken(sockets_.size());
  taken[0] = self.pid;
  const auto missing = [&] {
    std::vector<int> ranks;
    for (int r = 1; r < size_; ++r) {
      if (!sockets_[static_cast<std::size_t>(r)].valid()) ranks.push_back(r);
    }
    return ranks;
  };
  const Awaited awaited([&] {
    return str("rank(s) ", number_list(missing()), " to come to the Unix socket ", printable(path));
  });
  for (int joined = 1; joined < size_;) {
    Fd socket = accept_from_same_user(listener.get(), deadline);
    if (!socket.valid()) {
      remove_socket(path);
      throw_missing(missing(), path);
    }
    Message hello;
    if (receive_message(socket.get(), Deadline::in(GREETING), hello) != Received::MESSAGE) continue;
    const Guest guest = read_greeting(hello.text, peer_pid(socket.get()));
    const auto place = static_cast<std::size_t>(guest.rank);
    std::string why = objection(self, size_, guest, place < taken.size() ? taken[place] : 0);
    if (!why.empty()) {
      why = str(caller(), ", ", why);
      remove_socket(path);
      sockets_.push_back(std::move(socket));
      for (const Fd& each : sockets_)
        if (each.valid()) send_message(each.get(), MIXED + why);
      throw Mismatch(why);
    }
    taken[place] = std::max(guest.pid, 1);  // 0: its process is in another pid namespace
    sockets_[place] = std::move(socket);
    ++joined;
  }
  remove_socket(path);
}

std::vector<Message> Hub::exchange(const std::string& text, const std::vector<int>& fds, Deadline deadline) {
  ++round_;
  const std::string packet = str(PACKET, round_, ':', text);
  const std::size_t header = packet.size() - text.size();
  std::vector<Message> all =
      rank_ == 0 ? collect(packet, fds, deadline) : tell_and_hear(packet, fds, deadline);
  if (rank_ == 0) distribute(all, deadline);
  for (Message& message : all) {
    if (message.text.compare(0, header, packet, 0, header) != 0) {
      throw StoreError(
          str(place(),
              ": the ranks are not at the same step of meeting "
              "(different versions of Lockstep, or one initialised more often than the others)"));
    }
    message.text.erase(0, header);
  }
  return all;
}

std::vector<Message> Hub::tell_and_hear(const std::string& text, const std::vector<int>& fds,
                                        Deadline deadline) {
  const int hub = sockets_[0].get();
  // If rank 0 has given up or ended, its reason can still be received.
  if (send_message(hub, text, fds, deadline) == Sent::TIMED_OUT) give_up({0}, false);
  std::vector<Message> all;
  const Awaited awaited([] { return "rank 0, or for the ranks that it waits for"; });
  for (int r = 0; r < size_; ++r) {
    Message message;
    const Received received = hear({0}, deadline, message).received;
    if (received != Received::MESSAGE) give_up({0}, received == Received::CLOSED);
    if (message.text[0] == FAILURE || message.text[0] == MIXED) rethrow(message.text, caller());
    if (message.text[0] == ANSWERED) {
      message.text[0] = PACKET;
      send_message(hub, std::string(1, TAKEN));
    }
    all.push_back(std::move(message));
  }
  return all;
}

std::vector<Message> Hub::collect(const std::string& text, const std::vector<int>& fds, Deadline deadline) {
  std::vector<Message> all(static_cast<std::size_t>(size_));
  std::vector<std::size_t> waiting;
  for (std::size_t r = 1; r < all.size(); ++r) waiting.push_back(r);
  const auto missing = [&] { return std::vector<int>(waiting.begin(), waiting.end()); };
  const Awaited awaited([&] { return str("rank(s) ", number_list(missing())); });
  while (!waiting.empty()) {
    Message message;
    const Heard heard = hear(waiting, deadline, message);
    if (heard.received == Received::TIMED_OUT) give_up(missing(), false);
    if (heard.received == Received::CLOSED) give_up({static_cast<int>(heard.place)}, true);
    all[heard.place] = std::move(message);
    std::erase(waiting, heard.place);
  }
  all[0].text = text;
  for (int fd : fds) all[0].fds.push_back(duplicate(fd));
  return all;
}

// The kernel limits the descriptors that a user's processes have in flight (RLIMIT_NOFILE). N messages for
// each of N ranks may exceed that limit. So rank 0 sends a few to each rank, and more to a rank that has
// received them.
//
// A rank that died after it sent its message is noticed in the next exchange or, after the last one, by the
// group. Rank 0 must not give up here: other ranks already have all messages, and would wait for rank 0 in
// their group.
void Hub::distribute(const std::vector<Message>& all, Deadline deadline) {
  const std::size_t most = descriptors_at_once();
  std::vector<Receiver> receivers(static_cast<std::size_t>(size_));
  receivers[0].is_gone = true;  // rank 0 has all messages
  std::vector<std::size_t> waiting;
  const auto late = [&] { return std::vector<int>(waiting.begin(), waiting.end()); };
  const Awaited awaited(
      [&] { return str("rank(s) ", number_list(late()), " to receive rank 0's messages"); });
  for (std::size_t under_way = 0;;) {
    waiting.clear();
    for (std::size_t r = 1; r < receivers.size(); ++r) {
      if (receivers[r].under_way == 0) {
        pass(all, static_cast<int>(r), receivers[r], std::min(most - under_way, MOST_TO_ONE), deadline);
        under_way += receivers[r].under_way;
      }
      if (receivers[r].under_way > 0) waiting.push_back(r);
    }
    if (under_way == 0) return;
    Message answer;
    const Heard heard = hear(waiting, deadline, answer);
    if (heard.received == Received::TIMED_OUT) give_up(late(), false);
    Receiver& receiver = receivers[heard.place];
    receiver.is_gone = heard.received != Received::MESSAGE;
    under_way -= std::exchange(receiver.under_way, 0);
  }
}

// Sends rank `r` the next messages, with at most `room` descriptors. If there are descriptors, rank `r` must
// answer the last of these messages.
void Hub::pass(const std::vector<Message>& all, int r, Receiver& to, std::size_t room, Deadline deadline) {
  if (to.is_gone) return;
  std::size_t end = to.next;
  std::size_t descriptors = 0;
  for (; end < all.size() && descriptors + all[end].fds.size() <= room; ++end)
    descriptors += all[end].fds.size();
  for (; to.next < end && !to.is_gone; ++to.next) {
    const Message& message = all[to.next];
    std::vector<int> handles;
    for (const Fd& fd : message.fds) handles.push_back(fd.get());
    std::string text = message.text;
    if (to.next == end - 1 && descriptors > 0) text[0] = ANSWERED;
    const Sent sent = send_message(sockets_[static_cast<std::size_t>(r)].get(), text, handles, deadline);
    if (sent == Sent::TIMED_OUT) give_up({r}, false);
    to.is_gone = sent == Sent::CLOSED;
  }
  to.under_way = to.is_gone ? 0 : descriptors;
}

// Waits for the sockets and, at the same positions behind them, for the processes at their other ends.
Hub::Heard Hub::hear(const std::vector<std::size_t>& from, Deadline deadline, Message& message) {
  peers_.resize(sockets_.size());
  while (true) {
    std::vector<int> fds;
    for (const std::size_t place : from) fds.push_back(sockets_[place].get());
    std::chrono::nanoseconds patience = deadline.remaining();
    for (const std::size_t place : from) {
      fds.push_back(peers_[place].watched());
      patience = std::min(patience, peers_[place].patience().remaining());
    }
    const auto ready = wait_readable(fds, Deadline::in(patience));
    for (const std::size_t place : from) {
      if (!ready && peers_[place].is_lost()) return {place, Received::CLOSED};
    }
    if (!ready && deadline.expired()) return {from[0], Received::TIMED_OUT};
    if (!ready) continue;
    const std::size_t place = from[*ready % from.size()];
    if (*ready >= from.size()) {  // its process has ended; messages that it sent before come first
      if (!wait_readable({sockets_[place].get()}, Deadline::in(std::chrono::seconds(0))))
        peers_[place].note_death();
      continue;
    }
    const Received received = receive_message(sockets_[place].get(), deadline, message);
    const bool is_greeting =
        received == Received::MESSAGE && peers_[place].take(message, size_ <= MOST_WATCHED);
    if (!is_greeting) return {place, received};
  }
}

void Hub::give_up(const std::vector<int>& missing, bool closed) {
  const auto place = rank_ == 0 ? static_cast<std::size_t>(missing[0]) : 0;
  std::string how = place < peers_.size() ? peers_[place].how_ended() : "";
  if (!how.empty())
    how = str(" (", how,
              peers_[place].is_lost() ? "; the process that started it, such as a shell, lives on)" : ")");
  const std::string text =
      str(caller(), ", group of ", size_, missing.size() == 1 ? ": rank " : ": ranks ", number_list(missing),
          closed ? " ended before all ranks had met" : " did not come before the timeout", closed ? how : "");
  for (int r = 1; rank_ == 0 && r < size_; ++r) {
    if (closed && r == missing[0]) continue;
    const int socket = sockets_[static_cast<std::size_t>(r)].get();
    send_message(socket, str(FAILURE, missing[0], ':', text), {},
                 Deadline::in(std::chrono::seconds(0)));  // does not wait for a stopped rank
  }
  if (closed) throw PeerLost(text, missing[0]);
  throw MissingRank(text, missing[0]);
}

}  // namespace lockstep
