// Pace: how fast a save in the background goes. It pauses three times as long as it works, so that what it
// takes from the training (memory bandwidth, the kernel's own writing of pages, a core where none is idle)
// stays small. When somebody waits for it, it pauses no more.
//
//   Pace pace;
//   pace.begin();
//   pace.resume();
//   write_portion();
//   pace.pause();                  // as long as what lies behind asks for
//   pace.hurry();                  // of another thread: ends the pause, and there are no more
//
// Threads: resume() and pause() are the writer's, the others any thread's.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace lockstep {

class Pace {
 public:
  void begin();   // of a save, before its thread: nobody waits for it yet
  void resume();  // work begins now
  // False: it was hurried, so it ended early or did not begin.
  bool pause();
  void hurry();

 private:
  std::mutex mutex_;
  std::condition_variable hurried_;
  bool is_hurried_ = false;                             // guarded by mutex_
  std::chrono::steady_clock::time_point worked_since_;  // the writer's own
};

}  // namespace lockstep
