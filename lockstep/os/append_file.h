// AppendFile: a file that grows at its end while a program runs. The program's next start can cut it back to
// its size at a checkpoint.
//
//   AppendFile file("run.jsonl");           // empty
//   file.append("first\n");
//   const auto kept = file.size();          // 6
//   file.append("second\n");
//   AppendFile again("run.jsonl", kept);    // "first\n"
//
// When append() returns, the kernel has the bytes: a killed program loses none, a power cut may lose some.
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
  // Keeps the first `keep` bytes of an existing file (all of it if it is shorter). The default keeps none.
  explicit AppendFile(std::string path, std::uint64_t keep = 0, const std::string& who = "");

  void append(std::string_view bytes);
  void sync();

  std::uint64_t size() const { return size_; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string failure_;  // the beginning of every error message
  Fd file_;
  std::uint64_t size_ = 0;
};

}  // namespace lockstep
