#include "lockstep/job/unaveraged_steps.h"

#include <atomic>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/check.h"
#include "lockstep/job/job.h"

namespace lockstep {
namespace {

void say(const std::string& what) {
  static std::atomic<bool> said = false;
  if (said.load(std::memory_order_relaxed) || comm::program_has_communicated()) return;
  if (!is_initialized() || world().size() == 1 || said.exchange(true)) return;
  log(LogLevel::WARNING, str("rank ", get_rank(), " of ", get_world_size(), ": ", what,
                             ", and nothing was averaged over the ranks: each of them trains a model of its "
                             "own. Wrap the model in "
                             "DistributedDataParallel and call its forward. If you average gradients "
                             "yourself, this warning does not come"));
}

}  // namespace

void note_step(std::string_view optimizer) {
  static std::atomic<std::int64_t> steps = 0;
  if (++steps >= STEPS_TO_SAY) say(str(optimizer, " has taken ", STEPS_TO_SAY, " steps"));
}

void note_shuffled_epoch(bool recorded_graphs) {
  if (recorded_graphs) say("the first epoch over a shuffling DistributedSampler has ended, with autograd on");
}

}  // namespace lockstep
