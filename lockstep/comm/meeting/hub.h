// Hub: connects the ranks of one machine by sockets, as a star with rank 0 at the centre. Over it the ranks
// exchange small packets with file descriptors before they share memory.
//
//   Hub hub = Hub::inherited(rank, size, *env("LOCKSTEP_HUB_FDS"));     // from the launcher
//   Hub hub = Hub::meet(rank, size, "torchrun-1234", deadline);         // or at a socket in the
//                                                                       // user's private folder
//   std::vector<Message> all = hub.exchange("hello", {}, deadline);     // rank r's message at [r]
//
// Who         every rank makes the same calls. After meet() no listening socket and no file remains.
// Fails       Mismatch if ranks of two jobs meet; PeerLost if a rank's connection closed (its process ended);
//             Timeout that names the ranks that did not come.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/meeting/greeting.h"
#include "lockstep/comm/meeting/hub_greeting.h"
#include "lockstep/comm/meeting/job_identity.h"
#include "lockstep/comm/meeting/meeting.h"

namespace lockstep {

class Hub : public Meeting {
 public:
  // `fds` is the value of LOCKSTEP_HUB_FDS. Rank 0 has the sockets to ranks 1, 2, ...; each other rank has
  // its socket to rank 0.
  static Hub inherited(int rank, int size, const std::string& fds);
  // Ranks find each other by `key`, which must name the job. Connections of other users are refused. Rank 0
  // compares the job of each rank with its own. If the jobs differ, or two processes come as the same rank,
  // all ranks that have come throw Mismatch. `caller` is Meeting's, for messages.
  static Hub meet(int rank, int size, const std::string& key, Deadline deadline,
                  const JobFingerprint& job = {}, const std::string& caller = "init_process_group");
  // Makes a hub over existing connections. Rank 0 passes one socket per rank, with the entry for rank 0
  // unused. Each other rank passes one socket, towards rank 0.
  static Hub over(int rank, int size, std::vector<Fd> sockets);

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  bool passes_descriptors() const override { return true; }
  std::string local_address() const override { return "127.0.0.1"; }
  std::optional<std::string> secret() const override { return std::nullopt; }
  std::vector<Message> exchange(const std::string& text, const std::vector<int>& fds,
                                Deadline deadline) override;

 private:
  Hub(int rank, int size) : rank_(rank), size_(size) {}
  void welcome(const std::string& path, const JobFingerprint& job, Deadline deadline);
  Fd listen_alone(const std::string& path, const Guest& self) const;
  [[noreturn]] void throw_missing(const std::vector<int>& missing, const std::string& path) const;
  // A rank to which rank 0 passes the messages of all ranks.
  struct Receiver {
    std::size_t next = 0;       // index of the next message
    std::size_t under_way = 0;  // descriptors that it has not received yet
    bool is_gone = false;
  };
  std::vector<Message> tell_and_hear(const std::string& text, const std::vector<int>& fds, Deadline deadline);
  std::vector<Message> collect(const std::string& text, const std::vector<int>& fds, Deadline deadline);
  void distribute(const std::vector<Message>& all, Deadline deadline);
  void pass(const std::vector<Message>& all, int r, Receiver& to, std::size_t room, Deadline deadline);
  // The next message of one of these ranks. `place` is its index in `sockets_`.
  struct Heard {
    std::size_t place;
    Received received;
  };
  Heard hear(const std::vector<std::size_t>& from, Deadline deadline, Message& message);
  [[noreturn]] void give_up(const std::vector<int>& missing, bool closed);

  int rank_;
  int size_;
  unsigned round_ = 0;
  std::vector<Fd> sockets_;     // rank 0: by rank, [0] unused; other ranks: [0] is the socket to rank 0
  std::vector<HubPeer> peers_;  // at the same indices
};

}  // namespace lockstep
