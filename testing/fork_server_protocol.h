// What run_case asks of a fork server: one packet over a Unix socket, and two packets back.
//
//   request   "ARGUMENTS\0argument\0...variable=value\0...", ARGUMENTS being their number, with the
//             descriptors of standard input, output, error and of the current folder
//   answers   {STARTED, pid}, then {ENDED, status of waitpid()}. Without STARTED the case did not begin.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>

namespace lockstep::harness {

inline constexpr std::size_t LARGEST_CASE_REQUEST = 128 << 10;
inline constexpr int CASE_DESCRIPTORS = 4;

enum class CaseAnswerKind : std::uint32_t { STARTED, ENDED };

struct CaseAnswer {
  CaseAnswerKind kind;
  std::int32_t value;
};

// Whether the other side is of this user, which both sides ask.
inline bool is_mine(int connection) {
  ucred peer = {};
  socklen_t size = sizeof peer;
  return getsockopt(connection, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

}  // namespace lockstep::harness
