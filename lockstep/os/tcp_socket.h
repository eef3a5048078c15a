// TCP connections between the machines of a job: listening, connecting before the other side listens, and
// reads and writes that never block.
//
//   Fd listener = tcp_listen("", 0);                                  // every address, a free port
//   const TcpAddress here = tcp_local_address(listener.get());        // text(here): "[::]:41234"
//   Fd socket = tcp_connect("10.0.0.1", here.port, Deadline::in(30s));
//   if (auto accepted = tcp_accept(listener.get()); accepted.socket.valid()) ...
//
// Every socket is non-blocking, close-on-exec and sends at once (TCP_NODELAY). IPv4 and IPv6. The kernel
// takes little more than it can send now (TCP_NOTSENT_LOWAT): what is written behind a large message need
// not wait for all of it. Nothing here knows who the other side is: store/handshake.h comes first on every
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
  std::string
      host;  // in digits: "127.0.0.1", "fe80::1%eth0"; an IPv4 address over an IPv6 socket reads as IPv4
  int port = 0;
};

std::string text(const TcpAddress& address);            // "127.0.0.1:80", "[::1]:80"
std::string without_brackets(const std::string& host);  // "[::1]", as it stands before a port: "::1"
bool is_loopback(const std::string& host);              // 127.x.x.x, ::1, localhost; asks no name server

// Listens at `address` ("" = every address of this machine, IPv6 and IPv4) and `port` (0 = any). A port that
// an ended process used a moment ago is taken. Throws SystemError naming both (EADDRINUSE, EADDRNOTAVAIL),
// InvalidArgument for a bad address.
Fd tcp_listen(const std::string& address, int port);

// Where to listen so that others reach this machine as `host`: an address in digits is taken as it is; for a
// name, which may mean something else here than elsewhere, "" (every address).
std::string address_to_listen_at(const std::string& host);

// Throws InvalidArgument when nobody knows an address of `host`, and Timeout when no name server has answered
// by the deadline, as tcp_connect() does.
void tcp_check_host(const std::string& host, Deadline deadline);

// Connects, trying all addresses of `host` in turn until one answers: the server may start later, so a
// refused connection or an unreachable host is tried again until the deadline. Throws Timeout naming host,
// port and the last reason, or the name that no name server answered for; SystemError for what does not pass
// (no permission), InvalidArgument for a name that does not exist. IfRefused::FAIL is for a server that is
// known to have listened: that nobody does is a SystemError (ECONNREFUSED) at once.
enum class IfRefused { TRY_AGAIN, FAIL };
Fd tcp_connect(const std::string& host, int port, Deadline deadline,
               IfRefused refused = IfRefused::TRY_AGAIN);

struct TcpAccepted {
  Fd socket;                        // invalid: nobody is waiting
  bool out_of_descriptors = false;  // somebody is, but this process may open no more files
};
TcpAccepted tcp_accept(int listener);

// Bytes read or written, 0 when nothing can be now, -1 when the connection is over (closed, reset, or dead).
long tcp_read(int socket, std::span<std::byte> bytes);
long tcp_write(int socket, std::span<const std::byte> bytes);

// All of it, waiting: false when the connection is over. Throws Timeout saying how many bytes are missing.
bool tcp_read_all(int socket, std::span<std::byte> bytes, Deadline deadline);
bool tcp_write_all(int socket, std::span<const std::byte> bytes, Deadline deadline);

// Has the kernel end the connection (tcp_read and tcp_write give -1) when the other machine has not answered
// for `silence`, with data under way (TCP_USER_TIMEOUT) or without (keep-alive probes). At least one second.
void tcp_set_liveness(int socket, std::chrono::milliseconds silence);
// The same for a connection without data under way alone. One that has some may be silent because the process
// there is stopped and its memory full: the kernel would end that, too.
void tcp_set_probes(int socket, std::chrono::milliseconds silence);
// How long the other machine has acknowledged nothing, while data is under way to it; 0 if there is none. It
// answers for a process that is stopped.
std::chrono::milliseconds tcp_unanswered_for(int socket);

// The reason for which the kernel ended the connection, "Connection reset by peer"; "" if it knows of none.
// Asking clears it.
std::string tcp_error(int socket);

TcpAddress tcp_local_address(int socket);
TcpAddress tcp_peer_address(int socket);  // host is "" when the connection is gone

// The address of this machine from which the kernel would connect to `host`, in digits; "" if it knows of no
// way. Sends nothing to it; a name server may be asked, until the deadline (Timeout).
std::string address_towards(const std::string& host, Deadline deadline);

// The first address of network interface `name` ("eth0"), IPv4 before IPv6. Throws InvalidArgument listing
// those there are.
std::string interface_address(const std::string& name);

}  // namespace lockstep
