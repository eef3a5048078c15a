// Random programs: every rank derives the same sequence of calls from a seed. It makes some of them blocking,
// leaves others pending, and checks every element.
#include <algorithm>
#include <cstdio>
#include <deque>
#include <functional>
#include <numeric>
#include <random>
#include <thread>

#include "lockstep/comm/collectives/collectives.h"
#include "testing/buffers.h"
#include "testing/lacking.h"
#include "testing/ranks.h"
#include "testing/reference.h"

namespace lockstep {
namespace {

using reference::combine;
using reference::sample;

class Program {
 public:
  Program(const ProcessGroup& group, unsigned seed)
      : group_(group), shared_(seed), own_(seed * 31 + group.rank()) {}

  void run(int calls) {
    make(calls);
    finish_all();
  }

  // Leaves some of the calls pending.
  void make(int calls) {
    for (const int end = step_ + calls; step_ < end; ++step_) {
      switch (shared_() % 7) {
        case 0: finish(comm::barrier(group_, true), [] { return std::string(); }); break;
        case 1:
        case 2: all_reduce(); break;
        case 3: broadcast(); break;
        case 4: all_gather(); break;
        case 5: message(); break;
        case 6: check_some(shared_() % 4 == 0 ? 0 : pending_.size() / 2); break;
      }
    }
  }
  void finish_all() { check_some(0); }

 private:
  struct Pending {
    Work work;
    std::function<std::string()> difference;
    int step;
  };

  std::size_t random_count() {
    constexpr std::size_t LIMITS[] = {1, 4, 70, 700, 20000, 300000};
    return shared_() % LIMITS[shared_() % 6];
  }
  Memory own_memory() { return MEMORIES[own_() % 4]; }

  template <typename Check> void finish(Work work, Check check) {
    pending_.push_back({std::move(work), check, step_});
    if (own_() % 3 == 0) check_at(pending_.size() - 1);  // blocking on this rank, maybe pending on another
  }

  void check_at(std::size_t index) {
    Pending pending = std::move(pending_[index]);
    pending_.erase(pending_.begin() + static_cast<std::ptrdiff_t>(index));
    pending.work.wait();
    EXPECT_EQ(pending.difference(), "") << "step " << pending.step;
  }

  // Finishes pending calls in random order until only `left` remain.
  void check_some(std::size_t left) {
    while (pending_.size() > left) check_at(own_() % pending_.size());
  }

  // One of the element types.
  template <typename Body> void any_dtype(Body body) {
    const unsigned chosen = shared_() % reference::DTYPES;
    unsigned index = 0;
    reference::for_each_dtype([&]<typename T>() {
      if (index++ == chosen) body.template operator()<T>();
    });
  }

  void all_reduce() {
    const auto seed = shared_();
    const ReduceOp wanted = reference::OPS[shared_() % 5];
    const std::size_t count = random_count();
    any_dtype([&]<typename T>() {
      const ReduceOp op = reference::is_refused<T>(wanted) ? ReduceOp::SUM : wanted;
      if (is_lacking(group_, dtype_of<T>(), op) || is_rounded_by_levels(group_, dtype_of<T>())) return;
      const Buffer<T> x(group_, own_memory(), count);
      x.fill([&](std::size_t i) { return sample<T>(group_.rank(), i, seed); });
      finish(comm::all_reduce(group_, x.span(), op, true), [=, size = group_.size()] {
        return x.difference([&](std::size_t i) { return combine<T>(op, samples_of_all<T>(size, i, seed)); });
      });
    });
  }

  void broadcast() {
    const auto seed = shared_();
    const int root = static_cast<int>(shared_() % static_cast<unsigned>(group_.size()));
    const std::size_t count = random_count();
    any_dtype([&]<typename T>() {
      const Buffer<T> x(group_, own_memory(), count);
      x.fill([&](std::size_t i) { return sample<T>(group_.rank(), i, seed); });
      finish(comm::broadcast(group_, x.span(), GroupRank{root}, true),
             [=] { return x.difference([&](std::size_t i) { return sample<T>(root, i, seed); }); });
    });
  }

  void all_gather() {
    const auto seed = shared_();
    std::vector<std::size_t> counts;
    for (int r = 0; r < group_.size(); ++r) counts.push_back(random_count());
    any_dtype([&]<typename T>() {
      const Buffer<T> input(group_, own_memory(), counts[static_cast<std::size_t>(group_.rank())]);
      input.fill([&](std::size_t i) { return sample<T>(group_.rank(), i, seed); });
      std::vector<Buffer<T>> outputs;
      std::vector<std::span<T>> spans;
      for (const std::size_t count : counts) {
        outputs.emplace_back(group_, own_memory(), count);
        spans.push_back(outputs.back().span());
      }
      // `input` must live until the work is done.
      finish(comm::all_gather(group_, std::span<const T>(input.span()), spans, true), [=, kept = input] {
        std::string wrong;
        for (int r = 0; r < static_cast<int>(outputs.size()); ++r) {
          wrong += outputs[static_cast<std::size_t>(r)].difference(
              [&](std::size_t i) { return sample<T>(r, i, seed); });
        }
        return wrong;
      });
    });
  }

  void message() {
    const auto seed = shared_();
    const int size = group_.size();
    if (size == 1) return;
    const int source = static_cast<int>(shared_() % static_cast<unsigned>(size));
    const int destination =
        (source + 1 + static_cast<int>(shared_() % static_cast<unsigned>(size - 1))) % size;
    // The backend nccl has no tags.
    const int tag = static_cast<int>(shared_() % 3) * (group_.backend_name().ends_with("nccl") ? 0 : 1);
    const std::size_t count = random_count();
    any_dtype([&]<typename T>() {
      if (group_.rank() != source && group_.rank() != destination) return;
      const Buffer<T> x(group_, own_memory(), count);
      x.fill([&](std::size_t i) { return sample<T>(group_.rank(), i, seed); });
      Work work = group_.rank() == source
                      ? comm::isend(group_, std::span<const T>(x.span()), GroupRank{destination}, tag)
                      : comm::irecv(group_, x.span(), GroupRank{source}, tag);
      finish(std::move(work),
             [=] { return x.difference([&](std::size_t i) { return sample<T>(source, i, seed); }); });
    });
  }

  const ProcessGroup& group_;
  std::mt19937 shared_;  // the same on every rank: chooses the calls
  std::mt19937 own_;     // this rank's own: chooses the buffers' places and when to wait
  int step_ = 0;
  std::vector<Pending> pending_;
};

RANKS_TEST(RandomPrograms, EveryElementIsRight, Ranks(1, 2, 3, 4), EveryBackend()) {
  for (unsigned seed = 1; seed <= (reference::THOROUGH ? 20 : 5) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    Program(world(), seed).run(60);
  }
}

// Random subsets of the ranks, the same on every rank; some ranks may be in none.
ProcessGroup random_group(const ProcessGroup& parent, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<std::vector<int>> parts(1 + random() % 2);
  std::vector<int> order(static_cast<std::size_t>(parent.size()));
  std::iota(order.begin(), order.end(), 0);
  std::shuffle(order.begin(), order.end(), random);
  for (const int rank : order) parts[random() % parts.size()].push_back(rank);
  std::erase_if(parts, [&](const auto& part) { return part.empty() || random() % 5 == 0; });
  std::vector<int> mine;
  for (const auto& part : parts) {
    if (std::find(part.begin(), part.end(), parent.rank()) != part.end()) mine = part;
  }
  return {parent.backend().split(parts, str("random ", seed), {}), mine};
}

// Calls of the world and of two overlapping groups are pending at once, on one thread. Not over nccl, where
// messages of a group only start when a call of that group is waited for.
RANKS_TEST(RandomPrograms, InterleavedInSeveralGroups, Ranks(1, 2, 3, 4), EveryBackend(), Except("nccl")) {
  for (unsigned seed = 1; seed <= (reference::THOROUGH ? 20 : 4) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    const ProcessGroup groups[] = {world(), random_group(world(), seed), random_group(world(), seed + 100)};
    std::deque<Program> programs;
    for (const ProcessGroup& group : groups) {
      if (group.is_member()) programs.emplace_back(group, seed);
    }
    for (int turn = 0; turn < 15; ++turn) {
      for (Program& program : programs) program.make(3);
    }
    for (Program& program : programs) program.finish_all();
    for (const ProcessGroup& group : {groups[1], groups[2]}) group.close();
  }
}

// Each group on its own thread.
RANKS_TEST(RandomPrograms, InSeveralGroupsOnThreads, Ranks(1, 2, 3, 4), EveryBackend(), Except("nccl")) {
  if (!reference::THOROUGH && backend_name() == "shm") {
    std::fprintf(stderr,
                 "not run: ThreadSanitizer does not see what another process orders; `thread` is checked\n");
    return;
  }
  for (unsigned seed = 1; seed <= (reference::THOROUGH ? 20 : 3) && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(str("seed ", seed));
    const ProcessGroup groups[] = {world(), random_group(world(), seed), random_group(world(), seed + 100)};
    {
      std::vector<std::jthread> threads;
      for (const ProcessGroup& group : groups) {
        if (group.is_member()) threads.emplace_back([&group, seed] { Program(group, seed).run(40); });
      }
    }
    for (const ProcessGroup& group : {groups[1], groups[2]}) group.close();
  }
}

}  // namespace
}  // namespace lockstep
