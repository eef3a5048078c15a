// TCP connections between the machines of a job: listening, connecting to a server that may start later, and
// non-blocking reads and writes.
//
//   Fd listener = tcp_listen("", 0);                                  // every address, a free port
//   const TcpAddress here = tcp_local_address(listener.get());        // text(here): "[::]:41234"
//   Fd socket = tcp_connect("10.0.0.1", here.port, Deadline::in(30s));
//   if (auto accepted = tcp_accept(listener.get()); accepted.socket.valid()) ...
//
// Every socket is non-blocking, close-on-exec and sends at once (TCP_NODELAY), over IPv4 or IPv6. The kernel
// buffers little more than it can send now (TCP_NOTSENT_LOWAT). So a small message behind a large one need
// not wait for all of it. Nothing here authenticates the peer: store/handshake.h does so first on every
// connection.
#pragma once

#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

#include "lockstep/base/deadline.h"
#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct TcpAddress {
  // In digits: "127.0.0.1", "fe80::1%eth0". An IPv4 address of an IPv6 socket is written as IPv4.
  std::string host;
  int port = 0;
};

std::string text(const TcpAddress& address);            // "127.0.0.1:80", "[::1]:80"
std::string without_brackets(const std::string& host);  // "[::1]", the form before a port, becomes "::1"
bool is_loopback(const std::string& host);              // 127.x.x.x, ::1, localhost; never asks a name server

// Listens at `address` ("": every address of this machine, IPv6 and IPv4) and `port` (0: any). The port may
// have belonged to a process that ended just now. Throws SystemError that names both (EADDRINUSE,
// EADDRNOTAVAIL), and InvalidArgument for an invalid address.
Fd tcp_listen(const std::string& address, int port);

// The address to listen at so that others can reach this machine as `host`. An address in digits is returned
// unchanged. A name may mean another address on another machine, so the result is "" (every address).
std::string address_to_listen_at(const std::string& host);

// Throws like tcp_connect() for a bad name: InvalidArgument if `host` has no address, Timeout if no name
// server answered by the deadline.
void tcp_check_host(const std::string& host, Deadline deadline);

// Connects to the first address of `host` that answers. The server may start later, so a refused connection
// or an unreachable host is tried again until the deadline. Throws Timeout that names host, port and the last
// reason, or the name that no name server answered for. Throws SystemError for a lasting error (no
// permission), InvalidArgument for a name that does not exist. IfRefused::FAIL is for a server that is known
// to have listened: a refusal by all addresses is then a SystemError (ECONNREFUSED) at once.
enum class IfRefused { TRY_AGAIN, FAIL };
Fd tcp_connect(const std::string& host, int port, Deadline deadline,
               IfRefused refused = IfRefused::TRY_AGAIN);

struct TcpAccepted {
  Fd socket;                        // invalid if no connection waits
  bool out_of_descriptors = false;  // one waits, but this process may open no more files
};
TcpAccepted tcp_accept(int listener);

// Return the number of bytes, 0 if none can be moved now, -1 if the connection is over (closed, reset, or
// dead).
long tcp_read(int socket, std::span<std::byte> bytes);
long tcp_write(int socket, std::span<const std::byte> bytes);

// Move all bytes and wait as needed. Return false if the connection is over. Throw Timeout that says how many
// bytes are missing.
bool tcp_read_all(int socket, std::span<std::byte> bytes, Deadline deadline);
bool tcp_write_all(int socket, std::span<const std::byte> bytes, Deadline deadline);

// The kernel ends the connection (tcp_read and tcp_write return -1) if the other machine has not answered for
// `silence`, with data in flight (TCP_USER_TIMEOUT) or without (keep-alive probes). At least one second.
void tcp_set_liveness(int socket, std::chrono::milliseconds silence);
// The same, but only for a connection without data in flight. With data in flight, silence may mean that the
// process there is stopped and its buffers are full, and the kernel would end that connection too.
void tcp_set_probes(int socket, std::chrono::milliseconds silence);
// For how long the other machine has acknowledged nothing although data is in flight; 0 if none is. A machine
// acknowledges even for a stopped process.
std::chrono::milliseconds tcp_unanswered_for(int socket);

// Why the kernel ended the connection, "Connection reset by peer"; "" if it knows no reason. The call clears
// it.
std::string tcp_error(int socket);

TcpAddress tcp_local_address(int socket);
TcpAddress tcp_peer_address(int socket);  // host is "" if the connection is over

// The address of this machine from which the kernel would connect to `host`, in digits; "" if it has no
// route. Sends nothing to the host. May ask a name server, until the deadline (Timeout).
std::string address_towards(const std::string& host, Deadline deadline);

// The first address of network interface `name` ("eth0"), IPv4 before IPv6. Throws InvalidArgument that lists
// the existing interfaces.
std::string interface_address(const std::string& name);

}  // namespace lockstep
