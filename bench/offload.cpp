// Milliseconds of AdamW's step whose state lies in a file, beside the disk's own bound: 64 million float32
// parameters, one rank, one thread.
//
//   build/bench/offload FOLDER 5
//
// Prints one JSON object: medians over the steps, after one to warm up, of three ways in turn:
//   memory  the state in memory
//   file    the state in a file of the folder (optimizer.keep_state_in)
//   bound   the bytes of the state read from a file there and written to another one, past the page cache, by
//   two
//           threads at once
#include <ATen/Parallel.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/zeros.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/optim/adam.h"
#include "lockstep/os/fd.h"

namespace dist = lockstep;

namespace {

constexpr std::int64_t WIDTH = 1 << 20;
constexpr int PARAMETERS = 64;
constexpr std::size_t STATE_BYTES = std::size_t{2} * 4 * WIDTH * PARAMETERS;
constexpr std::size_t PIECE = std::size_t{16} << 20U;

template <typename Body> double ms(const Body& body) {
  const auto start = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class Stepping {
 public:
  explicit Stepping(const std::shared_ptr<dist::FileMemory>& file) : optimizer_(parameters(), 1e-3) {
    if (file != nullptr) optimizer_.keep_state_in(file);
  }
  double step() {
    return ms([&] { optimizer_.step(); });
  }

 private:
  static std::vector<at::Tensor> parameters() {
    std::vector<at::Tensor> parameters;
    for (int i = 0; i < PARAMETERS; ++i) {
      parameters.push_back(at::zeros({WIDTH}).requires_grad_());
      parameters.back().mutable_grad() = at::full_like(parameters.back(), 0.5).detach();
    }
    return parameters;
  }
  dist::optim::AdamW optimizer_;
};

class Disk {
 public:
  explicit Disk(const std::string& folder) : from_(open_in(folder)), to_(open_in(folder)) {
    write_all(from_.get());
    write_all(to_.get());
  }
  double pass() {
    return ms([&] {
      std::thread reader([&] { each_piece(&::pread, from_.get()); });
      write_all(to_.get());
      reader.join();
    });
  }

 private:
  static dist::Fd open_in(const std::string& folder) {
    dist::Fd file(::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC | O_DIRECT, 0600));
    if (!file.valid()) throw dist::SystemError("cannot make a file in " + folder, errno);
    return file;
  }
  template <typename Call> static void each_piece(const Call& call, int file) {
    const std::unique_ptr<void, decltype(&std::free)> buffer(std::aligned_alloc(4096, PIECE), &std::free);
    for (std::size_t at = 0; at < STATE_BYTES; at += PIECE) {
      if (call(file, buffer.get(), PIECE, static_cast<off_t>(at)) != static_cast<ssize_t>(PIECE))
        throw dist::SystemError("cannot read or write a piece", errno);
    }
  }
  static void write_all(int file) { each_piece(&::pwrite, file); }

  dist::Fd from_, to_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  at::set_num_threads(1);
  Stepping in_memory(nullptr), in_file(std::make_shared<dist::FileMemory>(argv[1]));
  Disk disk(argv[1]);
  std::vector<double> of_memory, of_file, of_disk;
  for (int s = -1; s < std::atoi(argv[2]); ++s) {
    const double a = in_memory.step(), b = in_file.step(), c = disk.pass();
    if (s < 0) continue;
    of_memory.push_back(a);
    of_file.push_back(b);
    of_disk.push_back(c);
  }
  std::printf("{\"memory\": %.1f, \"file\": %.1f, \"bound\": %.1f}\n", median(of_memory), median(of_file),
              median(of_disk));
  return 0;
}
