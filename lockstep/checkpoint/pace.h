// Pace: slows down a save in the background. It pauses three times as long as it works. So the save takes
// little from the training: memory bandwidth, the kernel's own writing of pages, a core if none is idle. Once
// the program waits for the save, there are no more pauses.
//
//   Pace pace;
//   pace.begin();
//   pace.resume();
//   write_portion();
//   pace.pause();                  // as long as what lies behind asks for
//   pace.hurry();                  // of another thread: ends the pause, and there are no more
//
// Threads: the writer calls resume() and pause(); any thread may call the others.
#pragma once

#include <chrono>
#include <condition_variable>
#include <mutex>

namespace lockstep {

class Pace {
 public:
  void begin();   // called before the thread of a save starts: the program does not wait for it yet
  void resume();  // work begins now
  // Returns false if hurry() ended the pause early or prevented it.
  bool pause();
  void hurry();

 private:
  std::mutex mutex_;
  std::condition_variable hurried_;
  bool is_hurried_ = false;                             // guarded by mutex_
  std::chrono::steady_clock::time_point worked_since_;  // used by the writer only
};

}  // namespace lockstep
