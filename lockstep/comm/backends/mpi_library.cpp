#include "lockstep/comm/backends/mpi_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <mutex>
#include <sstream>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep::mpi {
namespace {

constexpr std::array<const char*, 2> NAMES = {"openmpi", "mpich"};
constexpr const char* INSTALL =
    "install libopenmpi-dev or libmpich-dev and build Lockstep again: it makes one module for each MPI that "
    "it finds";

std::string file_of(const std::string& name) { return "lockstep_mpi_" + name + ".so"; }

std::vector<std::string> folders() {
  std::vector<std::string> all;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  if (!program.empty()) {
    all.push_back(program.string());
    all.push_back((program.parent_path() / "lib" / "lockstep").string());
  }
  std::istringstream built(LOCKSTEP_MODULE_FOLDERS);
  for (std::string folder; std::getline(built, folder, ':');) all.push_back(folder);
  return all;
}

std::string path_of(const std::string& name) {
  std::error_code ignored;
  for (const std::string& folder : folders()) {
    const std::filesystem::path path = std::filesystem::path(folder) / file_of(name);
    if (std::filesystem::exists(path, ignored)) return path.string();
  }
  return "";
}

// An MPI that the program brought, by the symbols that only one of them has.
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
  throw InvalidArgument(str("init_process_group: backend \"mpi\" needs ", file_of(name),
                            ", and it is in none of ", folders().front(), ", ", LOCKSTEP_MODULE_FOLDERS, "; ",
                            INSTALL));
}

Module& open(const std::string& path) {
  // Global, because plugins of Open MPI look there for its symbols; MPI does not survive being unloaded.
  void* const handle = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (handle == nullptr) {
    const char* const why = dlerror();  // NOLINT(concurrency-mt-unsafe): of this thread
    throw InvalidArgument(
        str("init_process_group: backend \"mpi\": cannot load ", path, ": ", why == nullptr ? "" : why));
  }
  using Entry = Module* (*)();
  const auto entry = reinterpret_cast<Entry>(dlsym(handle, MODULE_ENTRY));  // NOLINT: what dlsym is for
  if (entry == nullptr)
    throw InvalidArgument(str("init_process_group: backend \"mpi\": ", path,
                              " was built with another version of Lockstep; build or install it again"));
  return *entry();
}

}  // namespace

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
        "init_process_group: backend \"mpi\": this program brings an MPI that is neither Open MPI nor MPICH; "
        "compile "
        "mpi_module.cpp with its wrapper and set LOCKSTEP_MPI to the path of that module");
  if (facts.has_openmpi_launcher != facts.has_mpich_launcher)
    return facts.has_openmpi_launcher ? "openmpi" : "mpich";
  if (facts.there.size() == 1) return facts.there.front();
  if (facts.there.empty())
    throw InvalidArgument(
        str("init_process_group: backend \"mpi\": there is no module for any MPI here; ", INSTALL));
  throw InvalidArgument(
      "init_process_group: backend \"mpi\": Open MPI and MPICH are both here, and neither mpirun's variables "
      "(OMPI_*, "
      "PMI_*) nor the program says which one; set LOCKSTEP_MPI=openmpi or LOCKSTEP_MPI=mpich");
}

Module& open_library() {
  static std::mutex mutex;
  static Module* opened = nullptr;
  const std::lock_guard lock(mutex);
  if (opened == nullptr) opened = &open(path_to_open());
  return *opened;
}

}  // namespace lockstep::mpi
