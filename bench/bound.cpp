// What this machine's memory allows an all_reduce of float32 between two processes, without any library: the
// time in which two threads, each on a core of its own, do nothing but the sums. Each has written one of two
// buffers, as a rank has its own; each adds up one half of both and writes the sum to both, which is the
// least that an all_reduce in shared memory must move.
//
//   build/bench/bound
//
// One JSON object per size and kernel, as bench/collectives.cpp prints; "memory" names the kernel. The bound
// of a size is the best kernel's. "read" moves less than an all_reduce can (it writes nothing): no algorithm
// on these two cores can be faster.
#include <pthread.h>

#include <atomic>
#include <thread>

#include "bench/timed_collectives.h"
#include "cli/bound_kernels.h"

namespace {

constexpr int CORES = 2;

std::atomic<float> sink = 0;

constexpr bound::Kernel READ = {
    "read", [](const bound::Move& move) { sink.store(bound::read_all(move), std::memory_order_relaxed); }};

class Threads {
 public:
  int rank() const { return this_rank; }
  int size() const { return CORES; }
  // Spins: both have a core.
  void barrier() {
    const int round = rounds_.load();
    if (arrived_.fetch_add(1) + 1 == CORES) {
      arrived_.store(0);
      rounds_.store(round + 1);
    }
    while (rounds_.load() == round) {
    }
  }
  void maxima(std::vector<double>& values) {  // of both threads' values, element by element; for the first
    if (this_rank == 1) theirs_ = values;
    barrier();
    for (std::size_t i = 0; this_rank == 0 && i < values.size(); ++i)
      values[i] = std::max(values[i], theirs_[i]);
    barrier();
  }
  static void be(int rank) { this_rank = rank; }

 private:
  inline static thread_local int this_rank = 0;
  std::atomic<int> arrived_ = 0;
  std::atomic<int> rounds_ = 0;
  std::vector<double> theirs_;
};

void pin_to(int core) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(core, &set);
  pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

void measure(Threads& threads, std::vector<std::vector<float>>& buffers, std::size_t bytes,
             const bound::Kernel& kernel) {
  const auto rank = static_cast<std::size_t>(threads.rank());
  const std::size_t count = bytes / sizeof(float);
  const std::size_t begin = rank * (count / CORES);
  float* const mine = buffers[rank].data() + begin;
  float* const other = buffers[1 - rank].data() + begin;
  const bound::Move half = {{mine, other}, {mine, other}, rank == 0 ? count / CORES : count - begin};
  bench::Moments moments;
  for (std::size_t round = 0; round < bench::rounds_of({"all_reduce", bytes}); ++round) {
    std::fill(buffers[rank].begin(), buffers[rank].begin() + static_cast<std::ptrdiff_t>(count), 1.0F);
    threads.barrier();
    moments.starts.push_back(bench::microseconds_now());
    kernel.run(half);
    moments.ends.push_back(bench::microseconds_now());
    threads.barrier();
  }
  bench::report(threads, {"all_reduce", bytes}, kernel.name, std::move(moments));
}

}  // namespace

int main() {
  Threads threads;
  std::vector<std::vector<float>> buffers(CORES);
  std::vector<std::thread> running;
  for (int rank = 0; rank < CORES; ++rank) {
    running.emplace_back([&, rank] {
      pin_to(rank);
      Threads::be(rank);
      buffers[static_cast<std::size_t>(rank)].resize((100UL << 20U) / sizeof(float));
      threads.barrier();
      for (const bench::Case& which : bench::every_case()) {
        if (which.verb != "all_reduce" || which.bytes < 1024) continue;
        for (const bound::Kernel& kernel : bound::KERNELS) measure(threads, buffers, which.bytes, kernel);
        measure(threads, buffers, which.bytes, READ);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
}
