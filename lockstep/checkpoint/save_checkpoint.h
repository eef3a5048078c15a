// save_checkpoint: writes the state of a run so that the run can go on from it, whatever happens meanwhile.
//
//   dist::save_checkpoint("runs/7", state, {.step = 1200, .keep_last = 3});     // runs/7/step-000000001200
//
//   dist::save_checkpoint_async("runs/7", state, {.step = 1400});               // training goes on meanwhile
//   train_on();
//   dist::wait_for_checkpoint();                                    // optional: the end does it too
//
// Collective   every rank of the group, with the same names (checkpoint_state.h) and options; not by rank 0
//              alone. All ranks write: what all hold alike is written once, and each writes about the same
//              number of bytes. The folder is one that all ranks see.
// What counts  of tensors that all ranks hold alike, each part is that of the rank that writes it. That they
//              are alike is compared by the first and last bytes of each tensor. Buffers of modules, such as
//              BatchNorm's, are rank 0's; where a rank's differ, its own are saved beside them.
// Atomic       the folder gets its name last: whoever looks finds checkpoints that are complete. Before that
//              all files are synced to the disk (with `durable`), so a power cut leaves the old checkpoints
//              or the new one too. What an interrupted save left is named (log sink) and removed by the
//              next. Saving the same step again replaces that checkpoint in one step.
// Async        save_checkpoint_async() copies what may change into memory that is kept for the next save (of
//              this rank's share alone), returns, and a thread of low priority writes. It works over a group
//              of its own. It pauses three times as long as it writes, until somebody waits for it: a second
//              save, wait_for_checkpoint() or the end. A second save that comes too early waits for the
//              first, or is refused, as `when_busy` says. An error of the thread is thrown by the next save,
//              by wait_for_checkpoint() or by destroy_process_group(), on all ranks. Leaving main waits for
//              the thread.
// Files        safetensors, with an index in JSON (formats/checkpoint_index.h): Python reads them
//              (docs/checkpoints.md), `lockstep ckpt` lists and checks them.
// Returns      the checkpoint's path.
// Fails        on all ranks alike, and the group stays usable: training can go on. SystemError: no space, a
//              quota, a folder that cannot be written, another job that saves into the folder. Mismatch:
//              ranks add different items or hold different values of one tensor. InvalidArgument: a tensor
//              that cannot be saved, a negative step, a folder that some rank does not see, no member of the
//              group. Nothing is left of the checkpoint then, and the older ones are untouched.
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
  std::int64_t step = 0;              // its name; the newest checkpoint is the one of the highest step
  std::optional<int> keep_last = {};  // older checkpoints go after the save; default: none goes
  std::optional<std::int64_t> keep_every = {};     // but those whose step is a multiple of it
  std::vector<std::int64_t> keep_steps = {};       // and these: the best by a metric
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
  bool durable = true;                             // false: a power cut may lose it; saves the syncs
};

std::string save_checkpoint(const std::string& folder, CheckpointState& state,
                            const SaveCheckpointOptions& options = {});

enum class WhenBusy {
  WAIT,    // until the earlier save is done
  REFUSE,  // save_checkpoint_async() returns false on all ranks and does nothing
};

// False if it was refused.
bool save_checkpoint_async(const std::string& folder, CheckpointState& state,
                           const SaveCheckpointOptions& options = {}, WhenBusy when_busy = WhenBusy::WAIT);

// Whether a save is being written on this rank. Does not communicate, so ranks may see different answers.
bool is_saving_checkpoint();

// Until the save that save_checkpoint_async() began is complete; throws its error. Nothing if there is none.
void wait_for_checkpoint();

}  // namespace lockstep
