// Serves a store to the processes of a job (tcp_store.h), from one thread of the launcher or of rank 0.
//
//   TcpStoreServer server({.secret = secret, .port = 29500});
//   std::cout << text(server.address()) << "\n";              // where the processes connect
//   const auto store = server.open();          // and this process uses it without a connection that
//                                              // strangers could crowd out
//
// Connections  a client proves that it knows the secret before the server reads more than 216 bytes of it.
//              store/reception.h bounds the connections that have not proved it, in number and time.
//              Strangers, however many, take no place of a client that has.
// Blocks       nothing. The thread has all signals blocked. The destructor ends it, with all connections.
// Fails        the constructor throws SystemError when the address cannot be had.
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
  int port = 0;              // 0: any that is free
};

class TcpStoreServer {
 public:
  explicit TcpStoreServer(const TcpStoreServerOptions& options);
  TcpStoreServer(const TcpStoreServer&) = delete;
  TcpStoreServer& operator=(const TcpStoreServer&) = delete;
  ~TcpStoreServer();

  TcpAddress address() const;

  // A store for this process; `options` as tcp_store.h has them: `here` is what its local_address() says.
  std::unique_ptr<TcpStore> open(const LocalStoreOptions& options = {});
  // Serves whoever holds the other end of this stream socket, a process that this one has forked or been
  // forked by, as a client that has proved itself.
  void adopt(Fd socket, const std::string& farewell = "");

 private:
  class Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace lockstep
