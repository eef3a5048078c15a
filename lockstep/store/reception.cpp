#include "lockstep/store/reception.h"

#include <array>
#include <utility>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/os/tcp_socket.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds HANDSHAKE_TIME{5};
constexpr std::chrono::milliseconds UNTIL_DESCRIPTORS{100};
constexpr std::size_t MOST_REPORTS = 16;
constexpr int ACCEPTS_AT_ONCE = 64;

}  // namespace

Reception::Reception(Fd listener, const Options& options)
    : listener_(std::move(listener)), options_(options), list_(options.limits) {}

void Reception::add_to(PollSet& wait) const {
  if (pause_.expired()) wait.want_read(listener_.get());
  for (const auto& [fd, guest] : guests_) wait.want_read(fd);
}

Deadline Reception::next_deadline() const {
  Deadline next = Deadline::never();
  const auto earlier = [&next](Deadline other) {
    if (other.remaining() < next.remaining()) next = other;
  };
  if (!pause_.expired()) earlier(pause_);
  for (const auto& [fd, guest] : guests_) earlier(guest.deadline);
  return next;
}

std::vector<Reception::Admitted> Reception::serve(const PollSet& wait) {
  bool is_somebody_there = false;
  for (const int fd : wait.ready()) {
    is_somebody_there = is_somebody_there || fd == listener_.get();
    if (guests_.contains(fd)) hear(fd);
  }
  if (is_somebody_there) accept_waiting();
  drop_late();
  return std::exchange(admitted_, {});
}

// If the process has no descriptor left, the first unauthenticated connection is closed for the new one.
void Reception::accept_waiting() {
  for (int i = 0; i < ACCEPTS_AT_ONCE; ++i) {
    TcpAccepted accepted = tcp_accept(listener_.get());
    if (accepted.socket.valid()) {
      admit_newcomer(std::move(accepted.socket));
      continue;
    }
    if (!accepted.out_of_descriptors) return;
    const auto first = list_.first_to_go();
    if (!first) {
      report("this process may open no more files; connections wait", "");
      pause_ = Deadline::in(UNTIL_DESCRIPTORS);
      return;
    }
    if (!hear(*first)) drop(*first);
  }
}

// The newcomer is heard at once, because its hello may have arrived with the connection.
void Reception::admit_newcomer(Fd socket) {
  const int fd = socket.get();
  const std::string peer = tcp_peer_address(fd).host;
  make_room_for(peer);
  guests_.emplace(fd, Guest{std::move(socket), peer, ServerHandshake(options_.secret, options_.purpose),
                            Deadline::in(HANDSHAKE_TIME)});
  list_.enter(fd, peer);
  hear(fd);
}

// The oldest connection is read before it is dropped, because its proof may have arrived.
void Reception::make_room_for(const std::string& address) {
  while (const auto first = list_.in_the_way_of(address)) {
    if (hear(*first)) continue;
    report("too many connections that do not authenticate; the oldest silent ones are dropped", "");
    drop(*first);
  }
}

// Reads the data that the guest has sent. Returns whether anything changed, also if the guest left.
bool Reception::hear(int fd) {
  bool has_changed = false;
  while (guests_.contains(fd) && take_message(guests_.at(fd))) has_changed = true;
  return has_changed || !guests_.contains(fd);
}

// Returns true if this guest may have sent more.
bool Reception::take_message(Guest& guest) {
  const int fd = guest.socket.get();
  std::array<std::byte, HANDSHAKE_HELLO_BYTES> bytes{};
  const long got = tcp_read(fd, std::span(bytes).first(guest.handshake.needed()));
  if (got == 0) return false;
  if (got < 0) {
    report("it closed the connection while authenticating; does it have the secret of this job?", guest.peer);
    drop(fd);
    return false;
  }
  guest.handshake.feed(std::span(bytes).first(static_cast<std::size_t>(got)));
  const std::string answer = guest.handshake.take_output();  // smaller than any socket's buffer
  if (!answer.empty()) list_.spoke(fd);
  const bool is_sent = tcp_write(fd, std::as_bytes(std::span(answer))) == static_cast<long>(answer.size());
  if (guest.handshake.state() == HandshakeState::ACCEPTED) {
    admitted_.push_back({std::move(guest.socket), guest.handshake.hello(), guest.peer});
    list_.leave(fd);
    guests_.erase(fd);
    return false;
  }
  if (guest.handshake.state() == HandshakeState::REFUSED) report(guest.handshake.reason(), guest.peer);
  if (guest.handshake.state() == HandshakeState::RUNNING && is_sent) return true;
  drop(fd);
  return false;
}

void Reception::drop(int fd) {
  list_.leave(fd);
  guests_.erase(fd);
}

void Reception::drop_late() {
  for (auto at = guests_.begin(); at != guests_.end();) {
    auto& [fd, guest] = *at++;
    if (!guest.deadline.expired() || hear(fd)) continue;
    report(str("it did not authenticate within ", HANDSHAKE_TIME.count(), " s"), guest.peer);
    drop(fd);
  }
}

void Reception::report(const std::string& kind, const std::string& peer) {
  if (reported_.size() >= MOST_REPORTS || !reported_.insert(kind).second) return;
  log(LogLevel::WARNING,
      str(options_.name, ": ", peer.empty() ? "" : "refused a connection from " + peer + ": ", kind,
          " (more of this kind are not reported)"));
}

}  // namespace lockstep
