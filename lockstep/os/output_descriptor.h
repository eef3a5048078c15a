// OutputDescriptor: writes to a descriptor that is shared with other programs (standard output), and never
// waits for its reader.
//
//   OutputDescriptor out(STDOUT_FILENO);
//   out.append("text\n");
//   out.flush();                            // keeps the text that the reader does not accept now
//   if (out.pending() > 0) ... poll out.descriptor() for writing, then out.flush() again
//
// O_NONBLOCK belongs to the open file, which the shell and other programs share. So a pipe or terminal is
// opened again through /proc/self/fd. If that is refused, each write is at most PIPE_BUF bytes: if poll()
// reports the descriptor writable, such a write does not block.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/os/fd.h"

namespace lockstep {

class OutputDescriptor {
 public:
  explicit OutputDescriptor(int shared_fd);

  void append(std::string_view text);  // ignored if is_broken()
  void flush();
  std::size_t pending() const { return pending_.size() - taken_; }
  bool is_broken() const { return is_broken_; }  // the reader is gone
  // The errno value of the last text that was lost; 0 if none was. If the disk is full or the file may not
  // grow, that text is dropped, and the next one is tried: there may be space again.
  int error() const { return error_; }
  int descriptor() const { return own_.valid() ? own_.get() : shared_fd_; }

 private:
  long write_some(std::string_view text);
  void lose(int error);

  int shared_fd_;
  Fd own_;  // the same file, opened again without blocking; if invalid, `shared_fd_` is used
  bool is_file_ = false;
  bool may_block_ = false;
  bool is_broken_ = false;
  int error_ = 0;
  std::string pending_;
  std::size_t taken_ = 0;  // bytes of `pending_` that are written
};

bool is_same_file(int fd, int other);  // both descriptors refer to one terminal, pipe or file

}  // namespace lockstep
