// Pipes and socket pairs between a process and its children, with reads and writes that never block.
//
//   Pipe output = make_pipe();
//   set_nonblocking(output.read.get());
//   std::string text;
//   if (read_available(output.read.get(), text) == ReadResult::END) output.read.reset();
//
// Every descriptor is close-on-exec. A child gets only those that SpawnRequest names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

struct Pipe {
  Fd read;
  Fd write;
};

struct SocketPair {
  Fd first;
  Fd second;
};

Pipe make_pipe();
// AF_UNIX, SOCK_SEQPACKET: keeps message boundaries and passes descriptors.
SocketPair make_packet_socket_pair();
SocketPair make_stream_socket_pair();  // AF_UNIX, SOCK_STREAM

void set_nonblocking(int fd);

enum class ReadResult {
  MORE,
  NOTHING_NOW,
  END
};  // END: end of file, or an error after which no data can come

// Appends up to 64 KiB to `text`.
ReadResult read_available(int fd, std::string& text);

// Returns the number of bytes written, or 0 if `fd` accepts none now. Returns -1 with errno if it never will:
// the reader is gone (EPIPE), or the disk is full.
long write_available(int fd, std::string_view text);

inline constexpr int STANDARD_INPUT = 0;
inline constexpr int STANDARD_OUTPUT = 1;
inline constexpr int STANDARD_ERROR = 2;

// Opens /dev/null for each of the descriptors 0, 1 and 2 that is closed, so that no other file ever gets
// these numbers.
void ensure_standard_descriptors();

}  // namespace lockstep
