// A store that one process serves (tcp_store_server.h) and others use over TCP; store.h has the functions.
//
//   TcpStore store({.host = "10.0.0.1", .port = 29500, .secret = Secret::from_file(path)});
//   const std::string address = store.get("address", 30s);       // the server waits, nobody polls
//
// Blocks      the constructor blocks until the server is there, both sides have proved that they know the
//             secret, and the server has answered a first call. A server that is being flooded may drop a
//             connection before that: the constructor connects again until the deadline.
// Fails       StoreError, naming the server: the two have different secrets. StoreLost: the connection is
//             over, or a call that does not wait is not answered within `timeout`. Timeout: the server did
//             not come.
// End         nothing is left behind: the connection ends with the object. A process may be known by its
//             connection alone. It gives a farewell key: the server removes the key when the client comes,
//             and sets it when the connection ends for any reason.
#pragma once

#include <atomic>
#include <chrono>
#include <mutex>
#include <string>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/secret.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/store.h"
#include "lockstep/store/tcp_store_protocol.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct TcpStoreOptions {
  std::string host;
  int port = 0;
  Secret secret;
  Deadline deadline = Deadline::in(STORE_TIMEOUT);    // for connecting, the first answer included
  std::chrono::milliseconds timeout = STORE_TIMEOUT;  // for every call that does not wait
  std::string farewell = {};                          // at most 63 bytes; empty: none
};

// For a process that has the server, or is its parent or child, and so a connection to it that needs no
// network and no proof.
struct LocalStoreOptions {
  std::string here = {};  // what local_address() says
  std::chrono::milliseconds timeout = STORE_TIMEOUT;
  std::string farewell = {};
};

// The connection is over. The process that serves the store has ended, cannot be reached, or does not answer
// in time.
class StoreLost : public StoreError {
 public:
  using StoreError::StoreError;
};

class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options);
  // Over a stream socket whose other end the server at that address has adopted (tcp_store_server.h), or will
  // adopt.
  TcpStore(Fd connected, const TcpAddress& server, const LocalStoreOptions& options);

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> find(const std::string& key) override;
  long add(const std::string& key, long amount) override;
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  std::size_t num_keys() override;
  std::optional<StoreEntry> first_of(const std::vector<std::string>& keys, Deadline deadline) override;

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }  // as the option, from now on
  TcpAddress local_address() const { return local_; }  // of this process, on the way to the server
  TcpAddress server_address() const { return server_; }

 private:
  void connect(const TcpStoreOptions& options, Deadline deadline);
  StoreReply call(const StoreRequest& request, Deadline deadline);
  StoreReply call(const StoreRequest& request) { return call(request, Deadline::in(timeout_.load())); }
  [[noreturn]] void lost(const std::string& why);

  std::atomic<std::chrono::milliseconds> timeout_;
  TcpAddress local_;
  TcpAddress server_;
  std::mutex mutex_;
  // guarded by mutex_
  Fd socket_;
  std::string why_lost_;
};

}  // namespace lockstep
