#include "lockstep/comm/backends/registry.h"

#include <array>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/hierarchical_backend.h"
#include "lockstep/comm/backends/mpi_backend.h"
#include "lockstep/comm/backends/self_backend.h"
#include "lockstep/comm/backends/shm_backend.h"
#include "lockstep/comm/backends/tcp_backend.h"

namespace lockstep {
namespace {

ProcessGroup make_self(Meeting&, const std::string& group_name, const GroupOptions&, Deadline) {
  return make_self_group(group_name);
}

constexpr std::array<BackendInfo, 5> TABLE = {{
    {"self", "one process: collectives are the identity", make_self, false},
    {"shm", "processes of one machine, over shared memory", make_shm_group, true},
    {"tcp", "processes of one or several machines, over TCP", make_tcp_group, true},
    {"hierarchical", "processes of several machines, over shared memory in each and TCP between them",
     make_hierarchical_group, true},
    {"mpi", "processes that mpirun or srun has started, over Open MPI or MPICH", make_mpi_group, true},
}};

}  // namespace

std::span<const BackendInfo> backends() { return TABLE; }

const BackendInfo& find_backend(std::string_view name, int size) {
  const std::string_view wanted = name == "auto" ? (size == 1 ? "self" : "shm") : name;
  std::string names = "auto";
  for (const BackendInfo& row : TABLE) {
    if (row.name == wanted) return row;
    names += str(", ", row.name);
  }
  throw InvalidArgument(
      str("init_process_group: there is no backend \"", printable(name), "\"; there are ", names));
}

}  // namespace lockstep
