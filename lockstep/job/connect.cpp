#include "lockstep/job/connect.h"

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/job/meet_over_store.h"
#include "lockstep/job/only_copy.h"

namespace lockstep {
namespace {

[[noreturn]] void refuse(const ConnectOptions& options, const std::string& what) {
  throw InvalidArgument(str("connect, group \"", printable(options.name), "\": ", what));
}

BackendChoice choose(const ConnectOptions& options, int size) {
  BackendChoice wanted = choose_backends(options.backend, "connect");
  const BackendInfo& row = find_backend(wanted.cpu, size, "connect");
  if (!row.serves_many && size != 1)
    refuse(options, str("backend \"", row.name, "\" serves one rank, the group has ", size));
  if (size == 1 && wanted.cpu == "auto") wanted.cpu = row.name;
  return wanted;
}

GroupOptions group_options(const ConnectOptions& options) {
  GroupOptions group;
  if (options.timeout) group.timeout = bounded_timeout(*options.timeout);
  if (options.warn_after) group.warn_after = bounded_timeout(*options.warn_after);
  return group;
}

}  // namespace

ProcessGroup connect(std::shared_ptr<Store> store, int rank, int size, const ConnectOptions& options) {
  if (store == nullptr) refuse(options, "it needs a store that all its processes see");
  if (size < 1 || rank < 0 || rank >= size) refuse(options, str("rank ", rank, " does not fit size ", size));
  refuse_second_copy("connect");
  const BackendChoice wanted = choose(options, size);
  const GroupOptions group = group_options(options);
  const Deadline deadline = Deadline::in(group.timeout);
  const WaitReminder reminder(
      group.warn_after, str("connect, group \"", printable(options.name), "\", rank ", rank, " of ", size),
      "");
  StoreMeetingOptions meeting;
  meeting.store = std::move(store);
  meeting.rank = rank;
  meeting.size = size;
  meeting.name = "connect/" + options.name;
  meeting.local_address = options.local_address;
  meeting.secret = options.secret;
  meeting.job.size = size;
  meeting.job.source = "connect";
  meeting.is_of_one_job = true;
  meeting.caller = str("connect, group \"", printable(options.name), "\"");
  const MetOverStore met = meet_over_store({.meeting = std::move(meeting)}, wanted, deadline);
  return make_group(met.meeting(), met.backend, wanted, met.place.local_rank, options.name, group, deadline);
}

}  // namespace lockstep
