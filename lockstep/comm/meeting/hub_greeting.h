// Hub greetings travel over the sockets inherited from the launcher, besides the ranks' exchanges. A process
// sends a hello when a program that can join the job is loaded, and a goodbye with its exit code. They are
// needed because a rank's wrapper, such as a shell, keeps these sockets open. So the sockets do not close
// when the program that the wrapper started dies.
//
//   HubPeer peer;                                           // for one socket
//   if (peer.take(message)) continue;                       // it was a greeting
//   wait_readable({socket, peer.watched()}, deadline);  // readable: the process has ended, peer.note_death()
//   if (peer.is_lost()) throw PeerLost(peer.how_ended());
//
// A rank is lost if the last of its programs that sent a hello was killed, or ended with a code other than 0.
// Within GRACE another program may still send a hello, because a shell may start the program again. A program
// that ends with code 0 without joining does not make the rank lost, because its shell may start a program
// that joins. Programs without Lockstep, and programs that die before Lockstep is loaded, are not noticed.
#pragma once

#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {

class HubPeer {
 public:
  static constexpr std::chrono::seconds GRACE{5};

  bool take(Message& message, bool watches = true);  // returns whether it was a greeting
  int watched() const { return processes_.empty() ? -1 : processes_.back().handle.get(); }
  void note_death();
  bool is_lost() const { return !how_ended_.empty() && grace_.expired(); }
  // A wait must check is_lost() again at this time.
  Deadline patience() const { return how_ended_.empty() ? Deadline::never() : grace_; }
  const std::string& how_ended() const { return how_ended_; }  // "" if it has not ended, or ended well

 private:
  struct Process {
    long pid = 0;  // in its own pid namespace; it links its two greetings
    Fd handle;     // a pidfd, if the kernel supports it
  };

  void ended_badly(std::string how);

  std::vector<Process> processes_;
  std::string how_ended_;
  Deadline grace_ = Deadline::never();
};

// Sends a hello over the sockets that LOCKSTEP_HUB_FDS names, and a goodbye when this process ends. Called
// when the library is loaded.
void greet_hub(const std::string& fds);

}  // namespace lockstep
