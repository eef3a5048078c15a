// MpiLinks: links over the messages of one tag of a communicator (mpi/module.h).
//
//   MpiLinks links(module, communicator->open(tag, {0, 1, 2}));
//
// MPI cannot be waited for together with anything else, and a call that blocks in it keeps a core busy:
// wait() asks again and again, at once for a moment, then every 50 us for 20 ms after the last byte, then
// less and less often: what has taken a while may take a twentieth of it longer, and at most 50 ms. So a
// second of waiting is a hundred questions, not a thousand.
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

  // For links: something was sent, so an answer may come soon.
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
