// One rank of a job without libtorch in which one goes wrong, for first_cause_test.py: most programs catch
// their errors in main.
//
//   blame_trial HOW@RANK [SLOW]
//   blame_trial sum                print a sum over all ranks
//   blame_trial spawn              the same in two processes that this one starts
//
// HOW         at step 3, RANK throws (throw), returns 0 (return), stops (stop), is killed (kill), aborts the
//             group (abort).
// SLOW        milliseconds for which RANK's end takes longer than the others'.
// Exit codes  0; 1 after any exception, whose text is printed.
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/job.h"
#include "lockstep/job/spawn.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

constexpr int STEPS = 1000;
constexpr int STEP = 3;

// True: return from main.
bool go_wrong(const std::string& how) {
  if (how == "throw") throw std::runtime_error("the file of rank " + std::to_string(get_rank()) + " is gone");
  if (how == "stop") std::raise(SIGSTOP);
  if (how == "kill") std::raise(SIGKILL);
  if (how == "abort") world().abort("rank " + std::to_string(get_rank()) + " had enough");
  return how == "return";
}

void train(const std::string& how, int rank) {
  init_process_group();
  std::vector<float> data(1000, 1.0F);
  for (int step = 0; step < STEPS; ++step) {
    if (step == STEP && get_rank() == rank && go_wrong(how)) return;
    comm::all_reduce(world(), std::span<float>(data), ReduceOp::AVG);
  }
}

void print_sum() {
  init_process_group();
  std::vector<float> sum = {static_cast<float>(get_rank() + 1)};
  comm::all_reduce(world(), std::span<float>(sum));
  std::printf("rank %d of %d over %s: sum %g\n", get_rank(), get_world_size(), get_backend().c_str(),
              static_cast<double>(sum[0]));
  destroy_process_group();
}

int run(const std::string& what) {
  try {
    if (what == "sum") print_sum();
    if (what == "spawn") spawn(2, [](int /*rank*/) { print_sum(); });
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    return 1;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "sum" || what == "spawn") return run(what);
  const auto at = what.find('@');
  const int rank = at == std::string::npos ? -1 : std::atoi(what.c_str() + at + 1);
  const char* const own_rank = std::getenv("RANK");
  const bool is_me = own_rank != nullptr && std::to_string(rank) == own_rank;
  int code = 0;
  try {
    train(what.substr(0, at), rank);
  } catch (const std::exception& error) {
    std::printf("%s\n", error.what());
    code = 1;
  }
  if (argc > 2 && is_me) {
    if (is_initialized()) destroy_process_group();
    std::this_thread::sleep_for(std::chrono::milliseconds(std::atoi(argv[2])));
  }
  return code;
}
