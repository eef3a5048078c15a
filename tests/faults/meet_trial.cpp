// One rank of a job that only meets and makes one barrier, for pause_test.py and meet_test.py to stop and
// mistreat.
//
//   meet_trial [HOW@RANK] [INIT_METHOD]
//
// HOW         before it meets the others, RANK does what is said: computes until this process has been
//             stopped for 2 s, and a little longer; is killed; ends with exit code 3, or well; or sleeps for
//             ever.
// Prints      "here PID" before it meets the others; then "done", or "error TYPE MESSAGE"; exit codes 0 and
//             3.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"
#include "lockstep/os/process.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

void compute_over_a_pause() {
  using Clock = std::chrono::steady_clock;
  for (auto last = Clock::now();;) {
    const auto now = Clock::now();
    if (now - last > std::chrono::seconds(2)) break;
    last = now;
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

void behave(const std::string& how) {
  if (how == "compute") compute_over_a_pause();
  if (how == "killed") std::raise(SIGKILL);
  if (how == "exit3") std::exit(3);
  if (how == "exit0") std::exit(0);
  if (how == "sleep") std::this_thread::sleep_for(std::chrono::hours(1));
}

const char* type_of(const Error& error) {
  switch (error.code()) {
    case ErrorCode::TIMEOUT: return "Timeout";
    case ErrorCode::PEER_LOST: return "PeerLost";
    default: return "other";
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::printf("here %d\n", static_cast<int>(current_pid()));
  std::fflush(stdout);
  const std::string behaviour = argc > 1 ? argv[1] : "";
  const auto at = behaviour.find('@');
  InitOptions options;
  if (argc > 2) options.init_method = argv[2];
  const JobEnvironment place = job_environment();
  if (options.init_method.starts_with("file:")) {
    options.rank = place.rank;
    options.world_size = place.world_size;
  }
  if (at != std::string::npos && std::stoi(behaviour.substr(at + 1)) == place.rank)
    behave(behaviour.substr(0, at));
  try {
    init_process_group("auto", options);
    comm::barrier(world()).wait();
    destroy_process_group();
  } catch (const Error& error) {
    std::printf("error %s %s\n", type_of(error), error.what());
    return 3;
  }
  std::puts("done");
  return 0;
}
