// AsyncSave: the save that runs while the program trains, and the memory that it copies into.
//
//   IDLE ──begin()──▶ WRITING ──▶ DONE or FAILED ──take()──▶ IDLE
//
// copy() copies this rank's pieces, and begin() starts a thread. The thread has a group of its own, so its
// collectives do not meet those of the training. One per process; used by this room only.
//
// Threads: the training thread and its own.
#pragma once

#include <ATen/core/Tensor.h>

#include <exception>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "lockstep/checkpoint/checkpoint_ranks.h"
#include "lockstep/checkpoint/pace.h"
#include "lockstep/checkpoint/prepared_save.h"

namespace lockstep {

class AsyncSave {
 public:
  static AsyncSave& of_this_process();

  bool is_writing() const;
  // Waits for the thread. Throws the thread's error, once.
  void take();
  // Copies the data of the save into the kept memory. Not while the thread writes.
  void copy(PreparedSave& save);
  // Lets the thread write the save. `ranks` are those of the thread.
  void begin(CheckpointRanks ranks, PreparedSave save);

 private:
  enum class Stage { IDLE, WRITING, DONE, FAILED };

  void write(const CheckpointRanks& ranks, const PreparedSave& save) noexcept;

  mutable std::mutex mutex_;
  Stage stage_ = Stage::IDLE;   // guarded by mutex_
  std::exception_ptr failure_;  // guarded by mutex_
  std::thread thread_;
  Pace pace_;          // pace of the thread, until the program waits for it
  at::Tensor memory_;  // kept from save to save
};

}  // namespace lockstep
