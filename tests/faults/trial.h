// What the programs of peers_test.py share: a sign of life that survives a kill, and the line that tells of
// an error.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <stdexcept>

#include "lockstep/base/environment.h"
#include "lockstep/base/error.h"
#include "lockstep/job/job.h"

namespace lockstep::trial {

inline std::int64_t now() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

// This rank's number in the file of stamps: the monotonic clock, in ns, before whatever the rank did last.
class Stamp {
 public:
  explicit Stamp(const char* path) {
    const int fd = open(path, O_RDWR | O_CLOEXEC);
    void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd < 0 || memory == MAP_FAILED) throw std::runtime_error("cannot map the file of stamps");
    close(fd);
    stamp_ = static_cast<std::atomic<std::int64_t>*>(memory) + job_environment().rank;
  }
  void alive() const { stamp_->store(now(), std::memory_order_relaxed); }
  void phase(const char* name) const {
    alive();
    std::printf("phase %s\n", name);
  }

 private:
  std::atomic<std::int64_t>* stamp_;
};

inline int report(const char* type, int peer, const char* message) {
  std::printf("error %lld %s %d %s\n", static_cast<long long>(now()), type, peer, message);
  if (is_initialized()) destroy_process_group();
  return 3;
}

// Runs `body` and prints the error of ours that it throws; anything else goes on, uncaught.
template <typename Body> int run_and_report(Body body) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    body();
    return 0;
  } catch (const PeerLost& error) {
    return report("PeerLost", error.peer(), error.what());
  } catch (const Error& error) {
    return report("Error", -1, error.what());
  }
}

}  // namespace lockstep::trial
