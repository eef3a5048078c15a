// Messages with file descriptors between processes of one machine. They use Unix sockets of type SEQPACKET:
// whole messages, and an end of stream if the other process is gone.
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

// Returns false if the peer is gone. Throws SystemError for any other failure.
bool send_message(int socket, const std::string& text, const std::vector<int>& fds = {});

// The same with a deadline, for a receiver that may be stopped. TIMED_OUT: its socket stayed full. The kernel
// also limits the descriptors that all processes of a user have sent and not yet received, to the limit of
// open files of this process (ulimit -n). The call waits for room there too, and throws SystemError
// (ETOOMANYREFS) if none came in time.
enum class Sent { SENT, CLOSED, TIMED_OUT };
Sent send_message(int socket, const std::string& text, const std::vector<int>& fds, Deadline deadline);

// Throws SystemError (EMFILE) if the message had more descriptors than this process may open.
enum class Received { MESSAGE, CLOSED, TIMED_OUT };
Received receive_message(int socket, Deadline deadline, Message& message);

// Waits until one of `sockets` can be read or is closed, and returns its index; nullopt if the deadline
// passed. Negative entries are skipped.
std::optional<std::size_t> wait_readable(const std::vector<int>& sockets, Deadline deadline);

// The process at the other end when the connection was made, in this process's PID namespace; 0 if it is not
// visible.
pid_t peer_pid(int socket);

// Functions for descriptors that a launcher passed on: whether one is a packet socket, and how to keep it
// from further programs.
bool is_packet_socket(int fd);
void set_close_on_exec(int fd);
// Equal as long as the descriptor is the same socket; 0 if it is not open.
unsigned long socket_number(int fd);
Fd duplicate(int fd);

// A listening socket at `path`. Replaces a socket there that no process listens on any more.
Fd listen_at(const std::string& path);
void remove_socket(const std::string& path);
// Connects. Returns nullopt if no process listens there (yet). Throws SystemError for a listener of another
// user.
std::optional<Fd> connect_to(const std::string& path);
// The next connection of a process of this user; connections of other users are dropped. Invalid if the
// deadline passed. Throws SystemError if this process may open no more files.
Fd accept_from_same_user(int listener, Deadline deadline);

}  // namespace lockstep
