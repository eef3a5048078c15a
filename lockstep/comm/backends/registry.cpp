#include "lockstep/comm/backends/registry.h"

#include <array>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/gloo/backend.h"
#include "lockstep/comm/backends/messages/hierarchical_backend.h"
#include "lockstep/comm/backends/mpi/backend.h"
#include "lockstep/comm/backends/nccl/backend.h"
#include "lockstep/comm/backends/self/self_backend.h"
#include "lockstep/comm/backends/shared/shm_backend.h"
#include "lockstep/comm/backends/tcp/backend.h"

namespace lockstep {
namespace {

ProcessGroup make_self(Meeting&, const std::string& group_name, const GroupOptions&, Deadline) {
  return make_self_group(group_name);
}

template <const messages::Carrier& CARRIER>
ProcessGroup make_over(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                       Deadline deadline) {
  return messages::make_group(CARRIER, meeting, group_name, options, deadline);
}

template <const messages::Carrier& CARRIER>
ProcessGroup make_hierarchical(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                               Deadline deadline) {
  return make_hierarchical_group(CARRIER, meeting, group_name, options, deadline);
}

template <const std::string_view& BACKEND>
ProcessGroup make_nccl(Meeting& meeting, const std::string& group_name, const GroupOptions& options,
                       Deadline deadline) {
  return make_nccl_group(BACKEND, meeting, group_name, options, deadline);
}

constexpr std::array<BackendInfo, 10> BACKENDS = {{
    {"self", "one process: collectives are the identity", make_self, false},
    {"shm", "processes of one machine, over shared memory", make_shm_group, true},
    {TCP_CARRIER.name, "processes of one or several machines, over TCP", make_over<TCP_CARRIER>, true},
    {TCP_CARRIER.hierarchical,
     "processes of several machines, over shared memory in each and TCP between them",
     make_hierarchical<TCP_CARRIER>, true},
    {MPI_CARRIER.name, "processes that mpirun or srun has started, over Open MPI or MPICH",
     make_over<MPI_CARRIER>, true},
    {MPI_CARRIER.hierarchical, "the same, over shared memory in each machine and MPI between them",
     make_hierarchical<MPI_CARRIER>, true},
    {GLOO_CARRIER.name, "processes of one or several machines, over the Gloo library",
     make_over<GLOO_CARRIER>, true},
    {GLOO_CARRIER.hierarchical,
     "processes of several machines, over shared memory in each and the Gloo library between them",
     make_hierarchical<GLOO_CARRIER>, true},
    {NCCL, "processes with a CUDA device each: tensors there over NCCL, others over shm or hierarchical",
     make_nccl<NCCL>, true, true},
    {HIERARCHICAL_NCCL, "the same, with sums over NCCL in each machine and over NCCL between machines",
     make_nccl<HIERARCHICAL_NCCL>, true, true},
}};

// What NCCL refuses of a verb; empty: nothing.
std::string_view refused_on_cuda(Verb verb) {
  switch (verb) {
    case Verb::ALL_REDUCE:
    case Verb::REDUCE:
    case Verb::REDUCE_SCATTER: return "not int16, uint16, bits";
    case Verb::SEND: return "no tags";
    case Verb::RECV: return "no tags, no ANY_SOURCE";
    case Verb::BARRIER: return "of the hosts";
    default: return "";
  }
}

std::string table_row(const BackendInfo& backend, DeviceType device) {
  std::string row = str("| `", backend.name, "` | ", device == DeviceType::CPU ? "CPU" : "CUDA", " |");
  for (int i = 0; i < VERB_COUNT; ++i) {
    const auto verb = static_cast<Verb>(i);
    const bool is_empty = is_message(verb) && !backend.serves_many;  // there is no peer
    const std::string_view but = device == DeviceType::CUDA ? refused_on_cuda(verb) : "";
    row += str(is_empty ? " -" : " yes", but.empty() ? "" : ", ", but, " |");
  }
  return row + "\n";
}

}  // namespace

std::span<const BackendInfo> backends() { return BACKENDS; }

const BackendInfo& find_backend(std::string_view name, int size, std::string_view caller) {
  const std::string_view wanted = name == "auto" ? (size == 1 ? "self" : "shm") : name;
  std::string names = "auto";
  for (const BackendInfo& row : BACKENDS) {
    if (row.name == wanted) return row;
    names += str(", ", row.name);
  }
  throw InvalidArgument(str(caller, ": there is no backend \"", printable(name), "\"; there are ", names));
}

std::string backend_table() {
  std::string head = "| backend | memory |";
  std::string line = "|---|---|";
  for (int i = 0; i < VERB_COUNT; ++i) {
    head += str(" ", name_of(static_cast<Verb>(i)), " |");
    line += "---|";
  }
  std::string table = str(head, "\n", line, "\n");
  for (const BackendInfo& backend : backends()) {
    table += table_row(backend, DeviceType::CPU);
    if (backend.serves_cuda) table += table_row(backend, DeviceType::CUDA);
  }
  return table;
}

BackendChoice choose_backends(std::string_view text, std::string_view caller) {
  BackendChoice choice{std::string(text), ""};
  if (text.find(':') == std::string_view::npos) return choice;
  choice.cpu = "auto";
  std::istringstream entries{std::string(text)};
  for (std::string entry; std::getline(entries, entry, ',');) {
    const std::size_t colon = entry.find(':');
    const std::string device = entry.substr(0, colon);
    const std::string name = colon == std::string::npos ? "" : entry.substr(colon + 1);
    const bool is_nccl = name == NCCL || name == HIERARCHICAL_NCCL;
    if (device == "cpu" && !is_nccl && !name.empty()) {
      choice.cpu = name;
    } else if (device == "cuda" && is_nccl) {
      choice.cuda = name;
    } else {
      throw InvalidArgument(str(caller, ": backend \"", printable(text), "\": \"", printable(entry),
                                "\" is not cpu:NAME, cuda:nccl or cuda:hierarchical+nccl"));
    }
  }
  return choice;
}

}  // namespace lockstep
