// save_checkpoint: writes the state of a run so that the run can resume from it, whatever happens meanwhile.
//
//   dist::save_checkpoint("runs/7", state, {.step = 1200, .keep_last = 3});     // runs/7/step-000000001200
//
//   dist::save_checkpoint_async("runs/7", state, {.step = 1400});               // training goes on meanwhile
//   train_on();
//   dist::wait_for_checkpoint();                                    // optional: the end does it too
//
// Collective   every rank of the group, with the same names (checkpoint_state.h) and options, not rank 0
//              alone. All ranks write: data that are equal on all ranks are written once, and each rank
//              writes about the same number of bytes. All ranks must see the folder.
// What counts  If a tensor is equal on all ranks, each part of it comes from the rank that writes it. To
//              verify that the tensors are equal, the first and last bytes of each are compared. Buffers of
//              modules, such as BatchNorm's, are rank 0's. If a rank's differ, its own are saved beside them.
// Atomic       The folder gets its name last, so every visible checkpoint is complete. Before that all files
//              are synced to the disk (with `durable`). So a power failure leaves the old checkpoints, and
//              perhaps the new one. Remains of an interrupted save are named in the log sink, and removed by
//              the next save. Saving the same step again replaces that checkpoint in one step.
// Async        save_checkpoint_async() copies the data that may change (this rank's share alone) into memory
//              that is kept for the next save. Then it returns, and a thread of low priority writes. The
//              thread has a group of its own. It pauses three times as long as it writes, until the program
//              waits for it: in a second save, in wait_for_checkpoint() or at the end. A second save that
//              comes too early waits for the first, or is refused, as `when_busy` says. An error of the
//              thread is thrown by the next save, by wait_for_checkpoint() or by destroy_process_group(), on
//              all ranks. Leaving main waits for the thread.
// Files        safetensors, with an index in JSON (formats/checkpoint_index.h). Python reads them
//              (docs/checkpoints.md), and `lockstep ckpt` lists and checks them.
// Returns      the checkpoint's path.
// Fails        on all ranks alike, and the group stays usable, so training can go on. SystemError: no space,
//              a quota, a folder that cannot be written, another job that saves into the folder. Mismatch:
//              ranks add different items or hold different values of one tensor. InvalidArgument: a tensor
//              that cannot be saved, a negative step, a folder that some rank does not see, a process outside
//              of the group. Nothing is left of the checkpoint then, and the older ones are untouched.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

struct SaveCheckpointOptions {
  std::int64_t step = 0;  // its name; the newest checkpoint is the one of the highest step
  // keeps so many checkpoints and removes older ones after the save; default: removes none
  std::optional<int> keep_last = {};
  std::optional<std::int64_t> keep_every = {};     // but keeps those whose step is a multiple of it
  std::vector<std::int64_t> keep_steps = {};       // and keeps these, such as the best by a metric
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
  // false: a power failure may lose it; saves the time of the syncs
  bool durable = true;
};

std::string save_checkpoint(const std::string& folder, CheckpointState& state,
                            const SaveCheckpointOptions& options = {});

enum class WhenBusy {
  WAIT,    // until the earlier save is done
  REFUSE,  // save_checkpoint_async() returns false on all ranks and does nothing
};

// Returns false if it was refused.
bool save_checkpoint_async(const std::string& folder, CheckpointState& state,
                           const SaveCheckpointOptions& options = {}, WhenBusy when_busy = WhenBusy::WAIT);

// Whether this rank is writing a save. It does not communicate, so ranks may get different answers.
bool is_saving_checkpoint();

// Waits until the save that save_checkpoint_async() began is complete. Throws its error. Does nothing if
// there is none.
void wait_for_checkpoint();

}  // namespace lockstep
