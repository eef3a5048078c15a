#include "lockstep/launch/restart_plan.h"

namespace lockstep {

RestartPlan restart_plan(AttemptEnd end, int restarts, int max_restarts) {
  switch (end) {
    case AttemptEnd::SUCCEEDED: return {RestartStep::DONE, RestartReason::ENDED_WELL};
    case AttemptEnd::REQUEUE: return {RestartStep::DONE, RestartReason::ASKED_FOR_REQUEUE};
    case AttemptEnd::STOPPED: return {RestartStep::GIVE_UP, RestartReason::ASKED_TO_STOP};
    case AttemptEnd::TIMED_OUT: return {RestartStep::GIVE_UP, RestartReason::TIME_OVER};
    case AttemptEnd::NOT_STARTED: return {RestartStep::GIVE_UP, RestartReason::PROGRAM_CANNOT_RUN};
    case AttemptEnd::LAUNCHER_LOST: return {RestartStep::GIVE_UP, RestartReason::LAUNCHER_LOST};
    case AttemptEnd::RANK_FAILED: break;
  }
  if (restarts < max_restarts) return {RestartStep::RESTART, RestartReason::RANK_FAILED};
  return {RestartStep::GIVE_UP,
          max_restarts == 0 ? RestartReason::NO_RESTARTS_ASKED : RestartReason::RESTARTS_USED_UP};
}

std::string describe(RestartReason reason) {
  switch (reason) {
    case RestartReason::ENDED_WELL: return "all ranks have ended well";
    case RestartReason::ASKED_FOR_REQUEUE: return "the job asked to be started again";
    case RestartReason::RANK_FAILED: return "a rank failed";
    case RestartReason::NO_RESTARTS_ASKED: return "no restarts were asked for";
    case RestartReason::RESTARTS_USED_UP: return "all restarts are used up";
    case RestartReason::ASKED_TO_STOP: return "the job was asked to stop";
    case RestartReason::TIME_OVER: return "the time limit was reached";
    case RestartReason::PROGRAM_CANNOT_RUN: return "the program cannot be run";
    case RestartReason::LAUNCHER_LOST: return "the launcher of another machine has ended";
    case RestartReason::ANOTHER_GAVE_UP:
      return "the launcher of another machine does not start its ranks again";
    case RestartReason::STORE_LOST: return "the store that the launchers of all machines share is lost";
  }
  return "";
}

}  // namespace lockstep
