#include "lockstep/os/failure_note.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <cerrno>
#include <charconv>
#include <type_traits>

#include "lockstep/base/environment.h"
#include "lockstep/base/str.h"
#include "lockstep/os/fork_generation.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {
namespace {

constexpr std::uint32_t NOTE_MAGIC = 0x4c46'4e31;  // "LFN1"
constexpr auto LAST_NOTE_CODE = static_cast<std::uint32_t>(ErrorCode::BACKEND);
constexpr int MOST_WAIT_MS = 1000;  // of a rank, if the launcher does not read

struct NotePacket {
  std::uint32_t magic = NOTE_MAGIC;
  std::int32_t rank = 0;
  std::uint32_t code = 0;
  std::int32_t culprit = 0;
  std::int64_t at_ns = 0;
};
static_assert(std::is_trivially_copyable_v<NotePacket>);

// The state of this process.
struct Teller {
  std::atomic<int> descriptor = -1;
  std::atomic<int> rank = 0;
  std::atomic<unsigned> generation = 0;  // the fork generation in which `descriptor` was opened
  std::atomic<bool> has_told = false;
};
Teller teller;  // NOLINT(cppcoreguidelines-avoid-non-const-global-variables): belongs to the process

ino_t inode_of(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 ? status.st_ino : 0;
}

// Returns -1 if there is no descriptor, or if its number means another file now.
int inherited_descriptor() {
  const std::string text = env("LOCKSTEP_FAILURE_FD").value_or("");
  const char* const end = text.data() + text.size();
  int fd = -1;
  ino_t inode = 0;
  const auto first = std::from_chars(text.data(), end, fd);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != ':') return -1;
  const auto second = std::from_chars(first.ptr + 1, end, inode);
  const bool fits = second.ec == std::errc() && second.ptr == end && fd >= 0 && inode_of(fd) == inode;
  return fits && is_packet_socket(fd) ? fd : -1;
}

void tell_launcher(ErrorCode code, int culprit) noexcept {
  const int fd = teller.descriptor.load();
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  const NotePacket packet = {NOTE_MAGIC, teller.rank.load(), static_cast<std::uint32_t>(code), culprit,
                             std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()};
  for (int attempt = 0; attempt < 2; ++attempt) {
    if (send(fd, &packet, sizeof packet, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) return;
    if (errno != EAGAIN) return;
    pollfd entry = {fd, POLLOUT, 0};
    poll(&entry, 1, MOST_WAIT_MS);
  }
}

bool may_tell() { return teller.descriptor.load() >= 0 && teller.generation.load() == fork_generation(); }

}  // namespace

void begin_failure_notes(int rank) {
  if (teller.descriptor.load() < 0 || teller.generation.load() != fork_generation()) {
    const int fd = inherited_descriptor();
    if (fd < 0) return;
    set_close_on_exec(fd);
    teller.generation = fork_generation();
    teller.descriptor = fd;
  }
  teller.rank = rank;
}

void note_failure(ErrorCode code, int culprit) noexcept {
  if (may_tell() && !teller.has_told.exchange(true)) tell_launcher(code, culprit);
}

void clear_failure() noexcept {
  if (may_tell() && teller.has_told.exchange(false)) tell_launcher(ErrorCode::NONE, FailureNote::SOMEBODY);
}

FailureNotes::FailureNotes() {
  SocketPair pair = make_packet_socket_pair();
  ours_ = std::move(pair.first);
  theirs_ = std::move(pair.second);
}

std::string FailureNotes::variable() const {
  return str("LOCKSTEP_FAILURE_FD=", theirs_.get(), ':', inode_of(theirs_.get()));
}

std::vector<FailureNote> FailureNotes::read() {
  std::vector<FailureNote> notes;
  while (true) {
    NotePacket packet;
    const ssize_t got = recv(ours_.get(), &packet, sizeof packet, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return notes;
    if (got != sizeof packet || packet.magic != NOTE_MAGIC || packet.code > LAST_NOTE_CODE) continue;
    notes.push_back({packet.rank, static_cast<ErrorCode>(packet.code), packet.culprit,
                     std::chrono::steady_clock::time_point(std::chrono::nanoseconds(packet.at_ns))});
  }
}

}  // namespace lockstep
