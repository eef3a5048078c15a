// PassedFile: a file that one process makes and others open by an ending that it tells them, and whose name
// is then taken away. All map the same memory.
//
//   PassedFile file("/nvme/scratch");
//   if (rank == 0) ending = file.create(bytes);
//   broadcast(ending);
//   if (rank != 0) file.open(ending);
//   const std::shared_ptr<void> memory = file.map(bytes);
//   barrier();                                   // all have opened it: the name may go
//
// Name   ".lockstep-memory-XXXXXX", until the maker's object goes. The memory stays until its last holder
//        goes.
// Fails  SystemError naming the path: the folder is missing, not writable or full, or is another one
//        elsewhere.
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

  Ending create(std::size_t bytes);  // zeros
  void open(const Ending& ending);
  std::shared_ptr<void> map(std::size_t bytes) const;

 private:
  std::string path_;
  Fd file_;
  bool is_maker_ = false;
};

}  // namespace lockstep
