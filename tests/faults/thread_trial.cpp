// A job whose ranks are threads of one process, for threads_test.py: one of them throws at a fail point,
// unwinds and leaves.
//
//   LOCKSTEP_FAIL_POINT=comm.claimed_slice@0+17=throw RANK=0 thread_trial STEPS
//
// The first thread that gets there (the eighteenth time) is the victim.
// Fail points trial.construct, trial.between_steps, besides those of the library.
// Prints      per rank a line "RANK done", "RANK victim NANOSECONDS MESSAGE" or "RANK TYPE PEER NANOSECONDS
//             MESSAGE"; the times are of the monotonic clock, TYPE is PeerLost or Aborted.
#include <chrono>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/fail_point.h"
#include "lockstep/base/str.h"
#include "lockstep/comm/backends/shared/thread_backend.h"
#include "lockstep/comm/collectives/collectives.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

constexpr int RANKS = 4;

long long now() {
  return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Rank {
 public:
  explicit Rank(ProcessGroup group) : group_(std::move(group)) {
    for (const std::size_t count : {100UL, 40000UL, 300000UL, 7UL}) buckets_.emplace_back(count);
  }

  // What became of this rank.
  std::string run(int steps) {
    try {
      train(steps);
      return "done";
    } catch (const PeerLost& error) {
      return str("PeerLost ", error.peer(), " ", now(), " ", error.what());
    } catch (const InternalError& error) {
      const long long when = now();
      group_.close();
      return str("victim ", when, " ", error.what());
    } catch (const Error& error) {
      const char* type = error.code() == ErrorCode::ABORTED ? "Aborted" : "Error";
      return str(type, " -1 ", now(), " ", error.what());
    }
  }

 private:
  void train(int steps) {
    for (const std::size_t count : {10UL, 5000UL, 300000UL}) {
      std::vector<float> parameters(count, static_cast<float>(group_.rank()));
      fail_point("trial.construct");
      comm::broadcast(group_, std::span(parameters), 0);
    }
    for (int step = 0; step < steps; ++step) {
      std::vector<Work> works;
      for (auto& bucket : buckets_)
        works.push_back(comm::all_reduce(group_, std::span(bucket), ReduceOp::AVG, /*async_op=*/true));
      for (Work& work : works) work.wait();
      if (step % 3 == 0) comm::barrier(group_);
      fail_point("trial.between_steps");
    }
    comm::barrier(group_);
  }

  ProcessGroup group_;
  std::vector<std::vector<float>> buckets_;
};

}  // namespace

int main(int, char** argv) {
  const int steps = std::stoi(argv[1]);
  std::vector<std::string> results(RANKS);
  std::vector<Rank> ranks;
  for (const ProcessGroup& group : make_thread_groups(RANKS)) ranks.emplace_back(group);
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < RANKS; ++r)
      threads.emplace_back([&, r] { results[r] = ranks[r].run(steps); });
  }
  for (std::size_t r = 0; r < RANKS; ++r) std::printf("%zu %s\n", r, results[r].c_str());
}
