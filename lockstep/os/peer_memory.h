// PeerMemory: reads the private memory of another process, without its help (process_vm_readv). Two copies
// through a common segment become one.
//
//   PeerMemory peer(pid, its_introduction);  // text of PeerMemory::introduction(), made by that process
//   if (peer.can_be_read()) ok = peer.read(address, bytes);  // false: it has ended, or has no such memory
//
// Needs     both processes belong to one user and one process namespace, and the kernel allows it. With
//           kernel.yama.ptrace_scope=1 (Ubuntu) it does not, nor does a container whose filter forbids the
//           call. can_be_read() has tried it on a number that the introduction names, so a process of
//           another namespace with the same pid does not pass.
// Trust     gives nobody rights that a process of the same user would not have. Only reads.
// Lifetime  a pid may be used again. After a read, the caller checks that the process still lives
//           (ProcessHandle).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace lockstep {

class PeerMemory {
 public:
  // What a process tells the others of itself: one word, "address:number".
  static std::string introduction();

  // Throws nothing: an introduction that is none cannot be read.
  PeerMemory(pid_t pid, const std::string& introduction);

  bool can_be_read() const { return can_be_read_; }
  // Fills `to` with what lies at `address` there. False when not all of it could be read.
  bool read(std::uint64_t address, std::span<std::byte> to) const;

 private:
  pid_t pid_;
  bool can_be_read_ = false;
};

}  // namespace lockstep
