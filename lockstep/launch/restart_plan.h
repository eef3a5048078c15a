// restart_plan: whether a job whose ranks have all ended is started again. Pure.
//
//   how the attempt ended                                   what follows
//   all ranks with 0                                        DONE
//   all ranks with 0 or EXIT_REQUEUE                        DONE: the scheduler starts the job again
//   a rank failed, and fewer than --max-restarts were made  RESTART
//   a rank failed, and none is left                         GIVE_UP
//   the user or a signal stopped it, the time was over      GIVE_UP
//   the program cannot be run                               GIVE_UP: another start would end in the same way
//   a launcher of another machine was stopped or is gone    GIVE_UP: no launcher can start its ranks
//
// A program that fails in its first steps uses up its restarts, because the launcher does not judge a
// program's behaviour.
#pragma once

#include <string>

namespace lockstep {

// How the ranks of the job ended.
enum class AttemptEnd {
  SUCCEEDED,
  REQUEUE,        // some ended with EXIT_REQUEUE, the rest with 0
  RANK_FAILED,    // a rank of this or another machine
  STOPPED,        // by a signal to a launcher, or because the reader of the output is gone
  TIMED_OUT,      // LaunchSpec::time_limit
  NOT_STARTED,    // the program could not be run
  LAUNCHER_LOST,  // the launcher of another machine is gone or unreachable
};

enum class RestartStep { DONE, RESTART, GIVE_UP };

enum class RestartReason {
  ENDED_WELL,
  ASKED_FOR_REQUEUE,
  RANK_FAILED,        // the reason of each RESTART
  NO_RESTARTS_ASKED,  // --max-restarts 0
  RESTARTS_USED_UP,
  ASKED_TO_STOP,
  TIME_OVER,
  PROGRAM_CANNOT_RUN,
  LAUNCHER_LOST,
  ANOTHER_GAVE_UP,  // a launcher of another machine decided first (NodeLink::agree_on_restart)
  STORE_LOST,       // the launchers cannot decide together
};

struct RestartPlan {
  RestartStep step = RestartStep::DONE;
  RestartReason reason = RestartReason::ENDED_WELL;

  bool operator==(const RestartPlan&) const = default;
};

// `restarts` of `max_restarts` were made before this attempt.
RestartPlan restart_plan(AttemptEnd end, int restarts, int max_restarts);

// "a rank failed", for people.
std::string describe(RestartReason reason);

}  // namespace lockstep
