// PeerMemory: reads the private memory of another process without its help (process_vm_readv). One copy then
// replaces two copies through a common segment.
//
//   PeerMemory peer(pid, its_introduction);  // the text of PeerMemory::introduction() in that process
//   if (peer.can_be_read()) ok = peer.read(address, bytes);  // false: it has ended, or has no such memory
//
// Needs     both processes belong to one user and one process namespace, and the kernel allows it. It does
//           not with kernel.yama.ptrace_scope=1 (Ubuntu's default), nor in a container whose filter forbids
//           the call. can_be_read() reports a test: the constructor reads a number that the introduction
//           names. So a process of another namespace with the same pid does not pass.
// Trust     gives no rights beyond those of any process of the same user. It only reads.
// Lifetime  a pid may be reused. After a read, the caller checks that the process still lives
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
  // The text that a process sends to the others: one word, "address:number".
  static std::string introduction();

  // Throws nothing. If the introduction is malformed, can_be_read() is false.
  PeerMemory(pid_t pid, const std::string& introduction);

  bool can_be_read() const { return can_be_read_; }
  // Fills `to` from the other process's memory at `address`. Returns false if it could not read all of it.
  bool read(std::uint64_t address, std::span<std::byte> to) const;

 private:
  pid_t pid_;
  bool can_be_read_ = false;
};

}  // namespace lockstep
