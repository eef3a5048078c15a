// load_checkpoint: restores the state that a run had when a checkpoint was taken.
//
//   if (const auto loaded = dist::load_checkpoint("runs/7", state, {.missing_ok = true}))
//     std::cout << "goes on after step " << loaded->step << '\n';
//
// Collective   every rank of the group, with the same names (checkpoint_state.h) and options. Any number of
//              ranks can load a checkpoint, whatever number saved it.
// Which        the newest in the folder; `step` chooses another. If the path is one checkpoint, it is that
//              one.
// Verified     before anything is changed: the ranks share the work of reading every byte once and comparing
//              checksums. A damaged checkpoint is skipped for the next older one. The log sink and
//              LoadedCheckpoint::damaged say so. With `when_damaged` it is a FormatError instead.
// Names        of items and tensors must be those of the state, and shapes and dtypes too. All differences
//              are listed, with the nearest name, before anything is changed. With `strict` off, a missing
//              item keeps its value, a superfluous one is ignored, and dtypes are converted; shapes must
//              still agree.
// In place     Modules and tensors are filled in their memory, also under a DistributedDataParallel.
// Same bits    The resumed run repeats what the first run did after the checkpoint. docs/checkpoints.md says
//              what the state must contain for that. Other conditions (libtorch, the instruction set,
//              threads) are compared with those of the save. LoadedCheckpoint::notes and the log sink have
//              the differences.
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
  // if there is no checkpoint yet, returns nullopt, and the state stays as it is
  bool missing_ok = false;
  bool strict = true;
  WhenDamaged when_damaged = WhenDamaged::TAKE_PREVIOUS;
  std::optional<ProcessGroup> process_group = {};  // default: world(), or this process alone
};

struct LoadedCheckpoint {
  std::string path;
  std::int64_t step = 0;
  int saved_ranks = 1;
  std::vector<std::string> damaged;  // newer checkpoints that were skipped, and why
  std::vector<std::string> notes;    // what could not be restored as it was
};

std::optional<LoadedCheckpoint> load_checkpoint(const std::string& folder, CheckpointState& state,
                                                const LoadCheckpointOptions& options = {});

}  // namespace lockstep
