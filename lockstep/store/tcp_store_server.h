// Serves a store to the processes of a job (tcp_store.h), from one thread of the launcher or of rank 0.
//
//   TcpStoreServer server({.secret = secret, .port = 29500});
//   ... processes connect to text(server.address()) ...
//
// Connections  prove that they know the secret before more than 216 bytes of theirs are read. At most 64 that have not proved it
//              are kept, the oldest is dropped for a newer one, and each has 5 seconds. Each kind of refusal is reported once
//              (base/log.h, a warning). When the process may open no more files, connections wait until it may.
// Blocks       nothing. The thread has all signals blocked and ends, with all connections, in the destructor.
// Fails        the constructor with SystemError when the address cannot be had.
#pragma once

#include <memory>
#include <string>

#include "lockstep/os/secret.h"
#include "lockstep/os/tcp_socket.h"

namespace lockstep {

struct TcpStoreServerOptions {
  Secret secret;
  std::string address = {};  // empty: every address of this machine
  int port = 0;              // 0: any that is free
};

class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  ~TcpStoreServer();

  TcpAddress address() const;

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep
