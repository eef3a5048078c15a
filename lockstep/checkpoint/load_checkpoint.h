// load_checkpoint: puts a run back to where a checkpoint was taken.
//
//   if (const auto loaded = dist::load_checkpoint("runs/7", state, {.missing_ok = true}))
//     std::cout << "goes on after step " << loaded->step << '\n';
//
// Collective   every rank of the group, with the same names (checkpoint_state.h) and options. Any number of
//              ranks loads what any number saved.
// Which        the newest in the folder; `step` chooses another; the path of one checkpoint names it alone.
// Verified     before anything is changed: the ranks share the work of reading every byte once and comparing
//              checksums. A damaged checkpoint is passed over for the next older one, which is said through
//              the log sink and in LoadedCheckpoint::damaged; with `when_damaged` it is a FormatError.
// Names        of items and tensors must be those of the state, and shapes and dtypes too. All differences
//              are listed, with the nearest name, before anything is changed. With `strict` off, what is
//              missing keeps its value, what is left over is ignored, and dtypes are converted; shapes count
//              all the same.
// In place     modules and tensors are filled where they are, also under a DistributedDataParallel.
// Same bits    what the run did next, it does again: see docs/checkpoints.md for what has to be in the
//              state. What that depends on beside the state (libtorch, the instruction set, threads) is
//              compared with what it was; differences are in LoadedCheckpoint::notes and go to the log sink.
// Fails        on all ranks alike. InvalidArgument: names or shapes that do not fit, no checkpoint in the
//              folder (unless `missing_ok`). FormatError: damage. SystemError: files that cannot be read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/checkpoint_state.h"
#include "lockstep/comm/process_group.h"

namespace lockstep {

enum class WhenDamaged { TAKE_PREVIOUS, FAIL };

struct LoadCheckpointOptions {
  std::optional<std::int64_t> step = {};  // default: the newest
  bool missing_ok = false;                // no checkpoint yet: returns nullopt, and the state stays as it is
  bool strict = true;
  WhenDamaged when_damaged = WhenDamaged::TAKE_PREVIOUS;
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
};

struct LoadedCheckpoint {
  std::string path;
  std::int64_t step = 0;
  int saved_ranks = 1;
  std::vector<std::string> damaged;  // newer ones that were passed over, and why
  std::vector<std::string> notes;    // what could not be as it was
};

std::optional<LoadedCheckpoint> load_checkpoint(const std::string& folder, CheckpointState& state,
                                                const LoadCheckpointOptions& options = {});

}  // namespace lockstep
