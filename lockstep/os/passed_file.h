// PassedFile: memory that several processes map through one file. One process creates the file and tells the
// others the ending of its name; they open it by that name, which is then removed.
//
//   PassedFile file("/nvme/scratch");
//   if (rank == 0) ending = file.create(bytes);
//   broadcast(ending);
//   if (rank != 0) file.open(ending);
//   const std::shared_ptr<void> memory = file.map(bytes);
//   barrier();                                   // all have opened it: the name may be removed
//
// Name   ".lockstep-memory-XXXXXX", until the creator's object is destroyed. The memory lives until the last
//        process unmaps it.
// Fails  SystemError that names the path: the folder is missing, not writable, full, or not the same folder
//        on all machines.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class PassedFile {
 public:
  using Ending = std::array<char, 6>;  // of the name

  explicit PassedFile(const std::string& folder);
  PassedFile(const PassedFile&) = delete;
  PassedFile& operator=(const PassedFile&) = delete;
  ~PassedFile();

  Ending create(std::size_t bytes);  // filled with zeros
  void open(const Ending& ending);
  std::shared_ptr<void> map(std::size_t bytes) const;

 private:
  std::string path_;
  Fd file_;
  bool is_maker_ = false;
};

}  // namespace lockstep
