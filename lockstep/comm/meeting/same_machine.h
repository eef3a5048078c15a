// SameMachineProof: proves that all ranks that meet over a network are on one machine, and connects them
// there. Only a passed descriptor whose memory has the right content is a proof; host names and addresses are
// not.
//
//   SameMachineProof proof(meeting);
//   ... every rank learns rank 0's proof.offer() ...
//   if (std::unique_ptr<Hub> hub = proof.run(offer, deadline)) use_shared_memory(*hub);
//
// Rank 0 listens on a Unix socket in its private folder, and the other ranks try to connect to that path.
// Rank 0 passes a memory file with a random text to each rank that connected. All ranks exchange the text
// that they read over the meeting. If it is the same everywhere, they share a machine. Process numbers must
// also mean the same everywhere (one PID namespace), because shared memory watches its peers by process
// number.
//
// Who         every rank, at the same time. Blocks for two exchanges of the meeting.
// Fails       like the meeting. Returns null on every rank if they are not on one machine or belong to
//             several users.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/comm/meeting/hub.h"

namespace lockstep {

class SameMachineProof {
 public:
  explicit SameMachineProof(Meeting& meeting);
  SameMachineProof(const SameMachineProof&) = delete;
  SameMachineProof& operator=(const SameMachineProof&) = delete;
  ~SameMachineProof();

  const std::string& offer() const { return offer_; }  // rank 0: the socket's name; "" if it has none
  std::unique_ptr<Hub> run(const std::string& offer_of_rank_0, Deadline deadline);

 private:
  std::string connect(const std::string& offer);
  std::string pass_proofs(Deadline deadline);
  std::string read_proof(Deadline deadline);

  Meeting& meeting_;
  std::string offer_;
  std::string path_;
  Fd listener_;
  std::vector<Fd> sockets_;
};

// Groups the ranks by machine: each machine's ranks ascending, the machines by their first rank. It relies on
// the ranks' own statements and proves nothing. Ranks count as on one machine if its kernel has the same boot
// id and they use the same private folder. Ranks with different LOCKSTEP_NODE count as on different machines.
// Collective over the meeting.
std::vector<std::vector<int>> ranks_by_machine(Meeting& meeting, Deadline deadline);

// Groups the ranks by equal text. Collective over the meeting.
std::vector<std::vector<int>> ranks_by_text(Meeting& meeting, const std::string& text, Deadline deadline);

// Counts the lower ranks that claim to run on this machine, to number a resource that each rank of a machine
// uses alone. It proves nothing. Collective over the meeting.
int lower_ranks_here(Meeting& meeting, Deadline deadline);

}  // namespace lockstep
