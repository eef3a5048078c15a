#include "lockstep/os/open_files.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/fd.h"

namespace lockstep {
namespace {

// Reserved for files that the program opens meanwhile.
constexpr std::size_t MARGIN = 32;

rlimit original{};  // the limits before they were raised; all zero if they never were

std::size_t count_open() {
  if (DIR* folder = opendir("/proc/self/fd")) {
    std::size_t entries = 0;
    while (readdir(folder) != nullptr) ++entries;  // NOLINT(concurrency-mt-unsafe): a stream of our own
    closedir(folder);
    constexpr std::size_t NOT_COUNTED = 3;  // ".", ".." and the folder itself
    return entries > NOT_COUNTED ? entries - NOT_COUNTED : 0;
  }
  const Fd lowest(fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 0));  // all smaller ones are open
  return lowest.valid() ? static_cast<std::size_t>(lowest.get()) : 0;
}

std::size_t as_number(rlim_t limit) {
  constexpr std::size_t MOST = 1U << 30U;  // larger than any kernel's limit, and sums do not overflow
  return limit == RLIM_INFINITY ? MOST : std::min<std::size_t>(limit, MOST);
}

void set_soft(std::size_t soft) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  if (original.rlim_max == 0) original = limit;
  limit.rlim_cur = std::min<rlim_t>(soft, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

[[noreturn]] void throw_too_few(const OpenFiles& now, std::size_t needed, const std::string& who) {
  throw SystemError(
      str(who, " needs ", needed, " more open files; ", now.open, " are open, and the hard limit is ",
          now.hard, ". Raise it to ", now.open + needed + MARGIN,
          " or more (ulimit -Hn; nofile in /etc/security/limits.conf, LimitNOFILE= of a "
          "service, --ulimit nofile= of a container) or start fewer ranks"),
      EMFILE);
}

}  // namespace

OpenFiles open_files() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return {count_open(), as_number(limit.rlim_cur), as_number(limit.rlim_max)};
}

std::size_t soft_limit_for(const OpenFiles& now, std::size_t needed) {
  if (now.open + needed > now.hard) return 0;
  if (now.open + needed + MARGIN <= now.soft) return now.soft;
  return std::min(now.soft + needed, now.hard);
}

void require_room_for_files(std::size_t needed, const std::string& who) {
  const OpenFiles now = open_files();
  if (soft_limit_for(now, needed) == 0) throw_too_few(now, needed, who);
}

void make_room_for_files(std::size_t needed, const std::string& who) {
  const OpenFiles now = open_files();
  const std::size_t soft = soft_limit_for(now, needed);
  if (soft == 0) throw_too_few(now, needed, who);
  if (soft != now.soft) set_soft(soft);
}

void raise_open_files() { set_soft(open_files().hard); }

void restore_open_files() {
  if (original.rlim_max != 0) setrlimit(RLIMIT_NOFILE, &original);
}

}  // namespace lockstep
