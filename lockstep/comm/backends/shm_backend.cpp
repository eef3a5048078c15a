#include "lockstep/comm/backends/shm_backend.h"

#include <charconv>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared_split.h"
#include "lockstep/os/process.h"
#include "lockstep/os/process_handle.h"

namespace lockstep {
namespace {

class Processes : public shared::Peers {
 public:
  explicit Processes(std::vector<ProcessHandle> handles) : handles_(std::move(handles)) {}

  bool alive(int rank) const override { return handle(rank).alive(); }
  std::string detail(int rank) const override { return str("pid ", handle(rank).pid()); }
  bool stopped(int rank) const override {
    const char state = handle(rank).state();
    return state == 'T' || state == 't';
  }

 private:
  const ProcessHandle& handle(int rank) const { return handles_.at(static_cast<std::size_t>(rank)); }
  std::vector<ProcessHandle> handles_;
};

pid_t parse_pid(const std::string& text) {
  pid_t pid = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), pid);
  if (error != std::errc() || end != text.data() + text.size() || pid <= 0) {
    throw StoreError("init_process_group: a rank announced itself as \"" + printable(text) +
                     "\" instead of its pid");
  }
  return pid;
}

}  // namespace

ProcessGroup make_shm_group(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                            Deadline deadline) {
  shared::Membership membership;
  membership.rank = meeting.rank();
  membership.size = meeting.size();
  membership.group_name = group_name;
  membership.backend_name = "shm";
  membership.options = options;
  const auto mine = SharedMemory::create(physical_memory());
  std::shared_ptr<SharedMemory> control;
  std::vector<int> fds = {mine->fd()};
  if (meeting.rank() == 0) {
    const std::size_t bytes = shared::Control::bytes(meeting.size());
    control = SharedMemory::create(bytes);
    control->reserve(0, bytes);
    const shared::Control fresh(control->data(), meeting.size(), /*fresh=*/true);
    fds.push_back(control->fd());
  }
  std::vector<Message> all = meeting.exchange(std::to_string(current_pid()), fds, deadline);
  std::vector<ProcessHandle> handles;
  for (int r = 0; r < meeting.size(); ++r) {
    Message& message = all[static_cast<std::size_t>(r)];
    if (message.fds.size() != (r == 0 ? 2U : 1U)) {
      throw StoreError(str("init_process_group: rank ", r, " sent ", message.fds.size(), " memory segments"));
    }
    handles.emplace_back(parse_pid(message.text));
    membership.data.push_back(r == meeting.rank() ? mine : SharedMemory::adopt(std::move(message.fds[0])));
    if (r == 0 && !control) control = SharedMemory::adopt(std::move(message.fds[1]));
  }
  membership.control = {control, control->data()};
  membership.own = std::make_shared<shared::RankMemory>(mine);
  membership.peers = std::make_shared<Processes>(std::move(handles));
  // Everybody has mapped everything and holds a handle of everybody: from here on a death is seen by all.
  meeting.exchange("ready", {}, deadline);
  return ProcessGroup(shared::make_engine(std::move(membership)));
}

}  // namespace lockstep
