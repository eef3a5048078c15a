// FolderLock: lets one process at a time work in a folder. The lock is a file in the folder, which stays.
//
//   const FolderLock lock("/runs/7/.lock", 30s);       // waits at most 30 s for another holder
//
// The lock ends with this object or with the process, however that ends. On a file system without locks it
// has no effect.
//
// Throws SystemError (EBUSY) that names the holder's pid if the holder does not release in time, and
// SystemError if the file cannot be opened. Only time in which this process could run counts.
#pragma once

#include <chrono>
#include <string>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class FolderLock {
 public:
  FolderLock(const std::string& path, std::chrono::milliseconds patience);

 private:
  Fd file_;  // closing it ends the lock
};

}  // namespace lockstep
