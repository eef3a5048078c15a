// Ways to call spawn(). tests/end_to_end/spawn_test.py starts it and looks at what comes out.
//
//   build/tests/end_to_end/spawn_program sum 3
#include "lockstep/job/spawn.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <stdexcept>
#include <string>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"

namespace dist = lockstep;
using namespace std::chrono_literals;

namespace {

void print_sum(const char* what) {
  dist::init_process_group();
  int sum = dist::get_rank() + 1;
  dist::comm::all_reduce(dist::world(), std::span(&sum, 1));
  std::printf("%s: rank %d of %d, sum %d\n", what, dist::get_rank(), dist::get_world_size(), sum);
}

// Rank 1 ends the group, and says why only when rank 0 has failed because of that.
void abort_then_throw(int rank) {
  int first = getpid();
  dist::comm::broadcast(dist::world(), std::span(&first, 1), 0);
  if (rank != 1) return dist::comm::barrier(dist::world()).wait();
  dist::world().abort("rank 1 is in trouble");
  while (::kill(first, 0) == 0) std::this_thread::sleep_for(1ms);
  throw std::runtime_error("the trouble of rank 1");
}

// What a rank does, by the name of the case.
void misbehave(const std::string& how, int rank) {
  dist::init_process_group();
  if (how == "throw" && rank == 1) throw dist::Mismatch("thrown on purpose");
  if (how == "throw_number" && rank == 1) throw 7;
  if (how == "kill" && rank == 2) std::raise(SIGKILL);
  if (how == "exit_3" && rank == 1) std::exit(3);
  if (how == "abort") abort_then_throw(rank);
  if (how == "hang") {
    std::printf("pid %d\n", getpid());
    for (;;) pause();
  }
  if (how == "ignore" && rank == 1) throw std::runtime_error("the other does not listen");
  if (how == "ignore") {
    std::signal(SIGTERM, SIG_IGN);
    for (;;) pause();
  }
  dist::comm::barrier(dist::world());
}

void two_in_a_row(int ranks) {
  dist::spawn(ranks, [](int) { print_sum("first"); });
  std::printf("main between\n");
  std::fflush(stdout);
  dist::spawn(ranks, [](int) { print_sum("second"); });
}

// The ranks wait for a byte from the named pipe.
void in_context(int ranks, const std::string& fifo) {
  dist::SpawnContext context = dist::spawn(ranks,
                                           [&](int rank) {
                                             std::ifstream(fifo).get();
                                             std::printf("rank %d was told\n", rank);
                                           },
                                           {.join = false});
  std::printf("started %zu, joined %d\n", context.pids().size(), static_cast<int>(context.join(0s)));
  for (int i = 0; i < ranks; ++i) std::ofstream(fifo) << std::string(1, '.');
  context.join();
  std::printf("joined %d\n", static_cast<int>(context.join(0s)));
}

void dropped(int ranks) {
  const dist::SpawnContext context =
      dist::spawn(ranks, [](int rank) { misbehave("hang", rank); }, {.join = false});
}

void nested(int ranks) {
  dist::spawn(ranks, [](int) { dist::spawn(1, [](int) {}); });
}

// In a replay, main takes another path.
void lost(int ranks, const std::string& how) {
  const bool is_replay = std::getenv("LOCKSTEP_SPAWN") != nullptr;
  if (how == "returns" && is_replay) return;
  if (how == "other" && is_replay) dist::spawn(ranks, [](int) { std::printf("the wrong function\n"); });
  if (how == "count" && is_replay) ++ranks;
  dist::spawn(ranks, [](int) {});
}

void run(const std::string& what, int ranks, const std::string& argument) {
  if (what == "sum") return static_cast<void>(dist::spawn(ranks, [&](int) { print_sum(argument.c_str()); }));
  if (what == "two") return two_in_a_row(ranks);
  if (what == "context") return in_context(ranks, argument);
  if (what == "dropped") return dropped(ranks);
  if (what == "nested") return nested(ranks);
  if (what == "lost") return lost(ranks, argument);
  dist::spawn(ranks, [&](int rank) { misbehave(what, rank); });
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  if (argc < 3) return 64;
  try {
    run(argv[1], std::atoi(argv[2]), argc > 3 ? argv[3] : "");
  } catch (const dist::SpawnError& error) {
    std::printf("rank %d failed, pid is its: %d: %s\n", error.rank(), static_cast<int>(error.pid() > 1),
                error.what());
    return 5;
  } catch (const dist::Error& error) {
    std::printf("%s\n", error.what());
    return 6;
  }
  std::printf("main goes on\n");
}
