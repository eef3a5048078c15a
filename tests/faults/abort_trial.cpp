// One rank of a job whose group times out because a rank is stopped, for peers_test.py, which wakes that rank
// later.
//
//   abort_trial STAMPS VICTIM
//
// All ranks reduce over the world, in their own and in shared memory, until that fails ("error TIME TYPE PEER
// MESSAGE"). The others of VICTIM then print "phase after abort" and go on in a group of their own, whose
// memory lies in the same segments, until there is a file "woken". Exit codes: 3, and 4 with "corrupted WHAT"
// when a result or memory is not what it must be.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/job/groups.h"
#include "tests/faults/trial.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)
using trial::Stamp;

constexpr std::size_t COUNT = 300000;

std::span<float> floats(const std::shared_ptr<void>& memory) {
  return {static_cast<float*>(memory.get()), COUNT};
}

bool all_are(std::span<const float> values, float expected) {
  return std::all_of(values.begin(), values.end(), [&](float value) { return value == expected; });
}

[[noreturn]] void reduce_until_it_fails(const Stamp& stamp) {
  const auto shared = world().allocate_shared(COUNT * sizeof(float));
  std::vector<float> own(COUNT);
  std::vector<float> part(COUNT / static_cast<std::size_t>(get_world_size()));
  const float sum = static_cast<float>(get_world_size());
  for (;;) {
    stamp.alive();
    for (const auto values : {floats(shared), std::span(own)}) {
      std::fill(values.begin(), values.end(), 1.0F);
      comm::all_reduce(world(), values);
      if (!all_are(values, sum)) throw std::logic_error("a result that is none");  // uncaught
    }
    comm::reduce_scatter(world(), std::span(part), std::span<const float>(own));
    if (!all_are(part, sum * sum)) throw std::logic_error("a part that is none");
  }
}

// 3, or 4 if somebody else wrote to what is in use.
int go_on(const ProcessGroup& others) {
  const auto pattern = static_cast<float>(100 + others.rank());
  std::vector<std::shared_ptr<void>> shared;
  for (int i = 0; i < 8; ++i) {
    shared.push_back(others.allocate_shared(COUNT * sizeof(float)));
    std::ranges::fill(floats(shared.back()), pattern);
  }
  std::vector<float> own(COUNT);
  for (float woken = 0; woken == 0;) {
    std::fill(own.begin(), own.end(), 1.0F);
    comm::all_reduce(others, std::span(own));
    if (!all_are(own, static_cast<float>(others.size()))) return std::printf("corrupted result\n"), 4;
    woken = std::filesystem::exists("woken") ? 1 : 0;
    comm::all_reduce(others, std::span(&woken, 1));
  }
  for (const auto& memory : shared) {
    if (!all_are(floats(memory), pattern)) return std::printf("corrupted memory\n"), 4;
  }
  return 3;
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  const Stamp stamp(argv[1]);
  const int victim = std::stoi(argv[argc - 1]);
  init_process_group();
  std::vector<int> ranks;
  for (int r = 0; r < get_world_size(); ++r) {
    if (r != victim) ranks.push_back(r);
  }
  const ProcessGroup others = new_group(ranks);
  try {
    reduce_until_it_fails(stamp);
  } catch (const Error& error) {
    std::printf("error %lld Error -1 %s\n", static_cast<long long>(trial::now()), error.what());
  }
  if (get_rank() == victim) return 3;
  stamp.phase("after abort");
  return go_on(others);
}
