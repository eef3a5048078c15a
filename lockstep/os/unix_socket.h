// Messages with file descriptors between processes of one machine (Unix sockets of type SEQPACKET: whole
// messages, and an end of stream when the other process is gone).
//
//   send_message(socket, "hello", {memory->fd()});
//   if (auto message = receive_message(socket, Deadline::in(5s))) use(message->text, message->fds);
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct Message {
  std::string text;
  std::vector<Fd> fds;
};

inline constexpr std::size_t MAX_MESSAGE_BYTES = 4096;
inline constexpr std::size_t MAX_MESSAGE_FDS = 8;

// False when the other side is gone. Throws SystemError for anything else that goes wrong.
bool send_message(int socket, const std::string& text, const std::vector<int>& fds = {});

// The same with an end, for a receiver that may be stopped and then takes nothing. TIMED_OUT: its socket is
// full. The kernel counts the descriptors that all processes of a user have sent and nobody has received yet:
// no more than this process may have files open (ulimit -n). It waits for room there, too, and throws
// SystemError (ETOOMANYREFS) when none came in time.
enum class Sent { SENT, CLOSED, TIMED_OUT };
Sent send_message(int socket, const std::string& text, const std::vector<int>& fds, Deadline deadline);

// Throws SystemError (EMFILE) when the message came with more descriptors than this process may open.
enum class Received { MESSAGE, CLOSED, TIMED_OUT };
Received receive_message(int socket, Deadline deadline, Message& message);

// Waits until one of `sockets` (negative entries are skipped) can be read or is closed; its index, or nullopt
// when the deadline has passed.
std::optional<std::size_t> wait_readable(const std::vector<int>& sockets, Deadline deadline);

// The process at the other end when the connection was made, as seen from this process's PID namespace; 0:
// not seen.
pid_t peer_pid(int socket);

// Descriptors inherited from a launcher: whether one is a socket for messages, and keeping it from further
// programs.
bool is_packet_socket(int fd);
void set_close_on_exec(int fd);
unsigned long socket_number(int fd);  // the same as long as the descriptor means the same socket; 0: none
Fd duplicate(int fd);

// A listening socket at `path`; replaces a socket there that nobody listens on any more.
Fd listen_at(const std::string& path);
void remove_socket(const std::string& path);
// Connects, or nullopt when nobody listens there (yet). Refuses (SystemError) a listener of another user.
std::optional<Fd> connect_to(const std::string& path);
// The next connection of a process of this user; others are dropped. Invalid Fd when the deadline has passed.
// Throws SystemError when this process may open no more files.
Fd accept_from_same_user(int listener, Deadline deadline);

}  // namespace lockstep
