// TcpStore: a store that one process serves (tcp_store_server.h) and others use over TCP. store.h has the
// functions.
//
//   TcpStore store({.host = "10.0.0.1", .port = 29500, .secret = Secret::from_file(path)});
//   const std::string address = store.get("address", 30s);       // waits without polling
//
// Blocks      the constructor blocks until the server runs, both sides have proved that they know the secret,
//             and the server has answered a first call. A flooded server may drop a connection before that.
//             The constructor then connects again, until the deadline.
// Fails       StoreError that names the server: the two have different secrets. StoreLost: the connection is
//             over, or a call that does not wait was not answered within `timeout`. Timeout: the server did
//             not come.
// End         the connection ends with the object. A process may use this to report its death: it gives a
//             farewell key. The server removes the key when the client comes, and sets it when the connection
//             ends for any reason.
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
  Deadline deadline = Deadline::in(STORE_TIMEOUT);    // for connecting and the first answer
  std::chrono::milliseconds timeout = STORE_TIMEOUT;  // for each call that does not wait
  std::string farewell = {};                          // at most 63 bytes; empty for none
};

// For the process that has the server, its parent or its child. Their connection needs no network and no
// proof.
struct LocalStoreOptions {
  std::string here = {};  // the result of local_address()
  std::chrono::milliseconds timeout = STORE_TIMEOUT;
  std::string farewell = {};
};

// The connection is over: the process that serves the store has ended, cannot be reached, or does not answer
// in time.
class StoreLost : public StoreError {
 public:
  using StoreError::StoreError;
};

class TcpStore : public Store {
 public:
  explicit TcpStore(const TcpStoreOptions& options);
  // Uses a stream socket whose other end the server at that address adopts (tcp_store_server.h), before or
  // after this call.
  TcpStore(Fd connected, TcpAddress server, const LocalStoreOptions& options);

  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> find(const std::string& key) override;
  long add(const std::string& key, long amount) override;
  std::string compare_set(const std::string& key, const std::string& expected,
                          const std::string& desired) override;
  bool delete_key(const std::string& key) override;
  std::size_t num_keys() override;
  std::optional<StoreEntry> first_of(const std::vector<std::string>& keys, Deadline deadline) override;

  void set_timeout(std::chrono::milliseconds timeout) { timeout_ = timeout; }  // like the option, from now on
  TcpAddress local_address() const { return local_; }  // the local end of the connection
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
