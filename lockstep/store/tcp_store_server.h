// TcpStoreServer: serves a store to the processes of a job (tcp_store.h), from one thread of the launcher or
// of rank 0.
//
//   TcpStoreServer server({.secret = secret, .port = 29500});
//   std::cout << text(server.address()) << "\n";              // the address that the processes connect to
//   const auto store = server.open();          // for this process: a local connection that
//                                              // strangers cannot crowd out
//
// Connections  a client proves that it knows the secret before the server reads more than 216 bytes from it.
//              store/reception.h limits the number and the time of connections that have not proved it. So
//              strangers, however many, take no place from a client that has.
// Blocks       never. The server's thread has all signals blocked. The destructor ends it and all
//              connections.
// Fails        the constructor throws SystemError if the address is not available.
#pragma once

#include <memory>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/secret.h"
#include "lockstep/os/tcp_socket.h"
#include "lockstep/store/tcp_store.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct TcpStoreServerOptions {
  Secret secret;
  std::string address = {};  // empty: every address of this machine
  int port = 0;              // 0: any free port
};

class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  ~TcpStoreServer();

  TcpAddress address() const;

  // A store for this process. `options.here` becomes the result of its local_address().
  std::unique_ptr<TcpStore> open(const LocalStoreOptions& options = {});
  // Serves the process at the other end of this stream socket, which is a parent or a child of this process,
  // without a proof.
  void adopt(Fd socket, const std::string& farewell = "");

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep
