// Reception: a listening socket, and its connections that have not yet proved that they know the job's
// secret. A connection that proves it is passed on. Every other one stays an entry of the guest list.
//
//   Reception reception(tcp_listen("", 29500), {secret, HandshakePurpose::STORE, "store at 10.0.0.1:29500"});
//   PollSet wait;
//   reception.add_to(wait);
//   wait.run(reception.next_deadline());
//   for (Reception::Admitted& one : reception.serve(wait)) use(std::move(one.socket), one.hello);
//
// Order       connections that have sent data are read before a new one is accepted, and once more before one
//             of them would be closed. So a connection whose proof has arrived is never closed for a newer
//             one. guest_list.h has the limits, and the choice of the connection to close.
// Time        a connection has 5 seconds. If the process may open no more files, connections wait until it
//             may.
// Reports     each kind of refusal once (base/log.h, a warning), however often it happens.
// Blocks      never. One thread.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "lockstep/base/deadline.h"
#include "lockstep/os/fd.h"
#include "lockstep/os/poll_set.h"
#include "lockstep/os/secret.h"
#include "lockstep/store/guest_list.h"
#include "lockstep/store/handshake.h"

namespace lockstep {

class Reception {
 public:
  struct Options {
    Secret secret;
    HandshakePurpose purpose = HandshakePurpose::STORE;
    std::string name;  // the listener's name in reports
    GuestList::Limits limits = {};
  };
  struct Admitted {
    Fd socket;
    HandshakeHello hello;
    std::string peer;  // its address
  };

  Reception(Fd listener, const Options& options);

  void add_to(PollSet& wait) const;
  Deadline next_deadline() const;
  std::vector<Admitted> serve(const PollSet& wait);
  // Reports once per kind why the connection from `peer` was refused.
  void report(const std::string& kind, const std::string& peer);

 private:
  struct Guest {
    Fd socket;
    std::string peer;
    ServerHandshake handshake;
    Deadline deadline;
  };

  void accept_waiting();
  void admit_newcomer(Fd socket);
  bool hear(int fd);
  bool take_message(Guest& guest);
  void make_room_for(const std::string& address);
  void drop(int fd);
  void drop_late();

  const Fd listener_;
  const Options options_;
  GuestList list_;
  std::map<int, Guest> guests_;  // by descriptor
  std::vector<Admitted> admitted_;
  Deadline pause_ = Deadline::in(std::chrono::seconds(0));  // no connection is accepted until then
  std::set<std::string> reported_;
};

}  // namespace lockstep
