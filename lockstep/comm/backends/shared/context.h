// Context gives the operations of a shared-memory group access to the group's memory, its collective numbers
// and its failure.
//
//   context.sequencer()   the numbers of collectives        context.stage()     blocks for private data
//   context.mailbox()     messages                          context.recorder()  this rank's calls, and when
//
// The engine (shared/engine.h) owns the Context. It decides which operation runs when
// (shared/pending_operations.h).
//
// Threads: the lock of the group's operations, where nothing else is said.
#pragma once

#include <string>

#include "lockstep/comm/backends/segment/layout.h"
#include "lockstep/comm/backends/shared/diagnosis.h"
#include "lockstep/comm/backends/shared/failure_record.h"
#include "lockstep/comm/backends/shared/mailbox.h"
#include "lockstep/comm/backends/shared/membership.h"
#include "lockstep/comm/backends/shared/own_presence.h"
#include "lockstep/comm/backends/shared/sequencer.h"
#include "lockstep/comm/backends/shared/stage.h"
#include "lockstep/comm/trace/flight_recorder.h"

namespace lockstep::shared {

class Context {
 public:
  explicit Context(Membership membership);
  Context(const Context&) = delete;
  Context& operator=(const Context&) = delete;

  // ---- facts; any thread
  const Membership& membership() const { return membership_; }
  int rank() const { return membership_.rank; }
  int size() const { return membership_.size; }
  const Control& control() const { return control_; }
  const PathTable& paths() const { return control_.header().paths; }
  Arena& arena() const { return membership_.own->arena; }
  // LOCKSTEP_DEBUG: check whether the program writes to a buffer while an operation on it is in flight.
  bool debugs() const { return debugs_; }
  Diagnosis diagnosis() const { return {membership_, control_}; }

  // ---- parts
  Sequencer& sequencer() { return sequencer_; }
  Stage& stage() { return stage_; }
  Mailbox& mailbox() { return mailbox_; }
  FlightRecorder& recorder() { return recorder_; }

  // ---- whether the group can be used
  // Whether this process may read the group's memory: it has not left the group and is not a fork.
  bool is_member() const { return presence_.is_member(); }
  bool failed() const { return presence_.state() != OwnPresence::State::GONE && failure_.is_set(); }
  // True for a member of a group that has not failed. It costs one load each, for the hot paths.
  // throw_unusable() reports the reason.
  bool usable() const { return is_member() && !failed(); }
  // Throws the recorded failure, or Aborted. `what` is the call that cannot be made ("all_reduce #118").
  [[noreturn]] void throw_unusable(const std::string& what) const;
  // Records the group's first failure; does not throw. Does nothing once this rank no longer looks at the
  // group's memory.
  void record_failure(const GroupFailure& failure);

  // ---- leaving
  // This rank takes part in nothing more. The caller has given up all operations.
  void leave();
  // Called at the begin and end of each wait.
  void begin_wait() { presence_.begin_wait(); }
  void end_wait();

 private:
  void go_if_possible();

  const Membership membership_;
  const Control control_;
  const bool debugs_;
  const FailureRecord failure_;
  OwnPresence presence_;
  Sequencer sequencer_;
  Stage stage_;
  Mailbox mailbox_;
  mutable FlightRecorder recorder_;  // mutable: taking notes does not change the group
};

}  // namespace lockstep::shared
