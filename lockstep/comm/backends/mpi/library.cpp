#include "lockstep/comm/backends/mpi/library.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <mutex>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/modules/module_file.h"

namespace lockstep::mpi {
namespace {

constexpr std::array<const char*, 2> NAMES = {"openmpi", "mpich"};
constexpr const char* INSTALL =
    "install libopenmpi-dev or libmpich-dev and build Lockstep again: it makes one module for each MPI that "
    "it finds";

std::string file_of(const std::string& name) { return "lockstep_mpi_" + name + ".so"; }

std::string path_of(const std::string& name) { return find_module(file_of(name)); }

// Finds the MPI that the program was linked with, by symbols that only one of the MPIs has.
std::string loaded_library() {
  if (dlsym(RTLD_DEFAULT, "ompi_mpi_comm_world") != nullptr) return "openmpi";
  if (dlsym(RTLD_DEFAULT, "MPIR_Dup_fn") != nullptr ||
      dlsym(RTLD_DEFAULT, "MPICH_ATTR_FORTRAN_WIN_BASE") != nullptr)
    return "mpich";
  return dlsym(RTLD_DEFAULT, "MPI_Init") != nullptr ? "another" : "";
}

LibraryFacts facts() {
  LibraryFacts facts;
  facts.wanted = env("LOCKSTEP_MPI").value_or("");
  facts.loaded = loaded_library();
  facts.has_openmpi_launcher = env("OMPI_COMM_WORLD_RANK").has_value();
  facts.has_mpich_launcher = env("PMI_RANK").has_value() || env("PMI_ID").has_value();
  for (const Found& one : find_libraries()) {
    if (!one.path.empty()) facts.there.push_back(one.name);
  }
  return facts;
}

std::string path_to_open() {
  const LibraryFacts known = facts();
  if (known.wanted.find('/') != std::string::npos) return known.wanted;
  const std::string name = choose_library(known);
  const std::string path = path_of(name);
  if (!path.empty()) return path;
  throw InvalidArgument(str("backend \"mpi\" needs ", file_of(name), ", and it is in none of ",
                            module_folders(), "; ", INSTALL));
}

}  // namespace

Module& open_library_at(const std::string& path) {
  using Entry = Module* (*)();
  // Global, because plugins of Open MPI look there for its symbols. MPI does not survive being unloaded.
  void* const entry = open_module("mpi", path, RTLD_NOW | RTLD_GLOBAL, MODULE_ENTRY);
  return *reinterpret_cast<Entry>(entry)();  // NOLINT: what dlsym is for
}

std::vector<Found> find_libraries() {
  std::vector<Found> found;
  for (const char* name : NAMES) found.push_back({name, path_of(name)});
  return found;
}

std::string choose_library(const LibraryFacts& facts) {
  const auto is_known = [](const std::string& name) {
    return std::find(NAMES.begin(), NAMES.end(), name) != NAMES.end();
  };
  if (!facts.wanted.empty()) {
    if (is_known(facts.wanted)) return facts.wanted;
    throw InvalidArgument(str("environment: LOCKSTEP_MPI=\"", printable(facts.wanted),
                              "\" must be openmpi, mpich or the path of a module"));
  }
  if (is_known(facts.loaded)) return facts.loaded;
  if (!facts.loaded.empty())
    throw InvalidArgument(
        "backend \"mpi\": this program is linked with an MPI that is neither Open MPI nor MPICH; "
        "compile "
        "mpi/module.cpp with its wrapper and set LOCKSTEP_MPI to the path of that module");
  if (facts.has_openmpi_launcher != facts.has_mpich_launcher)
    return facts.has_openmpi_launcher ? "openmpi" : "mpich";
  if (facts.there.size() == 1) return facts.there.front();
  if (facts.there.empty())
    throw InvalidArgument(str("backend \"mpi\": there is no module for any MPI here; ", INSTALL));
  throw InvalidArgument(
      "backend \"mpi\": Open MPI and MPICH are both here, and neither mpirun's variables "
      "(OMPI_*, "
      "PMI_*) nor the program says which one; set LOCKSTEP_MPI=openmpi or LOCKSTEP_MPI=mpich");
}

Module& open_library() {
  static std::mutex mutex;
  static Module* opened = nullptr;
  const std::lock_guard lock(mutex);
  if (opened == nullptr) opened = &open_library_at(path_to_open());
  return *opened;
}

}  // namespace lockstep::mpi
