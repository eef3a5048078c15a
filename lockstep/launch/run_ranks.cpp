#include "lockstep/launch/run_ranks.h"

#include <csignal>

#include "lockstep/launch/prepare.h"
#include "lockstep/launch/supervisor.h"
#include "lockstep/os/descendants.h"
#include "lockstep/os/signal_queue.h"

namespace lockstep {

RunResult run_ranks(const LaunchSpec& spec) {
  PreparedJob job = prepare_job(spec);
  adopt_orphans();
  SignalQueue signals({SIGCHLD}, {SIGPIPE});
  Supervisor supervisor({job.spec, job.plan, signals, signals.previous_mask(), nullptr,
                         job.logs ? &*job.logs : nullptr, -1, -1});
  RunResult result = supervisor.run();
  if (result.start_error != 0) throw program_error(spec.command[0], result.start_error);
  return result;
}

}  // namespace lockstep
