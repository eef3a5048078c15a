#include "lockstep/comm/meeting/greeting.h"

#include <algorithm>
#include <charconv>

#include "lockstep/base/str.h"

namespace lockstep {

std::string greeting(int rank, const JobFingerprint& job) { return str(rank, '\n', pack(job)); }

Guest read_greeting(const std::string& text, pid_t pid) {
  Guest guest;
  guest.pid = pid;
  const std::size_t end = std::min(text.find('\n'), text.size());
  std::from_chars(text.data(), text.data() + end, guest.rank);
  if (end < text.size()) guest.job = unpack_fingerprint(text.substr(end + 1));
  return guest;
}

std::string objection(const Guest& host, int size, const Guest& guest, pid_t taken_by) {
  const std::string place = str("group of ", size, ": ");
  const std::string came = str("process ", guest.pid, " came as rank ", guest.rank);
  if (!is_same_job(host.job, guest.job))
    return str(place, "ranks of two jobs have met: rank 0 (process ", host.pid, ") belongs to ",
               describe(host.job), ", and ", came, " of ", describe(guest.job), "; ", TELL_JOBS_APART);
  if (guest.rank < 0 || guest.rank >= size)
    return str(place, came, ", which is outside the job; ", TELL_JOBS_APART);
  if (taken_by != 0) return str(place, came, ", which process ", taken_by, " is already; ", TELL_JOBS_APART);
  return {};
}

}  // namespace lockstep
