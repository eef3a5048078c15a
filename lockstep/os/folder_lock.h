// FolderLock: one process at a time does something in a folder. The lock is a file in it, which stays.
//
//   const FolderLock lock("/runs/7/.lock", 30s);       // waits for another holder so long
//
// The lock ends with this object or with the process, however that ends. A file system without locks excludes
// nobody.
//
// Throws SystemError (EBUSY) that names the holder's process if it holds the lock for longer, and SystemError
// if the file can neither be made nor opened. Only time counts in which this process could run.
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
