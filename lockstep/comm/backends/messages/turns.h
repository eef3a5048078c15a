// Turns: decides which thread serves the connections of a fabric. A waiting rank serves them itself. It then
// gets its answer without a change between threads, which would cost more than the message. The fabric's
// thread serves the connections while no rank waits.
//   THREAD --a rank waits: end_turn_of_thread()--> NOBODY --begin_turn()--> WAITER --end_turn()--> NOBODY
//     ^                                              |
//     +--serve_pending(), or a rest() without ranks--+
// After end_thread() there is no THREAD: a rank that waits serves.
//
// Threads: the fabric's lock.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <mutex>

namespace lockstep::messages {

class Turns {
 public:
  // A rank that waits, from construction to destruction. The destructor wakes another waiting rank if none
  // serves then.
  class Waiting {
   public:
    explicit Waiting(Turns& turns) : turns_(turns) { ++turns_.waiting_; }
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Turns& turns_;
  };

  // Returns true if it is the caller's turn, until end_turn(). Returns false if another thread serves
  // already.
  bool begin_turn();
  void end_turn();
  // Returns when there may be news, or when it may be the caller's turn.
  void sleep(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds span);

  // Notes that an operation has ended, or that there is a part to help with. tell_waiters() then wakes
  // sleeping ranks. It returns whether a serving rank must be woken too.
  void note_news() { has_news_ = true; }
  bool tell_waiters();

  // Counts pending operations. The thread serves those that are pending while no rank waits.
  void count_pending(std::ptrdiff_t more) { pending_ += more; }
  void serve_pending();

  bool is_nobodys() const { return server_ == Server::NOBODY; }
  bool is_a_waiters() const { return server_ == Server::WAITER; }

  // ---- called by the thread
  bool is_the_threads() const { return server_ == Server::THREAD; }
  void end_turn_of_thread();  // hands its turn to a rank that waits
  // Sleeps until it is the thread's turn, or no rank has waited for a while.
  void rest(std::unique_lock<std::mutex>& lock);
  void stop();
  bool has_stopped() const { return has_stopped_; }
  void end_thread();  // the thread serves no more
  bool has_thread_ended() const { return has_thread_ended_; }

 private:
  enum class Server { THREAD, NOBODY, WAITER };

  Server server_ = Server::THREAD;
  std::condition_variable changed_;  // there is news for ranks that wait
  std::condition_variable called_;   // it is the thread's turn
  int waiting_ = 0;                  // number of ranks that wait
  bool was_served_ = false;          // a waiting rank has served since the thread looked last
  std::ptrdiff_t pending_ = 0;       // number of pending operations
  bool has_news_ = false;
  bool has_stopped_ = false;
  bool has_thread_ended_ = false;
};

}  // namespace lockstep::messages
