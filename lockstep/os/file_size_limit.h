// The limit of the size of files (RLIMIT_FSIZE, `ulimit -f`). A call that would make a file larger fails with
// EFBIG, but first the kernel sends the calling thread SIGXFSZ, which ends the process.
//
//   const NoFileSizeSignal quiet;                    // this thread gets the error alone
//   if (write(file, data, size) < 0) ...             // EFBIG
//
// No handler is installed and no disposition changed, so that a program's own way with the signal is left
// alone.
#pragma once

#include <csignal>
#include <cstddef>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// Bytes that a file may have; the largest number there is without a limit.
std::size_t largest_file();

class NoFileSizeSignal {
 public:
  NoFileSizeSignal();
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;
  ~NoFileSizeSignal();  // takes back a signal that came; errno stays as it is

 private:
  sigset_t signal_{};
  sigset_t before_{};
  bool is_held_ = false;
};

}  // namespace lockstep
