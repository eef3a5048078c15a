// Writes to a descriptor that other programs share (standard output), and never waits for its reader.
//
//   OutputDescriptor out(STDOUT_FILENO);
//   out.append("text\n");
//   out.flush();                            // keeps what the other side does not take now
//   if (out.pending() > 0) ... poll out.descriptor() for writing, then out.flush() again
//
// O_NONBLOCK belongs to the open file, which the shell and other programs share. So a pipe or terminal is
// opened anew through /proc/self/fd. Where that is refused, each write is small enough for poll's promise to
// hold (PIPE_BUF).
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "lockstep/os/fd.h"

namespace lockstep {

class OutputDescriptor {
 public:
  explicit OutputDescriptor(int shared_fd);

  void append(std::string_view text);  // dropped when is_broken()
  void flush();
  std::size_t pending() const { return pending_.size() - taken_; }
  bool is_broken() const { return is_broken_; }  // nobody reads any more
  // Why the last text that was lost could not be written (errno); 0: none was. Where the disk is full, or a
  // file may not grow any more, the text is dropped and the next one is tried: there may be room again.
  int error() const { return error_; }
  int descriptor() const { return own_.valid() ? own_.get() : shared_fd_; }

 private:
  long write_some(std::string_view text);
  void lose(int error);

  int shared_fd_;
  Fd own_;  // the same file, opened anew without blocking; invalid: `shared_fd_` is used
  bool is_file_ = false;
  bool may_block_ = false;
  bool is_broken_ = false;
  int error_ = 0;
  std::string pending_;
  std::size_t taken_ = 0;  // bytes of `pending_` that are written already
};

bool is_same_file(int fd, int other);  // both descriptors lead to one terminal, pipe or file

}  // namespace lockstep
