#include "lockstep/job/introduction.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/meeting/job_identity.h"

namespace lockstep {
namespace {

// Whether all of the text is a number.
bool read_number(const std::string& text, int& number) {
  const char* const last = text.data() + text.size();
  const auto read = std::from_chars(text.data(), last, number);
  return read.ec == std::errc() && read.ptr == last;
}

}  // namespace

std::string pack(const Introduction& mine) {
  return str(mine.layout, '\n', mine.backend, '\n', mine.virtual_ranks, '\n', mine.local_rank, '\n', mine.job,
             '\n', mine.boot_id, '\n', mine.address, '\n', mine.offer);
}

Introduction unpack_introduction(const std::string& text, std::string_view caller) {
  const auto refuse = [&] {
    throw StoreError(str(
        caller, ": a rank sent a malformed introduction; do all ranks run the same version of Lockstep?"));
  };
  Introduction result;
  std::string virtual_ranks;
  std::string local_rank;
  std::size_t at = 0;
  for (std::string* part : {&result.layout, &result.backend, &virtual_ranks, &local_rank, &result.job,
                            &result.boot_id, &result.address}) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) refuse();
    *part = text.substr(at, end - at);
    at = end + 1;
  }
  if (!read_number(virtual_ranks, result.virtual_ranks) || !read_number(local_rank, result.local_rank))
    refuse();
  result.offer = text.substr(at);
  return result;
}

void check_introductions(const std::vector<Introduction>& all, std::string_view caller) {
  const JobFingerprint first = unpack_fingerprint(all[0].job);
  for (std::size_t r = 1; r < all.size(); ++r) {
    if (all[r].layout != all[0].layout) {
      throw Mismatch(str(
          caller, ": rank 0 runs another build of Lockstep than rank ", r, " (layout ",
          printable(all[0].layout), " and ", printable(all[r].layout),
          "), and they would misread each other's memory and messages; build all programs of the job with "
          "one version"));
    }
    if (const JobFingerprint other = unpack_fingerprint(all[r].job); !is_same_job(first, other)) {
      throw Mismatch(str(caller, ": ranks of two jobs have met: rank 0 belongs to ", describe(first),
                         ", rank ", r, " to ", describe(other), "; ", TELL_JOBS_APART));
    }
    if (all[r].backend != all[0].backend) {
      throw Mismatch(
          str(caller, ": rank 0 asks for backend \"", printable(all[0].backend), "\", rank ", r, " for \"",
              printable(all[r].backend),
              "\"; all ranks must ask for the same (LOCKSTEP_BACKEND, where the program asks for auto)"));
    }
    if (all[r].virtual_ranks != all[0].virtual_ranks) {
      throw Mismatch(str(caller, ": rank 0 asks for ", all[0].virtual_ranks, " virtual ranks, rank ", r,
                         " for ", all[r].virtual_ranks,
                         " (0: none); all ranks must ask for the same (InitOptions::virtual_ranks, or "
                         "LOCKSTEP_VIRTUAL_RANKS)"));
    }
  }
}

std::vector<Introduction> introduce(Meeting& meeting, const Introduction& mine, Deadline deadline,
                                    std::string_view caller) {
  std::vector<Introduction> all;
  for (const Message& message : meeting.exchange(pack(mine), {}, deadline))
    all.push_back(unpack_introduction(message.text, caller));
  check_introductions(all, caller);
  return all;
}

}  // namespace lockstep
