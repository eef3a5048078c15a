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
  try {
    return supervisor.run();
  } catch (const SpawnError& error) {
    throw program_error(spec.command[0], error.error_number());
  }
}

}  // namespace lockstep
