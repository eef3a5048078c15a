// AppendFile: a file that grows at its end while a program runs, and that the program's next start can cut
// back to where a checkpoint was.
//
//   AppendFile file("run.jsonl");           // empty
//   file.append("first\n");
//   const auto kept = file.size();          // 6
//   file.append("second\n");
//   AppendFile again("run.jsonl", kept);    // "first\n"
//
// The bytes are with the kernel when append() returns: a killed program loses none of them, a power cut may.
// sync() waits until they are on the disk.
//
// Access      follows the umask, as files of any program do.
// Fails       SystemError that begins with `who` and names the path: the folder is missing or not writable,
//             the disk or the quota is full, a limit of file sizes is reached (never the signal SIGXFSZ).
// Threads     one at a time.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/base/visibility.h"
#include "lockstep/os/fd.h"

namespace LOCKSTEP_PUBLIC lockstep {

class AppendFile {
 public:
  // Keeps the first `keep` bytes of a file that is there, all of it if it is shorter; by default none.
  explicit AppendFile(std::string path, std::uint64_t keep = 0, const std::string& who = "");

  void append(std::string_view bytes);
  void sync();

  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string failure_;  // what an error begins with
  Fd file_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
