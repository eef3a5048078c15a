// Pipes and socket pairs between a process and its children, and reads and writes on them that never block.
//
//   Pipe output = make_pipe();
//   set_nonblocking(output.read.get());
//   std::string text;
//   if (read_available(output.read.get(), text) == ReadResult::END) output.read.reset();
//
// Every descriptor is close-on-exec: a child gets only what SpawnRequest names.
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
SocketPair
make_packet_socket_pair();  // AF_UNIX, SOCK_SEQPACKET: keeps message boundaries, carries descriptors
SocketPair make_stream_socket_pair();  // AF_UNIX, SOCK_STREAM

void set_nonblocking(int fd);

enum class ReadResult {
  MORE,
  NOTHING_NOW,
  END
};  // END: end of file, or an error after which nothing can come

// Appends up to 64 KiB to `text`.
ReadResult read_available(int fd, std::string& text);

// Bytes written, 0 when `fd` takes none now, -1 with errno when it takes none any more: nobody reads (EPIPE),
// or it is a file and the disk is full.
long write_available(int fd, std::string_view text);

inline constexpr int STANDARD_INPUT = 0;
inline constexpr int STANDARD_OUTPUT = 1;
inline constexpr int STANDARD_ERROR = 2;

// Opens /dev/null on those of the descriptors 0, 1 and 2 that are closed, so that no other file ever gets
// these numbers.
void ensure_standard_descriptors();

}  // namespace lockstep
