// Packet: the memory of one message of MPI. MPI cannot be made to release a buffer. So a packet that nobody
// waits for any more keeps its memory until MPI is done with it.
//
//   if (!is_free(packet)) keep(std::move(packet));
//   ...
//   sweep();                                           // now and then: frees packets that MPI is done with
//
// Threads: the lock calls().
#pragma once
// NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts

#include <mpi.h>

#include <cstddef>
#include <vector>

namespace lockstep::mpi {

// The largest message: a frame with a whole small message and its header.
inline constexpr std::size_t PACKET = (std::size_t{64} << 10U) + 64;

struct Packet {
  std::vector<std::byte> bytes;
  MPI_Request request = MPI_REQUEST_NULL;
};

bool is_free(Packet& packet);
void keep(Packet&& packet);
void sweep();
bool are_packets_left();  // kept packets that MPI still uses

}  // namespace lockstep::mpi
// NOLINTEND
