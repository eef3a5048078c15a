#include "lockstep/comm/backends/tcp_mesh.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <list>
#include <map>
#include <optional>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/process.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/handshake.h"

namespace lockstep::tcp {
namespace {

// All ranks are here when connecting begins, so nobody has a reason to take longer.
constexpr std::chrono::seconds LONGEST_STEP{30};
constexpr std::chrono::seconds ATTEMPT{2};
constexpr std::size_t MOST_STRANGERS = 256;

struct Announcement {
  TcpAddress address;
  long pid = 0;
  int connections = 0;
  std::string secret;  // of rank 0, if the meeting has none
};

Announcement parse(const std::string& text, int rank) {
  std::istringstream words(text);
  Announcement parsed;
  words >> parsed.pid >> parsed.address.host >> parsed.address.port >> parsed.connections >> parsed.secret;
  if (parsed.pid <= 0 || parsed.address.host.empty() || parsed.address.port <= 0 ||
      parsed.address.port > 65535 || parsed.connections < 1 || parsed.connections > MOST_CONNECTIONS)
    throw StoreError(str("init_process_group: rank ", rank, " announced itself as \"", printable(text),
                         "\" instead of its address"));
  return parsed;
}

// A connection names its ends, so that one meant for another rank is of no use here.
std::string ends(int from, int to, int connection) {
  return str("tcp rank ", from, " to ", to, ", ", connection);
}

class Mesh {
 public:
  Mesh(Meeting& meeting, Deadline deadline)
      : meeting_(meeting), step_(std::min(deadline.remaining(), std::chrono::nanoseconds(LONGEST_STEP))) {}

  MeshOfSockets connect(int wanted, Deadline deadline) {
    const Fd listener = tcp_listen(meeting_.local_address(), 0);
    announce(listener.get(), wanted, deadline);
    const Deadline connected = Deadline::in(step_);
    for_each_to_lower([&](int r, int i) { connect_to(r, i, connected); });
    // From here on all connections exist; those that this rank is to accept wait in the listener's queue.
    learn_ports(meeting_.exchange(own_ports(), {}, deadline));
    const Deadline authenticated = Deadline::in(step_);
    for_each_to_lower([&](int r, int i) { introduce_to(r, i, authenticated); });
    accept_all(listener.get(), authenticated);
    meeting_.exchange("ready", {}, deadline);
    return {std::move(sockets_), std::move(peers_)};
  }

 private:
  struct Guest {
    Fd socket;
    ServerHandshake handshake;
    int port = 0;
  };

  int rank() const { return meeting_.rank(); }
  int size() const { return meeting_.size(); }
  std::string who() const { return str("init_process_group, rank ", rank(), " of ", size(), ": "); }
  Peer& peer(int r) { return peers_[static_cast<std::size_t>(r)]; }
  int connections() const { return announced_[0].connections; }
  std::vector<Fd>& sockets(int r) { return sockets_[static_cast<std::size_t>(r)]; }
  Fd& socket(int r, int i) { return sockets(r)[static_cast<std::size_t>(i)]; }
  bool is_missing(int r) {
    return std::any_of(sockets(r).begin(), sockets(r).end(), [](const Fd& one) { return !one.valid(); });
  }
  template <typename Visit> void for_each_to_lower(Visit visit) {
    for (int r = 0; r < rank(); ++r) {
      for (int i = 0; i < connections(); ++i) visit(r, i);
    }
  }
  std::string place_of(int r) { return str(r, " (pid ", peer(r).pid, " at ", peer(r).address, ")"); }

  void announce(int listener, int wanted, Deadline deadline) {
    const auto known = meeting_.secret();
    const std::string fresh = !known && rank() == 0 ? Secret::random().as_hex() : "";
    const std::string mine =
        str(current_pid(), ' ', meeting_.local_address(), ' ', tcp_local_address(listener).port, ' ', wanted,
            fresh.empty() ? "" : " ", fresh);
    const std::vector<Message> all = meeting_.exchange(mine, {}, deadline);
    for (int r = 0; r < size(); ++r) {
      announced_.push_back(parse(all[static_cast<std::size_t>(r)].text, r));
      peers_.push_back({text(announced_.back().address), announced_.back().pid});
    }
    sockets_.resize(static_cast<std::size_t>(size()));
    for (int r = 0; r < size(); ++r) {
      if (r != rank()) sockets(r).resize(static_cast<std::size_t>(connections()));
    }
    secret_ = known ? Secret::from_text(*known, "the secret of the job")
                    : Secret::from_text(announced_[0].secret, "the secret of rank 0");
  }

  // It may have ended because of another rank's end, of which the meeting tells.
  [[noreturn]] void throw_ended(int r) {
    meeting_.exchange("ended", {}, Deadline::in(step_));
    throw PeerLost(
        str("init_process_group, group of ", size(), ": rank ", r, " ended before all ranks had met"), r);
  }

  // The ports of this rank's connections to each lower one, so that who accepts knows whose connection has ended.
  std::string own_ports() {
    std::string ports = "connected";
    for_each_to_lower([&](int r, int i) { ports += str(' ', tcp_local_address(socket(r, i).get()).port); });
    return ports.size() <= MAX_MESSAGE_BYTES - 16 ? ports : "connected";
  }

  void learn_ports(const std::vector<Message>& all) {
    for (int r = 0; r < size(); ++r) {
      std::istringstream words(all[static_cast<std::size_t>(r)].text);
      std::string word;
      int port = 0;
      words >> word;
      for (int place = 0; words >> port; ++place) {
        if (place / connections() == rank()) port_of_[port] = r;
      }
    }
  }

  void ended(const Guest& guest) {
    const auto known = port_of_.find(guest.port);
    if (known != port_of_.end() && is_missing(known->second)) throw_ended(known->second);
  }

  // It listens since before this rank knew its address, so it has ended if nobody listens there.
  void connect_to(int r, int i, Deadline deadline) {
    const TcpAddress& address = announced_[static_cast<std::size_t>(r)].address;
    try {
      socket(r, i) = tcp_connect(address.host, address.port, Deadline::in(ATTEMPT), IfRefused::FAIL);
    } catch (const SystemError& error) {
      if (error.error_number() == ECONNREFUSED) throw_ended(r);
      throw;
    } catch (const Timeout& timeout) {
      if (!deadline.expired()) return connect_to(r, i, deadline);
      throw Timeout(str(who(), "no connection to rank ", r, " (pid ", peer(r).pid, "): ", timeout.what()));
    }
  }

  void introduce_to(int r, int i, Deadline deadline) {
    try {
      authenticate_to_server(socket(r, i).get(), *secret_,
                             {HandshakePurpose::GROUP, 0, opaque_text(ends(rank(), r, i))}, deadline);
    } catch (const HandshakeCutOff&) {
      throw_ended(r);  // the meeting was a meeting of those who know the secret
    } catch (const StoreError& error) {
      throw StoreError(str(who(), "rank ", place_of(r), ": ", error.what()));
    } catch (const Timeout& timeout) {
      throw Timeout(str(who(), "rank ", place_of(r), ": ", timeout.what()));
    }
  }

  void accept_all(int listener, Deadline deadline) {
    std::list<Guest> guests;
    while (!missing().empty()) {
      PollSet ready;
      ready.want_read(listener);
      for (const Guest& guest : guests) ready.want_read(guest.socket.get());
      ready.run(deadline);
      if (deadline.expired()) throw_missing();
      while (true) {
        TcpAccepted accepted = tcp_accept(listener);
        if (!accepted.socket.valid()) break;
        const int port = tcp_peer_address(accepted.socket.get()).port;
        guests.push_back(
            {std::move(accepted.socket), ServerHandshake(*secret_, HandshakePurpose::GROUP), port});
        if (guests.size() > MOST_STRANGERS + static_cast<std::size_t>(size() * connections()))
          guests.pop_front();
      }
      guests.remove_if([&](Guest& guest) { return ready.is_ready(guest.socket.get()) && talk_to(guest); });
    }
  }

  // True when there is no more to say: the guest has become a peer, or is refused or gone.
  bool talk_to(Guest& guest) {
    std::array<std::byte, HANDSHAKE_HELLO_BYTES> bytes{};
    const long got = tcp_read(guest.socket.get(), std::span(bytes).first(guest.handshake.needed()));
    if (got < 0) return ended(guest), true;
    guest.handshake.feed(std::span(bytes).first(static_cast<std::size_t>(got)));
    const std::string answer = guest.handshake.take_output();  // less than any socket's buffer
    if (tcp_write(guest.socket.get(), std::as_bytes(std::span(answer))) != static_cast<long>(answer.size()))
      return true;
    if (guest.handshake.state() != HandshakeState::ACCEPTED)
      return guest.handshake.state() == HandshakeState::REFUSED;
    const std::string name = opaque_text(guest.handshake.hello().opaque);
    for (const int r : missing()) {
      for (int i = 0; i < connections(); ++i) {
        if (name == ends(r, rank(), i)) socket(r, i) = std::move(guest.socket);
      }
    }
    return true;
  }

  std::vector<int> missing() {
    std::vector<int> ranks;
    for (int r = rank() + 1; r < size(); ++r) {
      if (is_missing(r)) ranks.push_back(r);
    }
    return ranks;
  }

  [[noreturn]] void throw_missing() {
    std::string text;
    for (const int r : missing()) text += str(text.empty() ? "" : ", ", place_of(r));
    throw Timeout(str(who(), "no connection came from rank(s) ", text, " in ", LONGEST_STEP.count(),
                      " s; do they reach ", peer(rank()).address, ", and do they know the same secret?"));
  }

  Meeting& meeting_;
  const std::chrono::nanoseconds step_;  // at most, for each
  std::optional<Secret> secret_;
  std::vector<Announcement> announced_;
  std::vector<Peer> peers_;
  std::vector<std::vector<Fd>> sockets_;
  std::map<int, int> port_of_;  // ranks that connect to this one
};

}  // namespace

MeshOfSockets connect_mesh(Meeting& meeting, const MeshOptions& options, Deadline deadline) {
  MeshOfSockets mesh = Mesh(meeting, deadline).connect(options.connections, deadline);
  for (const auto& sockets : mesh.sockets) {
    for (const Fd& socket : sockets) tcp_set_probes(socket.get(), options.silence);
  }
  return mesh;
}

}  // namespace lockstep::tcp
