// NoFileSizeSignal: handles the limit of file sizes (RLIMIT_FSIZE, `ulimit -f`). A write beyond it fails with
// EFBIG, but first the kernel sends the calling thread SIGXFSZ, which ends the process.
//
//   const NoFileSizeSignal quiet;                    // this thread gets only the error
//   if (write(file, data, size) < 0) ...             // EFBIG
//
// It installs no handler and changes no disposition, so the program may handle the signal in its own way.
#pragma once

#include <csignal>
#include <cstddef>

#include "lockstep/base/visibility.h"

namespace LOCKSTEP_PUBLIC lockstep {

// The largest size that a file may have; the largest number if there is no limit.
std::size_t largest_file();

class NoFileSizeSignal {
 public:
  NoFileSizeSignal();
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;
  ~NoFileSizeSignal();  // discards the signal if it came; errno keeps its value

 private:
  sigset_t signal_{};
  sigset_t before_{};
  bool is_held_ = false;
};

}  // namespace lockstep
