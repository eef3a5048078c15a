// Which MPI this process uses, and opening its module (mpi/module.h). Nothing of MPI is in the process before
// that.
//
//   mpi::Module& module = mpi::open_library();
//   for (const mpi::Found& one : mpi::find_libraries()) std::cout << one.name << " " << one.path << "\n";
//
// Which       LOCKSTEP_MPI (openmpi, mpich, or the path of a module); else the one that is in this process
//             already, because the program was built with it; else the launcher's: OMPI_* or PMI_* variables;
//             else the only one there is.
// Where       module_file.h.
// Throws      InvalidArgument that says what to install, what to set, or why the module cannot be loaded.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/backends/mpi/module.h"

namespace lockstep::mpi {

struct Found {
  std::string name;  // openmpi, mpich
  std::string path;  // of its module; empty: there is none
};
std::vector<Found> find_libraries();

// The same one for the rest of the process. Threads: any.
Module& open_library();
// The module in this file. A process has one MPI: not beside open_library() or another file.
Module& open_library_at(const std::string& path);

// What it does without opening anything: the facts that choose, and the choice ("" if they leave it open).
struct LibraryFacts {
  std::string wanted;  // LOCKSTEP_MPI
  std::string loaded;  // what is in the process
  bool has_openmpi_launcher = false;
  bool has_mpich_launcher = false;
  std::vector<std::string> there;  // names of the modules found
};
std::string choose_library(const LibraryFacts& facts);

}  // namespace lockstep::mpi
