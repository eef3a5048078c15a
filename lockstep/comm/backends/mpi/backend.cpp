#include "lockstep/comm/backends/mpi/backend.h"

#include <algorithm>
#include <atomic>
#include <set>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"
#include "lockstep/comm/backends/modules/library_agreement.h"
#include "lockstep/comm/backends/mpi/library.h"
#include "lockstep/comm/backends/mpi/links.h"
#include "lockstep/comm/backends/mpi/until_deadline.h"
#include "lockstep/os/process.h"

namespace lockstep {
namespace {

constexpr int TAGS = 32768;  // every MPI has that many

// Groups that share two ranks never share a tag. Each rank counts, and a group takes the highest count of its
// ranks.
std::atomic<int>& next_tag() {
  static std::atomic<int> next{1};
  return next;
}

std::shared_ptr<mpi::Communicator> world_of(mpi::Module& module, int size, Deadline deadline,
                                            std::string& failure) {
  failure = module.start();
  if (!failure.empty()) return nullptr;
  mpi::UntilDeadline patience(deadline);
  const Awaited awaited([] { return "all ranks of the MPI job to duplicate the communicator"; });
  auto world = module.world(patience, failure);
  if (world == nullptr && failure.empty())
    failure = "backend \"mpi\": not all ranks of MPI_COMM_WORLD came before the timeout";
  if (world != nullptr && world->size() < size)
    failure = str(
        "backend \"mpi\": MPI_COMM_WORLD of ", module.library(), " has ", world->size(),
        " process(es), and the group has ", size,
        " ranks"
        "; start the job with the mpirun of this MPI (mpirun.openmpi, mpirun.mpich) or with srun --mpi=...");
  return world;
}

struct Announcement {
  long pid = 0;
  int rank = -1;  // rank in the communicator
  int tag = 0;
  std::string host;
};

}  // namespace

std::shared_ptr<mpi::Communicator> mpi_world(Deadline deadline) {
  std::string failure;
  auto world = world_of(mpi::open_library(), 1, deadline, failure);
  if (!failure.empty()) throw InvalidArgument("backend \"mpi\": " + failure);
  return world;
}

std::shared_ptr<mpi::Communicator> mpi_duplicate(const MpiHandle& handle, Deadline deadline) {
  mpi::Module& module = mpi::open_library();
  constexpr const char* WHERE = "init_process_group_from_mpi: ";
  if (handle.handle != nullptr && handle.size != module.handle_size())
    throw InvalidArgument(str(WHERE, "an MPI_Comm of ", module.library(), " has ", module.handle_size(),
                              " bytes, and this handle has ", handle.size,
                              "; a handle of Fortran goes to init_process_group_from_mpi_fortran"));
  std::string failure = module.start_in_host();
  if (!failure.empty()) throw InvalidArgument(WHERE + failure);
  mpi::UntilDeadline patience(deadline);
  const Awaited awaited([] { return "all ranks of the MPI job to duplicate the communicator"; });
  auto copy = handle.handle != nullptr ? module.duplicate(handle.handle, patience, failure)
                                       : module.duplicate_fortran(handle.fortran, patience, failure);
  if (!failure.empty()) throw InvalidArgument(WHERE + failure);
  if (!copy) throw Timeout(str(WHERE, "not all ranks of the communicator came before the timeout"));
  return copy;
}

messages::Connections connect_mpi(Meeting& meeting, const GroupOptions&, Deadline deadline) {
  mpi::Module& module = open_on_all(meeting, "mpi", mpi::open_library, deadline);
  std::string failure;
  const auto world = world_of(module, meeting.size(), deadline, failure);
  tell_all(meeting, "", failure, deadline);
  return connect_mpi(meeting, world, deadline);
}

messages::Connections connect_mpi(Meeting& meeting, const std::shared_ptr<mpi::Communicator>& communicator,
                                  Deadline deadline) {
  mpi::Module& module = mpi::open_library();
  const std::string mine =
      str(current_pid(), ' ', communicator->rank(), ' ', next_tag().load(), ' ', module.host_name());
  std::vector<messages::PeerProcess> peers;
  std::vector<int> places;
  int tag = 1;
  for (const std::string& text : tell_all(meeting, mine, "", deadline)) {
    Announcement one;
    std::istringstream(text) >> one.pid >> one.rank >> one.tag >> one.host;
    peers.push_back({printable(one.host), one.pid});
    places.push_back(one.rank);
    tag = std::max(tag, one.tag);
  }
  if (std::set<int>(places.begin(), places.end()).size() != places.size())
    throw InvalidArgument(str(meeting.place(),
                              ": backend \"mpi\": two ranks are the same process for MPI; start one job with "
                              "one mpirun or srun"));
  next_tag() = tag + 1;
  auto streams = communicator->open(tag % TAGS, places);
  return {std::make_unique<mpi::MpiLinks>(module, communicator, std::move(streams), meeting.rank()),
          std::move(peers)};
}

}  // namespace lockstep
