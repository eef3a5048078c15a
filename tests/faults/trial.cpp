// One rank of a job without libtorch that goes through the phases of training, for peers_test.py to kill,
// stop and mistreat.
//
//   trial STAMPS STEPS [large=N] [HOW@RANK+STEP]
//
// Phases      init; construction (parameters are broadcast); steps (several all_reduces in flight, then one
//             by one, a barrier every third step, a message to the next rank); saving (rank 0 writes a file,
//             the others wait for it); teardown. Each is announced by a line "phase NAME".
// Fail points trial.construct, trial.between_steps, trial.saving, trial.last_barrier, besides those of the
// library.
// large=N     each of the first N steps sends the next rank a message of 17 MiB, too, through a ring if the
//             receiver comes in time.
// HOW         at STEP, RANK ends by segv, abort, throw (uncaught), exit, quick_exit, immediately (_Exit(0))
//             or return.
// STAMPS      a file of one 64-bit number per rank: the monotonic clock, in ns, before whatever that rank did
//             last.
// Prints      "done CHECKSUM", or "error TIME TYPE PEER MESSAGE" when another rank is lost; exit codes 0 and
//             3.
#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <limits>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "lockstep/base/fail_point.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/formats/checksum.h"
#include "tests/faults/trial.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)
using trial::Stamp;

struct Ending {
  std::string how;
  int rank = -1;
  int step = -1;
};

Ending parse(const std::string& text) {  // HOW@RANK+STEP
  const auto at = text.find('@');
  const auto plus = text.find('+');
  return {text.substr(0, at), std::stoi(text.substr(at + 1)), std::stoi(text.substr(plus + 1))};
}

// True: return from main.
bool end_by(const std::string& how) {
  if (how == "segv") std::raise(SIGSEGV);
  if (how == "abort") std::abort();
  if (how == "exit") std::exit(0);
  if (how == "quick_exit") std::quick_exit(0);
  if (how == "immediately") std::_Exit(0);
  return how == "return";
}

class Trial {
 public:
  Trial(const Stamp& stamp, Ending ending, int large_steps)
      : stamp_(stamp), ending_(std::move(ending)), large_steps_(large_steps) {}

  // False when the rank is to return from main.
  bool run(int steps) {
    stamp_.phase("init");
    init_process_group();
    stamp_.phase("construction");
    construct();
    stamp_.phase("steps");
    for (int step = 0; step < steps; ++step) {
      if (!train(step)) return false;
    }
    stamp_.phase("saving");
    save();
    stamp_.phase("teardown");
    fail_point("trial.last_barrier");
    comm::barrier(world());
    destroy_process_group();
    std::printf("done %s\n", checksum_.text().c_str());
    return true;
  }

 private:
  void construct() {
    for (const std::size_t count : {10UL, 5000UL, 300000UL}) {
      std::vector<float> parameters(count, static_cast<float>(get_rank()));
      stamp_.alive();
      fail_point("trial.construct");
      comm::broadcast(world(), std::span(parameters), 0);
    }
  }

  bool train(int step) {
    std::vector<Work> works;
    for (auto& bucket : buckets_) {
      std::fill(bucket.begin(), bucket.end(), 0.1F * static_cast<float>(get_rank() + step));
      stamp_.alive();
      works.push_back(comm::all_reduce(world(), std::span(bucket), ReduceOp::AVG, /*async_op=*/true));
    }
    if (ending_.rank == get_rank() && ending_.step == step) {
      stamp_.alive();
      if (ending_.how == "throw") throw std::runtime_error("thrown on purpose");
      if (end_by(ending_.how)) return false;
    }
    for (Work& work : works) {
      stamp_.alive();
      work.wait();
    }
    if (step % 3 == 0) comm::barrier(world());
    for (const auto& bucket : buckets_) digest(bucket);
    reduce_at_once(step);
    stamp_.alive();
    fail_point("trial.between_steps");
    return true;
  }

  // Calls that wait at once, which take other ways through shared memory.
  void reduce_at_once(int step) {
    for (auto& bucket : buckets_) {
      std::fill(bucket.begin(), bucket.end(), 0.3F * static_cast<float>(get_rank() - step));
      stamp_.alive();
      comm::all_reduce(world(), std::span(bucket), ReduceOp::AVG);
      digest(bucket);
    }
    exchange();
    pass_on(step);
  }

  // Private memory, which goes through windows where an all_reduce would.
  void exchange() {
    std::vector<float>& whole = buckets_[2];
    std::vector<float> part(whole.size() / static_cast<std::size_t>(get_world_size()));
    stamp_.alive();
    comm::reduce_scatter(world(), std::span(part), std::span<const float>(whole), ReduceOp::AVG);
    stamp_.alive();
    comm::all_gather(world(), std::span<const float>(part), std::span(whole));
    digest(whole);
  }

  // A message from each rank to the next: one that its sender lends, and before it one so large that it goes
  // through a ring.
  void pass_on(int step) {
    if (step < large_steps_) {
      constexpr std::size_t THROUGH_A_RING = std::size_t{17} << 20U;
      large_.resize(THROUGH_A_RING / sizeof(float));
      fill(step, large_);
      comm::barrier(world());  // where its receiver is late a sender takes another way
      pass_on(step, large_);
    }
    fill(step, buckets_[1]);
    pass_on(step, buckets_[1]);
  }

  static float value_of(int rank, int step) { return 0.7F * static_cast<float>(rank - step); }

  void fill(int step, std::vector<float>& bucket) {
    std::fill(bucket.begin(), bucket.end(), value_of(get_rank(), step));
    received_.assign(bucket.size(), std::numeric_limits<float>::quiet_NaN());
  }

  void pass_on(int step, const std::vector<float>& bucket) {
    const int next = (get_rank() + 1) % get_world_size();
    const int previous = (get_rank() + get_world_size() - 1) % get_world_size();
    stamp_.alive();
    if (get_rank() % 2 == 0) comm::send(world(), std::span<const float>(bucket), next);
    stamp_.alive();
    comm::recv(world(), std::span(received_), previous);
    stamp_.alive();
    if (get_rank() % 2 == 1) comm::send(world(), std::span<const float>(bucket), next);
    const float expected = value_of(previous, step);
    if (std::any_of(received_.begin(), received_.end(), [&](float value) { return value != expected; }))
      throw std::runtime_error("a wrong message");
  }

  void save() const {
    stamp_.alive();
    if (get_rank() == 0) {
      std::ofstream file("model", std::ios::binary);
      for (int i = 0; i < 100; ++i) {
        file << std::string(10000, 'x');
        if (i == 50) fail_point("trial.saving");
      }
    } else {
      fail_point("trial.saving");
    }
    comm::barrier(world());
  }

  void digest(const std::vector<float>& bucket) { checksum_.add(std::as_bytes(std::span(bucket))); }

  static std::vector<std::vector<float>> buckets() {
    std::vector<std::vector<float>> all;
    for (const std::size_t count : {100UL, 40000UL, 300000UL, 7UL}) all.emplace_back(count);
    return all;
  }

  const Stamp& stamp_;
  const Ending ending_;
  const int large_steps_;
  std::vector<std::vector<float>> buckets_ = buckets();
  std::vector<float> large_;
  std::vector<float> received_;
  Checksum checksum_;
};

}  // namespace

int main(int argc, char** argv) {
  const Stamp stamp(argv[1]);
  // Its buckets may be in use until this rank has left the group, however it ends; that is after main for
  // some endings.
  const std::string large = argc > 3 ? argv[3] : "";
  const bool is_large = large.rfind("large=", 0) == 0;
  const int ending = is_large ? 4 : 3;
  static Trial trial(stamp, argc > ending ? parse(argv[ending]) : Ending(),
                     is_large ? std::stoi(large.substr(large.find('=') + 1)) : 0);
  return trial::run_and_report([&] { trial.run(std::stoi(argv[2])); });
}
