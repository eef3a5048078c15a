// Hub greetings travel over the sockets inherited from the launcher, beside the ranks' exchanges. A process
// says hello when a program that can join the job is loaded. It says with which code it ends. A rank's
// wrapper, such as a shell, keeps these sockets open. They therefore do not close when the program started by
// the wrapper dies.
//
//   HubPeer peer;                                           // of one socket
//   if (peer.take(message)) continue;                       // a greeting
//   wait_readable({socket, peer.watched()}, deadline);  // readable: the process has ended, peer.note_death()
//   if (peer.is_lost()) throw PeerLost(peer.how_ended());
//
// A rank is lost when the last of its programs that said hello was killed, or ended with a code other than 0.
// Within GRACE another program may still say hello, because a shell may start the program again. A program
// that ends with code 0 without joining is not lost: its shell may go on to a program that joins. Not noticed
// are programs without Lockstep, and programs that die before Lockstep is loaded.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {

class HubPeer {
 public:
  static constexpr std::chrono::seconds GRACE{5};

  bool take(Message& message, bool watches = true);  // whether it was a greeting
  int watched() const { return processes_.empty() ? -1 : processes_.back().handle.get(); }
  void note_death();
  bool is_lost() const { return !how_ended_.empty() && grace_.expired(); }
  // Until when a wait may last before it looks at is_lost().
  Deadline patience() const { return how_ended_.empty() ? Deadline::never() : grace_; }
  const std::string& how_ended() const { return how_ended_; }  // "": it has not, or well

 private:
  struct Process {
    long pid = 0;  // as it knows itself: a name between its two greetings
    Fd handle;     // a pidfd, if the kernel has them
  };

  void ended_badly(std::string how);

  std::vector<Process> processes_;
  std::string how_ended_;
  Deadline grace_ = Deadline::never();
};

// Says hello over the sockets that LOCKSTEP_HUB_FDS names, and good-bye when this process ends. Called when
// the library is loaded.
void greet_hub(const std::string& fds);

}  // namespace lockstep
