// MpiMeeting: the ranks of a communicator talk over MPI before they can communicate: on several machines
// without a store, an address or a secret, because MPI has connected them already.
//
//   MpiMeeting& meeting = MpiMeeting::of(communicator);          // one for each communicator, for the rest
//                                                                // of the process
//   meeting.begin();  // what earlier, failed meetings have left is dropped
//   const std::vector<Message> all = meeting.exchange(my_address, {}, deadline);
//
// Who         every rank of the communicator makes the same calls. Blocks until all have.
// Fails       Timeout naming the ranks that did not come; PeerLost with MPI's own words.
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
  using Key = std::pair<std::uint32_t, std::uint32_t>;  // meeting, round
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
