// Who reduces what: three ways to divide an all_reduce of float32 in shared memory among its ranks, while
// both also compute.
//
//   build/bench/slices
//
// Two ranks, threads pinned to a core each. A step: both write their bucket, start the all_reduce, compute
// (counted additions in registers) and wait. "equal": both compute as long. "skewed": rank 1 computes four
// times as long, as a rank deep in backward would; rank 0's wait is what the way costs its peer. One JSON
// object per way and load: the medians over steps of the time from the start of the all_reduce to the end of
// rank 0's wait, and to the end of both.
//
//   claims    Lockstep's: whoever is in a call of the group takes slices, no thread of its own
//   fixed     each rank reduces its half in its own wait
//   thread    each rank has a second thread on its core, which reduces its half as soon as both have started
//
// Expected before the first measurement: with equal ranks all within a few percent, the thread behind by its
// wake-ups and by the time it takes from the computation; with skewed ranks rank 0 gets the result after its
// own computation plus one whole reduction by claims, after rank 1's computation by fixed halves, and by the
// thread between the two, because rank 1's thread has to share its core with the computation.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "lockstep/comm/backends/shared/thread_backend.h"
#include "lockstep/comm/collectives/collectives.h"
#include "lockstep/comm/kernels/reduce_kernels.h"

namespace {

using namespace lockstep;  // NOLINT(google-build-using-namespace)

constexpr int RANKS = 2;
constexpr std::size_t COUNT = (std::size_t{25} << 20U) / sizeof(float);
constexpr int STEPS = 60;
constexpr double COMPUTE_US = 1500;

double now() {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

// Work that touches no memory: as much of it, however long other threads hold the core meanwhile.
std::atomic<std::uint64_t> sink = 0;
void compute(double additions) {
  std::uint64_t x = 1;
  for (auto i = static_cast<std::uint64_t>(additions); i > 0; --i) {
    x += i;
    asm volatile("" : "+r"(x));
  }
  sink.store(x, std::memory_order_relaxed);
}

void pin_to(std::size_t core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

class Spinning {  // a barrier of the two ranks, outside of what is measured
 public:
  void wait() {
    const int round = round_.load();
    if (arrived_.fetch_add(1) + 1 == RANKS) {
      arrived_.store(0);
      round_.store(round + 1);
    }
    while (round_.load() == round) std::this_thread::yield();
  }

 private:
  std::atomic<int> arrived_ = 0;
  std::atomic<int> round_ = 0;
};

// What a rank does for an all_reduce of both buckets.
struct Way {
  virtual ~Way() = default;
  virtual void start(std::size_t rank) = 0;
  virtual void wait(std::size_t rank) = 0;
};

struct Buckets {
  std::vector<std::shared_ptr<void>> memory;
  float* of(std::size_t rank) const { return static_cast<float*>(memory[rank].get()); }

  void reduce_half(std::size_t rank) const {
    const std::size_t begin = rank * (COUNT / 2);
    std::byte* const places[] = {reinterpret_cast<std::byte*>(of(0) + begin),
                                 reinterpret_cast<std::byte*>(of(1) + begin)};
    const std::byte* const inputs[] = {places[0], places[1]};
    reduce(DType::FLOAT32, ReduceOp::SUM, inputs, places, COUNT / 2);
  }
};

struct Claims : Way {
  const std::vector<ProcessGroup>& groups;
  const Buckets& buckets;
  Work works[RANKS];
  Claims(const std::vector<ProcessGroup>& groups_, const Buckets& buckets_)
      : groups(groups_), buckets(buckets_) {}
  void start(std::size_t rank) override {
    works[rank] = comm::all_reduce(groups[rank], std::span(buckets.of(rank), COUNT), ReduceOp::SUM, true);
  }
  void wait(std::size_t rank) override { works[rank].wait(); }
};

struct Fixed : Way {
  const Buckets& buckets;
  std::atomic<int> started = 0;
  std::atomic<int> reduced = 0;
  explicit Fixed(const Buckets& buckets_) : buckets(buckets_) {}
  static void spin_until(const std::atomic<int>& counter, int value) {
    while (counter.load(std::memory_order_acquire) < value) std::this_thread::yield();
  }
  int rounds[RANKS] = {};
  void start(std::size_t rank) override {
    ++rounds[rank];
    started.fetch_add(1, std::memory_order_release);
  }
  void wait(std::size_t rank) override {
    spin_until(started, RANKS * rounds[rank]);
    buckets.reduce_half(rank);
    reduced.fetch_add(1, std::memory_order_release);
    spin_until(reduced, RANKS * rounds[rank]);
  }
};

struct ProgressThread : Way {
  const Buckets& buckets;
  std::mutex mutex;
  std::condition_variable changed;
  int started = 0, reduced = 0;
  int rounds[RANKS] = {};
  bool ends = false;
  std::vector<std::thread> threads;

  explicit ProgressThread(const Buckets& buckets_) : buckets(buckets_) {
    for (std::size_t rank = 0; rank < RANKS; ++rank) threads.emplace_back([this, rank] { run(rank); });
  }
  ~ProgressThread() override {
    {
      const std::lock_guard lock(mutex);
      ends = true;
    }
    changed.notify_all();
    for (std::thread& thread : threads) thread.join();
  }
  void run(std::size_t rank) {
    pin_to(rank);
    std::unique_lock lock(mutex);
    for (int round = 1;; ++round) {
      changed.wait(lock, [&] { return ends || started >= RANKS * round; });
      if (ends) return;
      lock.unlock();
      buckets.reduce_half(rank);
      lock.lock();
      ++reduced;
      changed.notify_all();
    }
  }
  void start(std::size_t rank) override {
    {
      const std::lock_guard lock(mutex);
      ++rounds[rank];
      ++started;
    }
    changed.notify_all();
  }
  void wait(std::size_t rank) override {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return reduced >= RANKS * rounds[rank]; });
  }
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void measure(const char* name, const char* load, Way& way, const Buckets& buckets, double additions,
             double skew) {
  Spinning line;
  double starts[RANKS];
  double ends[RANKS];
  std::vector<double> first, both;
  const auto run = [&](std::size_t rank) {
    pin_to(rank);
    for (int step = 0; step < STEPS; ++step) {
      std::fill_n(buckets.of(rank), COUNT, 1.0F);
      line.wait();
      starts[rank] = now();
      way.start(rank);
      compute(rank == 1 ? additions * skew : additions);
      way.wait(rank);
      ends[rank] = now();
      line.wait();
      if (rank == 0) {
        first.push_back(ends[0] - std::max(starts[0], starts[1]));
        both.push_back(std::max(ends[0], ends[1]) - std::max(starts[0], starts[1]));
        if (buckets.of(0)[COUNT - 1] != RANKS) std::exit(1);
      }
      line.wait();
    }
  };
  std::thread other(run, 1);
  run(0);
  other.join();
  std::printf("{\"way\": \"%s\", \"load\": \"%s\", \"rank_0_us\": %.0f, \"both_us\": %.0f}\n", name, load,
              median(first), median(both));
  std::fflush(stdout);
}

}  // namespace

int main() {
  const auto groups = make_thread_groups(RANKS, {});
  Buckets buckets;
  for (const ProcessGroup& group : groups)
    buckets.memory.push_back(group.allocate_shared(COUNT * sizeof(float)));
  pin_to(0);
  const double start = now();
  compute(1e8);
  const double additions = 1e8 * COMPUTE_US / (now() - start);
  for (const double skew : {1.0, 4.0}) {
    const char* load = skew == 1.0 ? "equal" : "skewed";
    Claims claims(groups, buckets);
    measure("claims", load, claims, buckets, additions, skew);
    Fixed fixed(buckets);
    measure("fixed", load, fixed, buckets, additions, skew);
    ProgressThread thread(buckets);
    measure("thread", load, thread, buckets, additions, skew);
  }
}
