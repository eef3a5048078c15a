#include "lockstep/comm/backends/tcp/mesh.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <exception>
#include <functional>
#include <optional>
#include <sstream>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/process.h"
#include "lockstep/os/signal_mask.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/handshake.h"
#include "lockstep/store/reception.h"

namespace lockstep::tcp {
namespace {

// All ranks have met when connecting begins, so no rank has a reason to take longer.
constexpr std::chrono::seconds LONGEST_STEP{30};
constexpr std::chrono::seconds ATTEMPT{2};
constexpr std::chrono::milliseconds FIRST_PAUSE{10};
constexpr std::chrono::milliseconds LONGEST_PAUSE{200};

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
    throw StoreError(str("backend \"tcp\": rank ", rank, " announced itself as \"", printable(text),
                         "\" instead of its address"));
  return parsed;
}

// A connection names its two ends. A connection for another rank is therefore rejected.
std::string ends(int from, int to, int connection) {
  return str("tcp rank ", from, " to ", to, ", ", connection);
}

// Admits the connections of higher ranks, whatever strangers do at the same address. A thread does this as
// long as the object lives.
class Door {
 public:
  using OnArrival = std::function<void(Reception::Admitted)>;

  // `on_arrival` runs on the thread.
  Door(Reception& reception, OnArrival on_arrival)
      : reception_(reception), on_arrival_(std::move(on_arrival)), stop_(make_pipe()) {
    const AllSignalsBlocked quiet;
    thread_ = std::thread([this] { run(); });
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;
  ~Door() { close(); }

  void close() {
    stop_.write.reset();
    if (thread_.joinable()) thread_.join();
  }
  // Called after close. Throws the error that ended the thread early, if any.
  void check() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  void run() {
    try {
      for (;;) {
        PollSet wait;
        wait.want_read(stop_.read.get());
        reception_.add_to(wait);
        wait.run(reception_.next_deadline());
        if (wait.is_ready(stop_.read.get())) return;
        for (auto& one : reception_.serve(wait)) on_arrival_(std::move(one));
      }
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  Reception& reception_;
  const OnArrival on_arrival_;
  Pipe stop_;
  std::thread thread_;
  std::exception_ptr failure_;  // written by the thread until it is joined
};

class Mesh {
 public:
  Mesh(Meeting& meeting, Deadline deadline)
      : meeting_(meeting), step_(std::min(deadline.remaining(), std::chrono::nanoseconds(LONGEST_STEP))) {}

  MeshOfSockets connect(int wanted, Deadline deadline) {
    constexpr std::size_t OWN = 8;  // descriptors that the thread itself needs, such as the listener
    make_room_for_files(static_cast<std::size_t>(wanted) * static_cast<std::size_t>(size()) + OWN,
                        meeting_.place());
    Fd listener = tcp_listen(meeting_.local_address(), 0);
    announce(listener.get(), wanted, deadline);
    Reception reception(std::move(listener),
                        {*secret_, HandshakePurpose::GROUP,
                         str("rank ", rank(), " of ", size(), " at ", peer(rank()).address)});
    Door door(reception, [this](Reception::Admitted one) { welcome(std::move(one)); });
    const Deadline connected = Deadline::in(step_);
    for_each_to_lower([&](int r, int i) { connect_to(r, i, connected); });
    // A rank reaches this exchange when all its connections have been welcomed.
    const auto all = meeting_.exchange(CONNECTED, {}, deadline);
    door.close();
    door.check();
    check_complete(all);
    return {std::move(sockets_), std::move(peers_)};
  }

 private:
  int rank() const { return meeting_.rank(); }
  int size() const { return meeting_.size(); }
  std::string who() const { return meeting_.place() + ": "; }
  messages::PeerProcess& peer(int r) { return peers_[static_cast<std::size_t>(r)]; }
  int connections() const { return announced_[0].connections; }
  std::vector<Fd>& sockets(int r) { return sockets_[static_cast<std::size_t>(r)]; }
  Fd& socket(int r, int i) { return sockets(r)[static_cast<std::size_t>(i)]; }
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

  // The value of the last exchange: no text, or the number of a lower rank that had ended before this rank
  // connected to it.
  static constexpr const char* CONNECTED = "";
  // That rank may have ended because of another rank's end, which the meeting then reports.
  [[noreturn]] void throw_ended(int r) {
    check_told(meeting_.exchange(std::to_string(r), {}, Deadline::in(step_)));
    throw_lost(r);
  }
  // A rank that found a lower rank ended gave up its other connections. The ended rank is the cause, not the
  // reporting rank.
  void check_told(const std::vector<Message>& all) {
    for (const Message& message : all) {
      int ended = -1;
      std::from_chars(message.text.data(), message.text.data() + message.text.size(), ended);
      if (ended >= 0 && ended < size()) throw_lost(ended);
    }
  }
  [[noreturn]] void throw_lost(int r) {
    throw PeerLost(
        str(meeting_.caller(), ", group of ", size(), ": rank ", r, " ended before all ranks had met"), r);
  }

  // Rank r listens from before this rank knew its address until all are connected. A refused connection
  // therefore means that rank r has ended. A connection that is cut off may exceed the limit of connections
  // under way, so the next attempt decides.
  void connect_to(int r, int i, Deadline deadline) {
    for (auto pause = FIRST_PAUSE;; pause = std::min(2 * pause, LONGEST_PAUSE)) {
      try {
        socket(r, i) = introduce_to(r, i, deadline);
        return;
      } catch (const SystemError& error) {
        if (error.error_number() == ECONNREFUSED) throw_ended(r);
        throw;
      } catch (const HandshakeCutOff& error) {
        if (deadline.remaining() <= pause)
          throw StoreError(str(who(), "rank ", place_of(r), ": ", error.what()));
      } catch (const StoreError& error) {
        throw StoreError(str(who(), "rank ", place_of(r), ": ", error.what()));
      } catch (const Timeout& timeout) {
        if (deadline.remaining() <= pause)
          throw Timeout(str(who(), "no connection to rank ", place_of(r), ": ", timeout.what()));
      }
      nap(pause);
    }
  }

  Fd introduce_to(int r, int i, Deadline deadline) {
    const TcpAddress& address = announced_[static_cast<std::size_t>(r)].address;
    const auto attempt = Deadline::in(std::min<std::chrono::nanoseconds>(deadline.remaining(), ATTEMPT));
    Fd to_lower = tcp_connect(address.host, address.port, attempt, IfRefused::FAIL);
    authenticate_to_server(to_lower.get(), *secret_,
                           {HandshakePurpose::GROUP, 0, opaque_text(ends(rank(), r, i))}, deadline);
    std::array<std::byte, 1> welcome{};
    if (!tcp_read_all(to_lower.get(), welcome, deadline))
      throw HandshakeCutOff("it closed the connection before it had welcomed it");
    return to_lower;
  }

  // Runs on the door's thread. Only that thread touches the entries of higher ranks until it has ended.
  void welcome(Reception::Admitted one) {
    const std::string name = opaque_text(one.hello.opaque);
    for (int r = rank() + 1; r < size(); ++r) {
      for (int i = 0; i < connections(); ++i) {
        if (name != ends(r, rank(), i)) continue;
        if (tcp_write(one.socket.get(), std::as_bytes(std::span("w", 1))) == 1)
          socket(r, i) = std::move(one.socket);
        return;
      }
    }
  }

  void check_complete(const std::vector<Message>& all) {
    check_told(all);
    for (int r = 0; r < size(); ++r) {
      for (const Fd& one : sockets(r)) {
        if (!one.valid()) throw_lost(r);
      }
    }
  }

  Meeting& meeting_;
  const std::chrono::nanoseconds step_;  // the longest time for each step
  std::optional<Secret> secret_;
  std::vector<Announcement> announced_;
  std::vector<messages::PeerProcess> peers_;
  std::vector<std::vector<Fd>> sockets_;
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
