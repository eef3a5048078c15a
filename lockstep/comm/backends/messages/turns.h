// Turns: whose turn it is to serve the connections of a fabric. A waiting rank serves them itself: its
// answer then needs no change between threads, which would cost more than the message. The fabric's thread
// serves what nobody waits for.
//
//   THREAD --a rank waits: end_turn_of_thread()--> NOBODY --begin_turn()--> WAITER --end_turn()--> NOBODY
//     ^                                              |
//     +--serve_pending(), or a rest() without ranks--+
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
  // A rank that waits, from its construction on. When it ends its wait and nobody serves, another one is
  // told.
  class Waiting {
   public:
    explicit Waiting(Turns& turns) : turns_(turns) { ++turns_.waiting_; }
    ~Waiting();
    Waiting(const Waiting&) = delete;
    Waiting& operator=(const Waiting&) = delete;

   private:
    Turns& turns_;
  };

  // True: it is the caller's turn, until end_turn(). False: somebody serves already.
  bool begin_turn();
  void end_turn();
  // Returns when there may be news, or it may be the caller's turn.
  void sleep(std::unique_lock<std::mutex>& lock, std::chrono::nanoseconds span);

  // An operation has ended, or there is something to help with: tell_waiters() wakes those that sleep. It
  // answers whether a rank that serves is to be woken too.
  void note_news() { has_news_ = true; }
  bool tell_waiters();

  // Of operations: those that are pending while nobody waits are the thread's.
  void count_pending(std::ptrdiff_t more) { pending_ += more; }
  void serve_pending();

  bool is_nobodys() const { return server_ == Server::NOBODY; }
  bool is_a_waiters() const { return server_ == Server::WAITER; }

  // ---- for the thread
  bool is_the_threads() const { return server_ == Server::THREAD; }
  void end_turn_of_thread();  // its turn goes to a rank that waits
  // Until it is the thread's turn, or nobody has waited for a while.
  void rest(std::unique_lock<std::mutex>& lock);
  void stop();
  bool has_stopped() const { return has_stopped_; }

 private:
  enum class Server { THREAD, NOBODY, WAITER };

  Server server_ = Server::THREAD;
  std::condition_variable changed_;  // there is news for ranks that wait
  std::condition_variable called_;   // it is the thread's turn
  int waiting_ = 0;                  // ranks
  bool was_served_ = false;          // by one of them, since the thread looked
  std::ptrdiff_t pending_ = 0;       // operations
  bool has_news_ = false;
  bool has_stopped_ = false;
};

}  // namespace lockstep::messages
