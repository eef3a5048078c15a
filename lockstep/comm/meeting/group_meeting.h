// GroupMeeting: the ranks of an existing group meet again, to make a group over another backend.
//
//   GroupMeeting meeting(group);
//   ProcessGroup fast = find_backend("shm", group.size()).make(meeting, "fast", options, deadline);
//
// Descriptors cannot be passed, so a backend that needs them must find another way (machine_meeting() below).
//
// Who         every rank of the group makes the same calls, in the same order as its collectives.
// Fails       like an all_gather on the group; the group is then closed.
#pragma once

#include <memory>

#include "lockstep/comm/meeting/hub.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

class GroupMeeting : public Meeting {
 public:
  // `local_address` is the address at which other machines reach this process.
  explicit GroupMeeting(ProcessGroup group, std::string local_address = "127.0.0.1")
      : group_(std::move(group)), local_address_(std::move(local_address)) {
    set_caller("new_group");
  }

  int rank() const override { return group_.rank(); }
  int size() const override { return group_.size(); }
  bool passes_descriptors() const override { return false; }
  std::string local_address() const override { return local_address_; }
  // Every rank of the group is already trusted.
  std::optional<std::string> secret() const override { return std::nullopt; }
  std::vector<Message> exchange(const std::string& text, const std::vector<int>& fds,
                                Deadline deadline) override;

 private:
  const ProcessGroup group_;
  const std::string local_address_;
};

// Makes a meeting of the same ranks through sockets of this machine, which pass descriptors. The ranks find
// each other by a random name that rank 0 sends to all in `meeting`. Throws Timeout if a rank runs on another
// machine or as another user.
Hub machine_meeting(Meeting& meeting, Deadline deadline);

}  // namespace lockstep
