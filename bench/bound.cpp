// What this machine's memory allows an all_reduce of float32 between two processes, without any library: the time in which two
// threads, each on a core of its own, do nothing but the sums. Each has written one of two buffers, as a rank has its own; each
// adds up one half of both and writes the sum to both, which is the least that an all_reduce in shared memory must move.
//
//   build/bench/bound
//
// One JSON object per size and kernel, as bench/collectives.cpp prints; "memory" names the kernel. The bound of a size is the best
// kernel's. "read" moves less than an all_reduce can (it writes nothing): no algorithm on these two cores can be faster.
#include <pthread.h>

#include <atomic>
#include <thread>

#include "bench/timed_collectives.h"

namespace {

constexpr int CORES = 2;

struct Half {
  float* mine;
  float* other;
  std::size_t count;
};

void add_both(const Half& half) {
  for (std::size_t i = 0; i < half.count; ++i) {
    const float sum = half.mine[i] + half.other[i];
    half.mine[i] = sum;
    half.other[i] = sum;
  }
}

// In pieces that stay in the nearest cache between the two stores.
void add_one_then_copy(const Half& half) {
  constexpr std::size_t PIECE = 2048;
  for (std::size_t begin = 0; begin < half.count; begin += PIECE) {
    const std::size_t end = std::min(begin + PIECE, half.count);
    for (std::size_t i = begin; i < end; ++i) half.mine[i] += half.other[i];
    std::copy(half.mine + begin, half.mine + end, half.other + begin);
  }
}

std::atomic<float> sink = 0;

void read_both(const Half& half) {
  float sums[16] = {};
  std::size_t i = 0;
  for (; i + 16 <= half.count; i += 16) {
    for (std::size_t k = 0; k < 16; ++k) sums[k] += half.mine[i + k] + half.other[i + k];
  }
  float whole = 0;
  for (const float sum : sums) whole += sum;
  sink.store(whole, std::memory_order_relaxed);
}

struct Kernel {
  const char* name;
  void (*run)(const Half&);
};
constexpr Kernel KERNELS[] = {
    {"add, store to both", add_both}, {"add, then copy", add_one_then_copy}, {"read", read_both}};

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
             const Kernel& kernel) {
  const auto rank = static_cast<std::size_t>(threads.rank());
  const std::size_t count = bytes / sizeof(float);
  const std::size_t begin = rank * (count / CORES);
  const Half half = {buffers[rank].data() + begin, buffers[1 - rank].data() + begin,
                     rank == 0 ? count / CORES : count - begin};
  const std::size_t rounds = std::clamp<std::size_t>((256UL << 20U) / bytes, 20, 2000);
  std::vector<double> starts;
  std::vector<double> ends;
  for (std::size_t round = 0; round < rounds; ++round) {
    std::fill(buffers[rank].begin(), buffers[rank].begin() + static_cast<std::ptrdiff_t>(count), 1.0F);
    threads.barrier();
    starts.push_back(bench::microseconds_now());
    kernel.run(half);
    ends.push_back(bench::microseconds_now());
    threads.barrier();
  }
  bench::report(threads, {"all_reduce", bytes}, kernel.name, std::move(starts), std::move(ends));
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
        for (const Kernel& kernel : KERNELS) measure(threads, buffers, which.bytes, kernel);
      }
    });
  }
  for (std::thread& thread : running) thread.join();
}
