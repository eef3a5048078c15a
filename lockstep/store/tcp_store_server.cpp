#include "lockstep/store/tcp_store_server.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/signal_mask.h"
#include "lockstep/store/handshake.h"
#include "lockstep/store/reception.h"
#include "lockstep/store/store_desk.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds CLIENT_SILENCE{60};

// A client that has proved itself.
struct Connection {
  StoreDesk::Client number = 0;
  Fd socket;
  std::string peer;
  std::string input;
  std::string output;
};

struct Adopted {
  Fd socket;
  std::string farewell;
};

}  // namespace

class TcpStoreServer::Loop {
 public:
  explicit Loop(const TcpStoreServerOptions& options)
      : Loop(options.secret, tcp_listen(options.address, options.port)) {}
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;
  ~Loop() {
    wake_.write.reset();
    thread_.join();
  }

  const TcpAddress& address() const { return address_; }

  void adopt(Fd socket, const std::string& farewell) {
    const std::lock_guard lock(mutex_);
    adopted_.push_back({std::move(socket), farewell});
    write_available(wake_.write.get(), "a");
  }

 private:
  using Connections = std::map<int, Connection>;  // by descriptor

  Loop(const Secret& secret, Fd listener)
      : address_(tcp_local_address(listener.get())),
        wake_(make_pipe()),
        reception_(std::move(listener), {secret, HandshakePurpose::STORE, "store at " + text(address_)}) {
    const AllSignalsBlocked quiet;
    thread_ = std::thread([this] { run(); });
  }

  // Clients that have proved themselves are served before new ones are admitted. While a client's reply is
  // unsent, its further requests are not read.
  void run() {
    for (;;) {
      PollSet wait;
      wait.want_read(wake_.read.get());
      for (const auto& [fd, connection] : connections_) {
        if (connection.output.empty()) {
          wait.want_read(fd);
        } else {
          wait.want_write(fd);
        }
      }
      reception_.add_to(wait);
      wait.run(next_deadline());
      if (wait.is_ready(wake_.read.get()) && !take_adopted()) return;
      for (const int fd : wait.ready()) {
        if (const auto at = connections_.find(fd); at != connections_.end()) serve(at->second);
      }
      for (auto& one : reception_.serve(wait)) welcome(std::move(one));
      for (auto& answer : desk_.expire()) reply(answer);
    }
  }

  Deadline next_deadline() const {
    const Deadline desk = desk_.next_deadline();
    const Deadline reception = reception_.next_deadline();
    return desk.remaining() < reception.remaining() ? desk : reception;
  }

  // Returns false if the server must end.
  bool take_adopted() {
    std::string bytes;
    if (read_available(wake_.read.get(), bytes) == ReadResult::END) return false;
    std::vector<Adopted> adopted;
    {
      const std::lock_guard lock(mutex_);
      adopted.swap(adopted_);
    }
    for (Adopted& one : adopted) {
      set_nonblocking(one.socket.get());
      enter(std::move(one.socket), "this process or its child", one.farewell);
    }
    return true;
  }

  void welcome(Reception::Admitted one) {
    try {
      tcp_set_liveness(one.socket.get(), CLIENT_SILENCE);
      enter(std::move(one.socket), one.peer, opaque_text(one.hello.opaque));
    } catch (const Error& error) {
      reception_.report(error.what(), one.peer);
    }
  }

  void enter(Fd socket, const std::string& peer, const std::string& farewell) {
    const int fd = socket.get();
    desk_.enter(++arrived_, farewell);
    connections_[fd] = {arrived_, std::move(socket), peer, "", ""};
  }

  void serve(Connection& connection) {
    try {
      connection.output.empty() ? read_requests(connection) : flush(connection);
    } catch (const Error& error) {
      reception_.report(error.what(), connection.peer);
      drop(connection);
    }
  }

  void read_requests(Connection& connection) {
    std::array<std::byte, 65536>
        bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init): written before it is read
    const long got = tcp_read(connection.socket.get(), bytes);
    // A client sends one request at a time. A second one before the answer comes from a faulty client.
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

  // With may_drop = false the connection stays in the map until poll() reports its end, because the caller
  // may be iterating over the connections.
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
    const StoreDesk::Client client = connection.number;
    connections_.erase(connection.socket.get());
    for (auto& answer : desk_.leave(client)) reply(answer);
  }

  const TcpAddress address_;
  Pipe wake_;  // a byte: adopt sockets; end of file: the thread must end
  std::mutex mutex_;
  std::vector<Adopted> adopted_;  // guarded by mutex_
  std::thread thread_;
  // Used by the thread only.
  Reception reception_;
  StoreDesk desk_;
  Connections connections_;
  StoreDesk::Client arrived_ = 0;
};

TcpStoreServer::TcpStoreServer(const TcpStoreServerOptions& options)
    : loop_(std::make_unique<Loop>(options)) {}
TcpStoreServer::~TcpStoreServer() = default;
TcpAddress TcpStoreServer::address() const { return loop_->address(); }

std::unique_ptr<TcpStore> TcpStoreServer::open(const LocalStoreOptions& options) {
  SocketPair pair = make_stream_socket_pair();
  loop_->adopt(std::move(pair.first), options.farewell);
  return std::make_unique<TcpStore>(std::move(pair.second), address(), options);
}

void TcpStoreServer::adopt(Fd socket, const std::string& farewell) {
  loop_->adopt(std::move(socket), farewell);
}

}  // namespace lockstep
