// NOLINTBEGIN: the two MPIs define the same names as pointers, as numbers and as macros of casts
#include "lockstep/comm/backends/mpi/packets.h"

#include <list>
#include <utility>

namespace lockstep::mpi {
namespace {

std::list<Packet>& left_over() {
  static auto* const instance = new std::list<Packet>;  // outlives static destructors
  return *instance;
}

}  // namespace

bool is_free(Packet& packet) {
  int done = 1;
  if (packet.request != MPI_REQUEST_NULL) MPI_Test(&packet.request, &done, MPI_STATUS_IGNORE);
  return done != 0;
}

void keep(Packet&& packet) {
  if (packet.request != MPI_REQUEST_NULL) left_over().push_back(std::move(packet));
}

void sweep() {
  left_over().remove_if([](Packet& packet) {
    int done = 0;
    MPI_Test(&packet.request, &done, MPI_STATUS_IGNORE);
    return done != 0;
  });
}

bool are_packets_left() { return !left_over().empty(); }

}  // namespace lockstep::mpi
// NOLINTEND
