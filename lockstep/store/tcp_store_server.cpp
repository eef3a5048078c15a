#include "lockstep/store/tcp_store_server.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/signal_mask.h"
#include "lockstep/store/handshake.h"
#include "lockstep/store/store_desk.h"

namespace lockstep {
namespace {

constexpr std::size_t MOST_UNKNOWN = 64;  // connections that have not authenticated
constexpr std::chrono::seconds HANDSHAKE_TIME{5};
constexpr std::chrono::seconds CLIENT_SILENCE{60};
constexpr std::chrono::milliseconds UNTIL_DESCRIPTORS{100};
constexpr std::size_t MOST_REPORTS = 16;
constexpr int ACCEPTS_AT_ONCE = 64;

struct Connection {
  StoreDesk::Client number = 0;  // in order of arrival
  Fd socket;
  std::string peer;
  std::optional<ServerHandshake> handshake;  // until it has authenticated
  Deadline handshake_deadline = Deadline::never();
  std::string input;
  std::string output;
};

}  // namespace

class TcpStoreServer::Loop {
 public:
  explicit Loop(const TcpStoreServerOptions& options)
      : secret_(options.secret), listener_(tcp_listen(options.address, options.port)), stop_(make_pipe()) {
    address_ = tcp_local_address(listener_.get());
    const AllSignalsBlocked quiet;
    thread_ = std::thread([this] { run(); });
  }
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    stop_.write.reset();
    thread_.join();
  }

  const TcpAddress& address() const { return address_; }

 private:
  using Connections = std::map<int, Connection>;  // by descriptor

  void run() {
    for (;;) {
      PollSet wait;
      wait.want_read(stop_.read.get());
      if (pause_.expired()) wait.want_read(listener_.get());
      for (const auto& [fd, connection] : connections_) {
        if (connection.output.empty()) {
          wait.want_read(fd);
        } else {
          wait.want_write(fd);
        }
      }
      wait.run(next_deadline());
      if (wait.is_ready(stop_.read.get())) return;
      for (const int fd : wait.ready()) {
        if (fd == listener_.get()) {
          accept_waiting();
        } else if (const auto at = connections_.find(fd); at != connections_.end()) {
          serve(at->second);
        }
      }
      for (auto& answer : desk_.expire()) reply(answer);
      drop_silent();
    }
  }

  Deadline next_deadline() const {
    Deadline next = desk_.next_deadline();
    const auto earlier = [&next](Deadline other) {
      if (other.remaining() < next.remaining()) next = other;
    };
    if (!pause_.expired()) earlier(pause_);
    for (const auto& [fd, connection] : connections_) earlier(connection.handshake_deadline);
    return next;
  }

  void accept_waiting() {
    for (int i = 0; i < ACCEPTS_AT_ONCE; ++i) {
      TcpAccepted accepted = tcp_accept(listener_.get());
      if (accepted.out_of_descriptors && !drop_oldest_unknown()) {
        report("this process may open no more files; connections wait", "");
        pause_ = Deadline::in(UNTIL_DESCRIPTORS);
        return;
      }
      if (accepted.out_of_descriptors) continue;
      if (!accepted.socket.valid()) return;
      if (unknown_ >= MOST_UNKNOWN) {
        report("too many connections that do not authenticate; the oldest are dropped", "");
        drop_oldest_unknown();
      }
      const int fd = accepted.socket.get();
      Connection& connection = connections_[fd];
      connection.number = ++arrived_;
      connection.peer = tcp_peer_address(fd).host;
      connection.socket = std::move(accepted.socket);
      connection.handshake.emplace(secret_, HandshakePurpose::STORE);
      connection.handshake_deadline = Deadline::in(HANDSHAKE_TIME);
      ++unknown_;
    }
  }

  bool drop_oldest_unknown() {
    auto oldest = connections_.end();
    for (auto at = connections_.begin(); at != connections_.end(); ++at) {
      if (at->second.handshake && (oldest == connections_.end() || at->second.number < oldest->second.number))
        oldest = at;
    }
    if (oldest == connections_.end()) return false;
    drop(oldest->second);
    return true;
  }

  void drop_silent() {
    std::vector<Connection*> silent;
    for (auto& [fd, connection] : connections_) {
      if (connection.handshake_deadline.expired()) silent.push_back(&connection);
    }
    for (Connection* connection : silent) {
      report(str("it did not authenticate within ", HANDSHAKE_TIME.count(), " s"), connection->peer);
      drop(*connection);
    }
  }

  void serve(Connection& connection) {
    try {
      serve_now(connection);
    } catch (const Error& error) {
      report(error.what(), connection.peer);
      drop(connection);
    }
  }

  void serve_now(Connection& connection) {
    if (!connection.output.empty()) {
      flush(connection);
    } else if (connection.handshake) {
      authenticate(connection);
    } else {
      read_requests(connection);
    }
  }

  void authenticate(Connection& connection) {
    std::array<std::byte, HANDSHAKE_HELLO_BYTES> bytes{};
    ServerHandshake& handshake = *connection.handshake;
    const long got = tcp_read(connection.socket.get(), std::span(bytes).first(handshake.needed()));
    if (got < 0) {
      report("it closed the connection while authenticating; has it the secret of this job?",
             connection.peer);
      return drop(connection);
    }
    handshake.feed(std::span(bytes).first(static_cast<std::size_t>(got)));
    connection.output += handshake.take_output();
    if (handshake.state() == HandshakeState::REFUSED) {
      report(handshake.reason(), connection.peer);
      tcp_write(connection.socket.get(), std::as_bytes(std::span(connection.output)));
      return drop(connection);
    }
    if (handshake.state() == HandshakeState::ACCEPTED) {
      desk_.enter(connection.number, opaque_text(handshake.hello().opaque));
      connection.handshake.reset();
      connection.handshake_deadline = Deadline::never();
      tcp_set_liveness(connection.socket.get(), CLIENT_SILENCE);
      --unknown_;
    }
    flush(connection);
  }

  void read_requests(Connection& connection) {
    std::array<std::byte, 65536>
        bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    const long got = tcp_read(connection.socket.get(), bytes);
    // One request at a time: who sends another before the answer is none of ours.
    if (got < 0 || (got > 0 && desk_.is_waiting(connection.number))) return drop(connection);
    connection.input.append(reinterpret_cast<const char*>(bytes.data()), static_cast<std::size_t>(got));
    const auto request = take_request(connection.input);
    if (!request) return;
    if (!connection.input.empty()) return drop(connection);
    for (auto& answer : desk_.handle(connection.number, *request)) reply(answer);
  }

  void reply(const StoreDesk::Answer& answer) {
    const auto at = std::find_if(connections_.begin(), connections_.end(),
                                 [&](const auto& entry) { return entry.second.number == answer.client; });
    if (at == connections_.end()) return;
    at->second.output += encode(answer.reply);
    flush(at->second, /*may_drop=*/false);
  }

  // A connection that is over is dropped, here or when poll() says so: reply() walks over others.
  void flush(Connection& connection, bool may_drop = true) {
    const long put = tcp_write(connection.socket.get(), std::as_bytes(std::span(connection.output)));
    if (put >= 0) {
      connection.output.erase(0, static_cast<std::size_t>(put));
    } else if (may_drop) {
      drop(connection);
    } else {
      connection.output.clear();
    }
  }

  void drop(Connection& connection) {
    if (connection.handshake) --unknown_;
    const StoreDesk::Client client = connection.number;
    connections_.erase(connection.socket.get());
    for (auto& answer : desk_.leave(client)) reply(answer);
  }

  void report(const std::string& kind, const std::string& peer) {
    if (reported_.size() >= MOST_REPORTS || !reported_.insert(kind).second) return;
    log(LogLevel::WARNING,
        str("store at ", text(address_), ": ", peer.empty() ? "" : "refused a connection from " + peer + ": ",
            kind, " (more of this kind are not reported)"));
  }

  const Secret secret_;
  Fd listener_;
  Pipe stop_;
  TcpAddress address_;
  std::thread thread_;
  // Used by the thread only.
  StoreDesk desk_;
  Connections connections_;
  std::size_t unknown_ = 0;
  StoreDesk::Client arrived_ = 0;
  Deadline pause_ = Deadline::in({});  // no connections are accepted until then
  std::set<std::string> reported_;
};

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options)
    : loop_(std::make_unique<Loop>(options)) {}
TcpStoreServer::~TcpStoreServer() = default;
TcpAddress TcpStoreServer::address() const { return loop_->address(); }

}  // namespace lockstep
