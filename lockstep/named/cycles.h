// Cycles: the engine's thread. It waits for a reason, exchanges announcements with the other ranks, and
// carries out what is agreed. engine.h draws it.
//
//   Cycles cycles(group, settings);               // collective
//   std::thread thread([&] { cycles.run(); });    // until a rank leaves or the group fails
//   cycles.leave();                               // from another thread; then join it
//
// An exchange is one all_gather of a few words: flags, how many bytes of new requests this rank has, and one
// bit for each slot of the cache. A second all_gather moves the requests, if any rank has one.
//
// Threads: run() is called by one. inbox(), leave() and wake() are for any.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/named/doorbell.h"
#include "lockstep/named/execution.h"
#include "lockstep/named/inbox.h"
#include "lockstep/named/negotiation.h"
#include "lockstep/named/settings.h"
#include "lockstep/named/stalls.h"
#include "lockstep/named/timeline.h"

namespace lockstep::named {

class Cycles {
 public:
  Cycles(const ProcessGroup& group, const Settings& settings);

  void run() noexcept;

  Inbox& inbox() { return inbox_; }
  const std::shared_ptr<Waiters>& waiters() const { return waiters_; }
  const ProcessSets& process_sets() const { return sets_; }
  Timeline& timeline() { return timeline_; }
  void wake() { waiters_->bell->ring(); }
  void leave();
  void close_process_sets() { sets_.close(); }  // after run()

 private:
  enum Flag : std::uint64_t { NO_FLAG = 0, LEAVES = 1, SEES_STALL = 2 };
  // What the ranks said in one exchange.
  struct Heard {
    std::vector<int> leaving;
    bool is_stalled = false;
    bool is_idle = true;
  };

  void turn();
  void wait_for_a_reason();
  std::chrono::nanoseconds pause(Time now);
  void look_for_stalls(Time now);
  Heard exchange();
  std::vector<std::uint64_t> own_words(std::string& requests);
  void hear_slots(std::span<const std::uint64_t> words, std::size_t length);
  void exchange_requests(const std::vector<std::uint64_t>& words, std::size_t length, const std::string& own);
  void run_batch(const Batch& batch);
  void carry_out(const Batch& batch, const Operations& operations);
  void change_process_sets(const Response& response, Operation& operation);
  void end(const Heard& heard);

  ProcessSets sets_;
  const Settings settings_;
  const std::shared_ptr<Waiters> waiters_ = std::make_shared<Waiters>();
  Inbox inbox_;
  Timeline timeline_;
  Negotiation table_;
  Execution execution_;
  StallWatch stalls_;
  std::atomic<bool> leaves_ = false;
  // of the thread of run()
  std::uint64_t cycle_ = 0;
  Time looked_ = {};         // at the last exchange
  Time stalls_looked_ = {};  // for names that wait too long
  bool sees_stall_ = false;
  int idle_cycles_ = 0;
};

}  // namespace lockstep::named
