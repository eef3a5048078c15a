#include "lockstep/launch/guardian.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <string>

#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/launch/attempts.h"
#include "lockstep/launch/console.h"
#include "lockstep/launch/keyboard.h"
#include "lockstep/os/descendants.h"
#include "lockstep/os/open_files.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/process.h"
#include "lockstep/os/signal_queue.h"
#include "lockstep/os/terminal.h"

namespace lockstep {
namespace {

constexpr std::chrono::seconds KILL_LIMIT{10};
constexpr std::chrono::milliseconds STORE_TICK{200};
constexpr std::chrono::seconds OTHERS_HEAR_OF_FAILURE{3};

int run_guardian(PreparedJob& job, const GuardianEnds& ends) {
  try {
    leave_process_group();
    name_process("lockstep-guard");
    adopt_orphans();
    raise_open_files();
    fail_point("launch.guardian");
    SignalQueue signals({SIGCHLD}, {});
    Console console(job.spec.prefix, job.spec.place.first_rank);
    return run_attempts(job, ends, signals, console);
  } catch (...) {
    return EXIT_INTERNAL;
  }
}

class Front {
 public:
  Front(SignalQueue& signals, Fd control, Keyboard keyboard)
      : signals_(signals), control_(std::move(control)), keyboard_(std::move(keyboard)) {}

  // Waits for the guardian to end. `store` is the process that serves the store, 0 if another node has it. If
  // it ends early, the front reports that; the guardian's watcher notices too, and stops the job.
  ExitStatus wait_for(pid_t guardian, pid_t store) {
    for (bool is_served = store > 0;;) {
      PollSet wait;
      wait.want_read(signals_.descriptor());
      keyboard_.add_to(wait);
      wait.run(Deadline::never());
      keyboard_.carry(wait);
      while (const auto signal = signals_.next()) {
        if (signal->number != SIGCHLD) pass_on(signal->number);
      }
      if (is_served && has_ended(store)) is_served = note_end_of_store(store);
      if (const auto status = poll_exit(guardian)) return *status;
      reap_children(std::array{guardian, store});  // as process 1 of a container, this one gets all orphans
    }
  }

  // Waits until the process that serves the store has ended, a signal asks to stop, or the deadline passes.
  void wait_for_store(pid_t server, Deadline deadline) {
    while (!poll_exit(server) && !deadline.expired()) {
      PollSet wait;
      wait.want_read(signals_.descriptor());
      wait.run(Deadline::in(std::min<std::chrono::nanoseconds>(deadline.remaining(), STORE_TICK)));
      while (const auto signal = signals_.next()) {
        if (signal->number != SIGCHLD && signal->number != SIGCONT) return;
      }
    }
  }

 private:
  // Returns false: the store is no longer served.
  static bool note_end_of_store(pid_t store) {
    const ExitStatus status = wait_exit(store);
    if (!status.success())
      write_available(STANDARD_ERROR,
                      str("lockstep: the process that serves the job's store ended too early: ",
                          describe(status), "; the job cannot go on without it\n"));
    return false;
  }

  void pass_on(int signal) {
    const char byte = static_cast<char>(signal);
    write_available(control_.get(), std::string_view(&byte, 1));
    if (signal == SIGTSTP)
      // Ctrl-Z: the ranks are stopped, and now the shell expects the front to stop.
      signal_process(current_pid(), SIGSTOP);
  }

  SignalQueue& signals_;
  Fd control_;
  Keyboard keyboard_;
};

}  // namespace

int run_guarded(PreparedJob job) {
  SignalQueue signals({SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGTSTP, SIGCONT, SIGCHLD},
                      {SIGPIPE, SIGTTIN, SIGTTOU});
  adopt_orphans();
  Pipe control = make_pipe();
  set_nonblocking(control.read.get());
  set_nonblocking(control.write.get());
  Pipe keys;
  GuardianEnds ends{control.read.get(), STANDARD_INPUT, signals.previous_mask()};
  if (is_terminal(STANDARD_INPUT)) {
    keys = make_pipe();
    ends.standard_input = keys.read.get();
  }
  const pid_t guardian = fork_child([&] {
    control.write.reset();
    keys.write.reset();
    return run_guardian(job, ends);
  });
  control.read.reset();
  keys.read.reset();
  job.stores = {};
  fail_point("launch.front");
  Front front(signals, std::move(control.write), Keyboard(STANDARD_INPUT, std::move(keys.write)));
  const ExitStatus status = front.wait_for(guardian, job.store_server);
  if (job.store_server > 0) {
    front.wait_for_store(job.store_server,
                         status.success() ? Deadline::never() : Deadline::in(OTHERS_HEAR_OF_FAILURE));
  }
  const auto left = kill_all_children({}, KILL_LIMIT);
  if (status.signal != 0) {
    write_available(STANDARD_ERROR, str("lockstep: the launcher's guardian process was ", describe(status),
                                        "; all ranks were killed\n"));
  }
  if (!left.empty())
    write_available(STANDARD_ERROR, str("lockstep: the kernel does not end process ", left[0], "\n"));
  return status.shell_code();
}

}  // namespace lockstep
