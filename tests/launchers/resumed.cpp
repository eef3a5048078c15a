// A training program in small, for restart_test.py and requeue_test.py: counts to a number with its ranks, a
// step at a time, keeps the count in a file, and goes on from there when it is started again.
//
//   resumed FOLDER STEPS [MICROSECONDS]     a step takes that long
//
// FOLDER/count    the steps that are done; written by rank 0 under another name and renamed
// FOLDER/starts   a line for each start of a rank: its number, the restarts so far, its process, and when
// main() began FOLDER/steps    a line for each step that is done: the restarts so far, and when FOLDER/ends
// a line for each time that the ranks were asked to stop: the signal and the step
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"
#include "lockstep/job/stop_signals.h"

namespace {

namespace dist = lockstep;
using Clock = std::chrono::steady_clock;

// One write, so that lines of several ranks do not mix.
void add_line(const std::filesystem::path& file, const std::string& line) {
  std::ofstream(file, std::ios::app) << line + "\n" << std::flush;
}

long load(const std::filesystem::path& folder) {
  long count = 0;
  std::ifstream(folder / "count") >> count;
  return count;
}

void save(const std::filesystem::path& folder, long count) {
  std::ofstream(folder / "count.new") << count << std::flush;
  std::filesystem::rename(folder / "count.new", folder / "count");
}

long nanoseconds_of(Clock::time_point time) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count();
}

void compute(std::chrono::microseconds time) {
  for (const auto end = Clock::now() + time; Clock::now() < end;) {
  }
}

struct Task {
  std::filesystem::path folder;
  long steps = 0;
  std::chrono::microseconds step_time{0};
};

// A step adds the ranks' shares up; every rank checks the sum.
void run_step(long step) {
  const long size = dist::get_world_size();
  long sum = step * size + dist::get_rank();
  dist::comm::all_reduce(dist::world(), std::span(&sum, 1));
  if (sum != step * size * size + size * (size - 1) / 2)
    throw dist::InternalError(dist::str("step ", step, " gave ", sum));
}

int run(const Task& task) {
  dist::StopSignals stop({SIGTERM, SIGUSR1});
  dist::init_process_group();
  long count = dist::get_rank() == 0 ? load(task.folder) : 0;
  dist::comm::broadcast(dist::world(), std::span(&count, 1), 0);
  const long first = count;
  while (count < task.steps) {
    compute(task.step_time);
    run_step(count++);
    if (dist::get_rank() == 0) {
      save(task.folder, count);
      add_line(task.folder / "steps", dist::str(dist::restart_count(), ' ', nanoseconds_of(Clock::now())));
    }
    if (const auto request = stop.requested_on_any_rank()) {
      if (dist::get_rank() == 0) add_line(task.folder / "ends", dist::str(request->signal, ' ', count));
      dist::comm::barrier(dist::world());
      return dist::EXIT_REQUEUE;
    }
  }
  std::printf("rank %d of %d counted from %ld to %ld after %d restarts\n", dist::get_rank(),
              dist::get_world_size(), first, count, dist::restart_count());
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const auto began = Clock::now();
  const std::span words(argv, static_cast<std::size_t>(argc));
  if (words.size() < 3) return 64;
  Task task{words[1], std::stol(words[2]), {}};
  if (words.size() > 3) task.step_time = std::chrono::microseconds(std::stol(words[3]));
  const char* const rank = std::getenv("RANK");  // NOLINT(concurrency-mt-unsafe): there is one thread
  add_line(task.folder / "starts", dist::str(rank != nullptr ? rank : "?", ' ', dist::restart_count(), ' ',
                                             ::getpid(), ' ', nanoseconds_of(began)));
  try {
    return run(task);
  } catch (const dist::Error& error) {
    std::printf("error: %s\n", error.what());
    return 1;
  }
}
