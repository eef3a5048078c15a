#include "cli/bench_bound.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <memory>
#include <thread>

#include "cli/bench_plan.h"
#include "lockstep/base/text_hash.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/os/machine.h"
#include "lockstep/os/process.h"
#include "lockstep/os/shared_memory.h"

namespace lockstep::cli {
namespace {

double thread_clock_us() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// The range of `count` that `rank` of `ranks` works on.
struct Range {
  std::size_t begin, size;
};
Range slice_of(std::size_t count, std::size_t rank, std::size_t ranks) {
  const std::size_t begin = count * rank / ranks;
  return {begin, count * (rank + 1) / ranks - begin};
}

// The threads of a measurement meet here. Each writes its progress to a cache line of its own and reads those
// of the others. That is the least that a thread can do to wait for all. They spin, and yield in case a CPU
// is shared.
class Meeting {
 public:
  explicit Meeting(std::size_t threads) : flags_(threads) {}
  void wait(std::size_t thread) {
    const std::uint64_t round = flags_[thread].round.load(std::memory_order_relaxed) + 1;
    flags_[thread].round.store(round, std::memory_order_release);
    int spins = 0;
    for (const Flag& flag : flags_) {
      while (flag.round.load(std::memory_order_acquire) < round) {
        if (++spins > SPINS) yield_cpu();
      }
    }
  }

 private:
  static constexpr int SPINS = 10000;
  struct alignas(64) Flag {
    std::atomic<std::uint64_t> round = 0;
  };
  std::vector<Flag> flags_;
};

void pin_to(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<std::size_t>(cpu), &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);  // if refused, the scheduler chooses the CPU
}

std::vector<int> own_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cpus;
  if (pthread_getaffinity_np(pthread_self(), sizeof(set), &set) != 0) return cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

std::vector<std::vector<int>> cpus_of_all(const ProcessGroup& group) {
  std::vector<std::uint8_t> mine(CPU_SETSIZE);
  for (const int cpu : own_cpus()) mine[static_cast<std::size_t>(cpu)] = 1;
  std::vector<std::uint8_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span<const std::uint8_t>(mine), std::span(all));
  std::vector<std::vector<int>> cpus(static_cast<std::size_t>(group.size()));
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (all[i] != 0) cpus[i / CPU_SETSIZE].push_back(static_cast<int>(i % CPU_SETSIZE));
  }
  return cpus;
}

bool on_one_machine(const ProcessGroup& group) {
  const std::vector<std::uint64_t> mine = {text_hash(boot_id())};
  std::vector<std::uint64_t> all(static_cast<std::size_t>(group.size()));
  comm::all_gather(group, std::span(mine), std::span(all));
  return !boot_id().empty() && std::equal(all.begin() + 1, all.end(), all.begin());
}

// One measurement: the buffers of all ranks, and the work of each thread.
class Measurement {
 public:
  Measurement(Verb verb, std::size_t count, std::size_t ranks, std::vector<int> cpus)
      : verb_(verb),
        count_(count),
        share_(std::max<std::size_t>(count / ranks, 1)),
        cpus_(std::move(cpus)),
        rounds_(rounds_for(count * sizeof(float))),
        meeting_(cpus_.size()),
        memory_(ranks),
        buffers_(ranks),
        starts_(cpus_.size()),
        ends_(cpus_.size()) {}

  double best_median() {
    std::vector<std::thread> threads;
    for (std::size_t thread = 0; thread < cpus_.size(); ++thread)
      threads.emplace_back([this, thread] { run(thread); });
    for (std::thread& thread : threads) thread.join();
    return best_;
  }

 private:
  void run(std::size_t thread) {
    pin_to(cpus_[thread]);
    for (std::size_t r = thread; r < buffers_.size(); r += cpus_.size()) allocate(r);
    meeting_.wait(thread);
    std::vector<bound::Move> moves;
    for (std::size_t r = thread; r < buffers_.size(); r += cpus_.size()) {
      for (auto& move : bound_moves(verb_, static_cast<int>(r), count_, buffers_))
        moves.push_back(std::move(move));
    }
    for (const bound::Kernel& kernel : bound::KERNELS) {
      for (std::size_t round = 0; round < rounds_; ++round) one_round(thread, moves, kernel);
      meeting_.wait(thread);
      if (thread == 0) conclude();
      meeting_.wait(thread);
      starts_[thread].clear();
      ends_[thread].clear();
    }
  }

  // Allocates the kind of memory that the library's ranks share. Its owner touches it first.
  void allocate(std::size_t rank) {
    constexpr std::size_t LINE = 16;  // floats
    const std::size_t apart = (count_ / LINE + 2) * LINE;
    memory_[rank] = SharedMemory::create(3 * apart * sizeof(float));
    memory_[rank]->reserve(0, memory_[rank]->size());
    auto* data = reinterpret_cast<float*>(memory_[rank]->data());
    std::fill(data, data + 3 * apart, 0.0F);
    buffers_[rank] = {data, data + apart, data + 2 * apart};
  }

  void one_round(std::size_t thread, const std::vector<bound::Move>& moves, const bound::Kernel& kernel) {
    for (std::size_t r = thread; r < buffers_.size(); r += cpus_.size()) {
      std::fill_n(buffers_[r].whole, count_, 1.0F);
      std::fill_n(buffers_[r].part, share_, 1.0F);
    }
    meeting_.wait(thread);
    starts_[thread].push_back(thread_clock_us());
    for (const bound::Move& move : moves) kernel.run(move);
    meeting_.wait(thread);
    ends_[thread].push_back(thread_clock_us());
  }

  void conclude() {
    std::vector<double> times;
    for (std::size_t round = 0; round < rounds_; ++round) {
      double start = 0;
      double end = 0;
      for (std::size_t thread = 0; thread < cpus_.size(); ++thread) {
        start = std::max(start, starts_[thread][round]);
        end = std::max(end, ends_[thread][round]);
      }
      times.push_back(end - start);
    }
    std::sort(times.begin(), times.end());
    best_ = std::min(best_, times[rounds_ / 2]);
  }

  const Verb verb_;
  const std::size_t count_;
  const std::size_t share_;
  const std::vector<int> cpus_;
  const std::size_t rounds_;
  Meeting meeting_;
  std::vector<std::shared_ptr<SharedMemory>> memory_;  // by rank; so are those below
  std::vector<BoundBuffers> buffers_;
  std::vector<std::vector<double>> starts_, ends_;  // by thread
  double best_ = std::numeric_limits<double>::max();
};

}  // namespace

std::vector<int> bound_cpus(const std::vector<std::vector<int>>& allowed) {
  std::vector<int> chosen;
  const auto take = [&](int cpu) {
    const bool is_new = std::find(chosen.begin(), chosen.end(), cpu) == chosen.end();
    if (is_new && chosen.size() < allowed.size()) chosen.push_back(cpu);
    return is_new;
  };
  for (const auto& cpus : allowed) {
    for (const int cpu : cpus) {
      if (take(cpu)) break;
    }
  }
  if (chosen.empty()) chosen.push_back(0);
  return chosen;
}

std::vector<bound::Move> bound_moves(Verb verb, int rank, std::size_t count,
                                     const std::vector<BoundBuffers>& ranks) {
  const auto me = static_cast<std::size_t>(rank);
  const std::size_t n = ranks.size();
  const std::size_t share = count / n;  // for verbs with parts; `count` is then a multiple
  const Range mine = slice_of(count, me, n);
  std::vector<bound::Move> moves;
  // NOLINTNEXTLINE(readability-non-const-parameter): `to` is kept, and written later
  const auto copy = [&](const float* from, float* to, std::size_t size) {
    if (from != to && size > 0) moves.push_back({{from}, {to}, size});
  };
  const auto sum_to = [&](std::vector<float*> to) {
    bound::Move move{{}, std::move(to), mine.size};
    for (const BoundBuffers& other : ranks) move.from.push_back(other.whole + mine.begin);
    if (mine.size > 0) moves.push_back(std::move(move));
  };
  std::vector<float*> everywhere;
  for (const BoundBuffers& other : ranks) everywhere.push_back(other.whole + mine.begin);
  const Range half = slice_of(count, me, 2);
  switch (verb) {
    case Verb::ALL_REDUCE: sum_to(everywhere); break;
    case Verb::REDUCE: sum_to({everywhere[0]}); break;
    case Verb::REDUCE_SCATTER: sum_to({ranks[me].part}); break;
    case Verb::BROADCAST:
      for (std::size_t r = 1; r < n; ++r) copy(everywhere[0], everywhere[r], mine.size);
      break;
    case Verb::ALL_GATHER:
      for (std::size_t r = 0; r < n; ++r) copy(ranks[r].part, ranks[me].whole + r * share, share);
      break;
    case Verb::GATHER: copy(ranks[me].part, ranks[0].whole + me * share, share); break;
    case Verb::SCATTER: copy(ranks[0].whole + me * share, ranks[me].part, share); break;
    case Verb::ALL_TO_ALL:
      for (std::size_t r = 0; r < n; ++r)
        copy(ranks[r].whole + me * share, ranks[me].second + r * share, share);
      break;
    case Verb::SEND:
    case Verb::RECV:
      if (n > 1 && me < 2) copy(ranks[0].whole + half.begin, ranks[1].whole + half.begin, half.size);
      break;
    case Verb::BARRIER: break;
  }
  return moves;
}

std::optional<double> measure_bound(const ProcessGroup& group, Verb verb, std::size_t count) {
  if (!on_one_machine(group)) return std::nullopt;
  const std::vector<std::vector<int>> allowed = cpus_of_all(group);
  double bound = 0;
  if (group.rank() == 0)
    bound =
        Measurement(verb, count, static_cast<std::size_t>(group.size()), bound_cpus(allowed)).best_median();
  comm::broadcast(group, std::span(&bound, 1), 0);
  return bound;
}

}  // namespace lockstep::cli
