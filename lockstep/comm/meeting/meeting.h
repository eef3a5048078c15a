// Meeting: lets the ranks of a new group talk before they can communicate. They talk in rounds: each rank
// gives one small text and gets the texts of all ranks. Backends are built on it. They need not know how the
// processes met: through sockets inherited from the launcher, a Unix socket, a TCP store or an existing
// group.
//
//   const std::vector<Message> all = meeting.exchange(my_address, {}, deadline);  // rank r's text at
//                                                                                 // all[r].text
//
// Who         every rank makes the same calls. Blocks until all have called. Throws PeerLost, and Timeout
//             that names the ranks that did not come.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/base/str.h"
#include "lockstep/base/visibility.h"
#include "lockstep/os/unix_socket.h"

namespace LOCKSTEP_PUBLIC lockstep {

class Meeting {
 public:
  Meeting(const Meeting&) = delete;
  Meeting& operator=(const Meeting&) = delete;
  virtual ~Meeting() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  // For messages: the program's call in which the ranks meet, and "init_process_group, rank 1 of 3".
  const std::string& caller() const { return caller_; }
  void set_caller(std::string caller) { caller_ = std::move(caller); }
  std::string place() const { return str(caller_, ", rank ", rank(), " of ", size()); }
  // Returns whether descriptors can be passed. This proves that all ranks are on one machine.
  virtual bool passes_descriptors() const = 0;
  // The address at which the other ranks reach this process.
  virtual std::string local_address() const = 0;
  // A secret that only the job's processes know. nullopt if every participant of an exchange is trusted
  // anyway; a rank may then invent a secret and send it to all.
  virtual std::optional<std::string> secret() const = 0;

  // A rank sends at most MAX_MESSAGE_BYTES - 16 bytes and, if they can be passed, MAX_MESSAGE_FDS
  // descriptors.
  virtual std::vector<Message> exchange(const std::string& text, const std::vector<int>& fds,
                                        Deadline deadline) = 0;

 protected:
  Meeting() = default;
  Meeting(Meeting&&) = default;
  Meeting& operator=(Meeting&&) = default;

 private:
  std::string caller_ = "init_process_group";
};

}  // namespace lockstep
