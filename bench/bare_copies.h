// The copies that an all_gather or all_to_all of two ranks cannot do without where memory is private, and
// nothing else: a rank copies its own part, and reads the other's where it lies, through the kernel. A large
// call takes about as long as these in the same memory, in every library; the memory of another process may
// be faster or slower by a third.
//
//   BareCopies copies(peer, which, input, output);   // collective
//   copies();                                         // this rank's; no rank waits for the other
//
// Where the kernel forbids ranks to read each other's memory (`lockstep info`: peer_memory), the program
// ends.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "bench/timed_collectives.h"

namespace bench {

inline bool has_bare_copies(const Case& which, int size) {
  return size == 2 && (which.verb == "all_gather" || which.verb == "all_to_all");
}

class BareCopies {
 public:
  template <typename Peer>
  BareCopies(Peer& peer, const Case& which, std::span<float> input, std::span<float> output)
      : part_(output.size() / 2) {
    const auto own = static_cast<std::size_t>(peer.rank());
    const std::size_t other = 1 - own;
    const bool is_gather = which.verb == "all_gather";
    const auto address = static_cast<double>(reinterpret_cast<std::intptr_t>(input.data()));
    std::vector<double> places(4, 0);  // each rank's process and its input's address; both are whole doubles
    places[2 * own] = getpid();
    places[2 * own + 1] = address;
    peer.maxima(places);
    process_ = static_cast<pid_t>(places[2 * other]);
    theirs_ = static_cast<std::intptr_t>(places[2 * other + 1]) +
              static_cast<std::intptr_t>(is_gather ? 0 : own * part_ * sizeof(float));
    from_ = input.data() + (is_gather ? 0 : own * part_);
    to_own_ = output.data() + own * part_;
    to_other_ = output.data() + other * part_;
  }

  void operator()() const {
    const std::size_t bytes = part_ * sizeof(float);
    std::memcpy(to_own_, from_, bytes);
    const iovec local{to_other_, bytes};
    const iovec remote{reinterpret_cast<void*>(theirs_), bytes};
    if (process_vm_readv(process_, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes)) return;
    std::perror("process_vm_readv of the other rank's input");
    std::exit(1);
  }

 private:
  std::size_t part_;  // in elements
  pid_t process_ = 0;
  std::intptr_t theirs_ = 0;
  const float* from_ = nullptr;
  float* to_own_ = nullptr;
  float* to_other_ = nullptr;
};

// As time_collective(), in turn with the bare copies, which are reported as "`memory` copies".
template <typename Peer>
void time_beside_copies(Peer& peer, const Case& which, const std::string& memory, std::span<float> input,
                        std::span<float> output) {
  if (!has_bare_copies(which, peer.size())) return time_collective(peer, which, memory, input, output);
  const BareCopies copies(peer, which, input, output);
  Moments of_call;
  Moments of_copies;
  for (std::size_t round = 0; round < rounds_of(which); ++round) {
    time_call(peer, input, of_call, [&] { peer.call(which, input, output); });
    require_right(which, is_right(which, peer.rank(), peer.size(), input, output));
    std::fill(output.begin(), output.end(), 0.0F);
    time_call(peer, input, of_copies, [&] {
      copies();
      peer.barrier();  // nobody writes its input while the other reads it
    });
    require_right(which, is_right(which, peer.rank(), peer.size(), input, output));
  }
  report(peer, which, memory, std::move(of_call));
  report(peer, which, memory + " copies", std::move(of_copies));
}

}  // namespace bench
