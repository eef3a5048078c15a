// Decides which MPI this process uses, and opens its module (mpi/module.h). No part of MPI is in the process
// before that.
//
//   mpi::Module& module = mpi::open_library();
//   for (const mpi::Found& one : mpi::find_libraries()) std::cout << one.name << " " << one.path << "\n";
//
// Which       LOCKSTEP_MPI (openmpi, mpich, or the path of a module) decides. Without it, an MPI that the
//             program was built with, then the launcher's MPI (OMPI_* or PMI_* variables), then the only MPI
//             there is.
// Where       module_file.h.
// Throws      InvalidArgument that says what to install, what to set, or why the module cannot be loaded.
#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/backends/mpi/module.h"

namespace lockstep::mpi {

struct Found {
  std::string name;  // openmpi, mpich
  std::string path;  // of its module; empty if there is none
};
std::vector<Found> find_libraries();

// Returns the same module for the rest of the process. Threads: any.
Module& open_library();
// Opens the module in this file. A process has one MPI, so call this neither with two files nor beside
// open_library().
Module& open_library_at(const std::string& path);

// The choice, without opening anything: the facts that decide, and the name ("" if they leave it open). Pure.
struct LibraryFacts {
  std::string wanted;  // value of LOCKSTEP_MPI
  std::string loaded;  // name of the MPI that is in the process already
  bool has_openmpi_launcher = false;
  bool has_mpich_launcher = false;
  std::vector<std::string> there;  // names of the modules found
};
std::string choose_library(const LibraryFacts& facts);

}  // namespace lockstep::mpi
