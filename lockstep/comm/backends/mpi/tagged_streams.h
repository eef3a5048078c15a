// TaggedStreams: implements the streams of mpi/module.h, over MPI_Isend and MPI_Irecv.
//
// Every byte is copied once on each side, into and out of packets (packets.h). The reason: an operation that
// fails must do so at once, because its caller may free the buffer.
//
// Threads: any; each function takes the lock calls() unless it says that the caller must hold it.
#pragma once
// NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts

#include <mpi.h>

#include <array>
#include <string>
#include <vector>

#include "lockstep/comm/backends/mpi/module.h"
#include "lockstep/comm/backends/mpi/packets.h"

namespace lockstep::mpi {

class TaggedStreams final : public Streams {
 public:
  TaggedStreams(MPI_Comm comm, int tag, const std::vector<int>& ranks, int own);
  ~TaggedStreams() override;

  Moved send(int to, const std::array<std::span<const std::byte>, 2>& parts) override;
  Moved receive(int from, std::span<std::byte> buffer) override;
  bool flushed(int to) override;
  void want_write(int to, bool wanted) override;
  void close(int with) override;
  std::vector<Ready> progress() override;

  // ---- when MPI is finalised, with the lock held
  static void close_all();
  // Returns whether no packet of any streams is under way. Repeated calls receive what still arrives.
  static bool are_settled();

 private:
  static constexpr std::size_t SLOTS = 8;  // packets on their way to one rank

  // Two receives are posted, in order. The first is the next to be read.
  struct Member {
    int rank = 0;
    bool open = false;
    bool wants_write = false;
    std::string broken;
    std::array<Packet, SLOTS> outgoing;
    std::array<Packet, 2> incoming;
    std::size_t first = 0;
    std::size_t arrived = 0;  // bytes of the first packet, if it is complete
    std::size_t taken = 0;    // of these, bytes that were read
    bool complete = false;
  };

  Member& at(int member) { return members_.at(static_cast<std::size_t>(member)); }
  void let_go();
  static void close(Member& member);
  static void note(Member& member, const char* call, int code);
  void post(Member& member, Packet& packet) const;
  static Packet* free_slot(Member& member);
  static bool look(Member& member);

  const MPI_Comm comm_;
  const int tag_;
  std::vector<Member> members_;
};

}  // namespace lockstep::mpi
// NOLINTEND
