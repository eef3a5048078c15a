// Proves that all ranks that meet over a network are on one machine, and connects them there: nothing else
// than a descriptor that was passed and whose memory reads right counts, no host name, no address.
//
//   SameMachineProof proof(meeting);
//   ... every rank learns rank 0's proof.offer() ...
//   if (std::unique_ptr<Hub> hub = proof.run(offer, deadline)) use_shared_memory(*hub);
//
// Rank 0 listens on a Unix socket in its private folder; the others try to connect to that path. To those who
// did it passes a memory file with a random text. All ranks tell over the meeting what they read: the same
// text everywhere is the proof. Process numbers must mean the same everywhere too (one PID namespace),
// because shared memory looks after its peers by them.
//
// Who         every rank, at the same time. Blocks for two exchanges of the meeting.
// Fails       as the meeting does. Null, on every rank, when they are not on one machine or not of one user.
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

  const std::string& offer() const { return offer_; }  // rank 0: the socket's name; "": it cannot have one
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

// The ranks of each machine, ascending, machines by their first rank: of those that say that they are on one,
// and no proof. It started at the same time, and they meet in the same folder; those whose LOCKSTEP_NODE
// differ are on different ones. Collective over the meeting.
std::vector<std::vector<int>> ranks_by_machine(Meeting& meeting, Deadline deadline);

// The ranks that say the same. Collective over the meeting.
std::vector<std::vector<int>> ranks_by_text(Meeting& meeting, const std::string& text, Deadline deadline);

// How many lower ranks say that they run on this machine: a number for what every rank of a machine has one
// of, and no proof. Collective over the meeting.
int lower_ranks_here(Meeting& meeting, Deadline deadline);

}  // namespace lockstep
