// MpiMeeting: a Meeting of the ranks of a communicator, over MPI. Ranks of several machines need no store,
// address or secret, because MPI has connected them already.
//
//   MpiMeeting& meeting = MpiMeeting::of(communicator);          // one for each communicator, for the rest
//                                                                // of the process
//   meeting.begin();  // what earlier, failed meetings have left is dropped
//   const std::vector<Message> all = meeting.exchange(my_address, {}, deadline);
//
// Who         Every rank of the communicator makes the same calls. A call blocks until all ranks have made
//             it.
// Fails       Timeout names the ranks that did not come; PeerLost quotes MPI's error.
// Threads     one at a time.
#pragma once

#include <map>
#include <memory>
#include <vector>

#include "lockstep/comm/backends/mpi/module.h"
#include "lockstep/comm/meeting/meeting.h"

namespace lockstep {

class MpiMeeting final : public Meeting {
 public:
  static MpiMeeting& of(const std::shared_ptr<mpi::Communicator>& communicator);

  void begin();

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }
  bool passes_descriptors() const override { return false; }
  std::string local_address() const override { return "127.0.0.1"; }
  std::optional<std::string> secret() const override { return std::nullopt; }
  std::vector<Message> exchange(const std::string& text, const std::vector<int>& fds,
                                Deadline deadline) override;

 private:
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // meeting and round
  struct Neighbour {
    std::vector<std::byte> outgoing;
    std::vector<std::byte> incoming;
    std::map<Key, std::string> texts;
  };

  explicit MpiMeeting(std::shared_ptr<mpi::Communicator> communicator);
  bool move(int rank);
  bool parse(Neighbour& from);

  const std::shared_ptr<mpi::Communicator> communicator_;
  const std::unique_ptr<mpi::Streams> streams_;
  std::vector<Neighbour> neighbours_;
  Key now_{0, 0};
};

}  // namespace lockstep
