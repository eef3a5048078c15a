// MpiLinks: links over the messages of one tag of a communicator (mpi/module.h).
//
//   MpiLinks links(module, communicator->open(tag, {0, 1, 2}));
//
// A process cannot wait for MPI and for another event at once, and a blocking call of MPI keeps a core busy.
// So wait() polls: without pause for a moment, then every 50 us for 20 ms after the last byte, then less and
// less often. The pause is at most a twentieth of the time since the last byte, and at most 50 ms. A second
// of waiting thus costs a hundred polls, not a thousand.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "lockstep/comm/backends/messages/link.h"
#include "lockstep/comm/backends/mpi/module.h"

namespace lockstep::mpi {

class MpiLinks final : public messages::Links {
 public:
  MpiLinks(Module& module, std::shared_ptr<Communicator> communicator, std::unique_ptr<Streams> streams,
           int own)
      : module_(module), communicator_(std::move(communicator)), streams_(std::move(streams)), own_(own) {}

  std::unique_ptr<messages::Link> link_to(int peer) override;
  std::vector<Event> wait(Deadline deadline, bool eager) override;
  void wake() override;
  void failed() override { module_.expect_no_farewell(); }

  // Called by links: data was sent, so an answer may come soon.
  void stir();
  Streams& streams() { return *streams_; }

 private:
  void rest(int rounds, Deadline deadline);

  Module& module_;
  const std::shared_ptr<Communicator> communicator_;
  const std::unique_ptr<Streams> streams_;
  const int own_;
  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  bool woken_ = false;
  bool stirred_ = false;
  std::chrono::steady_clock::time_point moved_ = std::chrono::steady_clock::now();
};

}  // namespace lockstep::mpi
