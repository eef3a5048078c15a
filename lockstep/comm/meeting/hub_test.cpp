// The ranks are forked processes of an ordinary user. (The suites of launchers and faults test sockets to
// meet at and inherited sockets.)
#include "lockstep/comm/meeting/hub.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/os/child_process.h"
#include "lockstep/os/pipe.h"
#include "lockstep/os/unix_socket.h"

namespace lockstep {
namespace {

constexpr uid_t NOBODY = 65534;

// The kernel limits descriptors in flight only for users who may not raise limits, so root becomes another
// user.
void become_ordinary(rlim_t open_files) {
  const rlimit limit{open_files, open_files};
  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) _exit(90);
  if (geteuid() == 0 && setresuid(NOBODY, NOBODY, NOBODY) != 0) _exit(91);
}

// A star of `ranks` processes, each of which runs `body` with its rank and its sockets. Returns their exit
// codes.
template <typename Body> std::vector<int> codes_of(int ranks, rlim_t open_files, Body body) {
  std::vector<std::vector<Fd>> ends(static_cast<std::size_t>(ranks));
  for (std::size_t rank = 1; rank < ends.size(); ++rank) {
    SocketPair pair = make_packet_socket_pair();
    ends[0].push_back(std::move(pair.first));
    ends[rank].push_back(std::move(pair.second));
  }
  std::vector<pid_t> children;
  for (int rank = 0; rank < ranks; ++rank) {
    children.push_back(fork_child([&] {
      std::vector<Fd> own;
      if (rank == 0) own.emplace_back();  // by rank: it has no socket to itself
      for (Fd& end : ends[static_cast<std::size_t>(rank)]) own.push_back(std::move(end));
      ends.clear();
      become_ordinary(open_files);
      return body(rank, std::move(own));
    }));
  }
  ends.clear();
  std::vector<int> codes;
  for (const pid_t child : children) codes.push_back(wait_exit(child).shell_code());
  return codes;
}

std::string message_of(int rank) { return str("rank ", rank); }

// A file that only `rank` makes: its size depends on the rank.
Fd file_of(int rank) {
  Fd file(memfd_create("lockstep-test", MFD_CLOEXEC));
  if (ftruncate(file.get(), rank + 1) != 0) _exit(92);
  return file;
}

bool is_file_of(const Fd& file, int rank) {
  struct stat status {};
  return fstat(file.get(), &status) == 0 && status.st_size == rank + 1;
}

// 36 x 36 descriptors must be passed, and the kernel allows 128 in flight.
TEST(Hub, PassesMoreDescriptorsThanMayBeOnTheirWayAtOnce) {
  constexpr int RANKS = 36;
  constexpr rlim_t OPEN_FILES = 128;
  const auto codes = codes_of(RANKS, OPEN_FILES, [](int rank, std::vector<Fd> sockets) {
    Hub hub = Hub::over(rank, RANKS, std::move(sockets));
    for (int round = 0; round < 3; ++round) {
      const Fd file = file_of(hub.rank());
      const auto all =
          hub.exchange(message_of(hub.rank()), {file.get()}, Deadline::in(std::chrono::seconds(60)));
      if (all.size() != RANKS) return 1;
      for (int r = 0; r < RANKS; ++r) {
        const Message& message = all[static_cast<std::size_t>(r)];
        if (message.text != message_of(r)) return 2;
        if (message.fds.size() != 1 || !is_file_of(message.fds[0], r)) return 3;
      }
      for (const Message& message : hub.exchange("", {}, Deadline::in(std::chrono::seconds(60)))) {
        if (!message.text.empty() || !message.fds.empty()) return 4;
      }
    }
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(RANKS, 0));
}

// A rank may send more descriptors than others, or none.
TEST(Hub, CarriesDescriptorsOfSomeRanks) {
  constexpr int RANKS = 5;
  const auto codes = codes_of(RANKS, 64, [](int rank, std::vector<Fd> sockets) {
    Hub hub = Hub::over(rank, RANKS, std::move(sockets));
    std::vector<int> fds;
    const Fd file = file_of(hub.rank());
    for (int i = 0; i < 2 * hub.rank(); ++i) fds.push_back(file.get());
    const auto all = hub.exchange(message_of(hub.rank()), fds, Deadline::in(std::chrono::seconds(60)));
    for (int r = 0; r < RANKS; ++r) {
      const Message& message = all.at(static_cast<std::size_t>(r));
      if (message.text != message_of(r) || message.fds.size() != static_cast<std::size_t>(2 * r)) return 1;
      for (const Fd& fd : message.fds) {
        if (!is_file_of(fd, r)) return 2;
      }
    }
    return 0;
  });
  EXPECT_EQ(codes, std::vector<int>(RANKS, 0));
}

TEST(Hub, NamesTheRankThatIsStoppedWhileItIsToReceive) {
  constexpr int RANKS = 4;
  const Pipe over = make_pipe();
  const auto codes = codes_of(RANKS, 64, [&](int rank, std::vector<Fd> sockets) {
    const Fd file = file_of(rank);
    if (rank == 2) {  // it sent its message of the first round, and receives no more
      send_message(sockets[0].get(), "P1:" + message_of(2), {file.get()});
      char byte = 0;
      return read(over.read.get(), &byte, 1) == 1 ? 0 : 3;
    }
    Hub hub = Hub::over(rank, RANKS, std::move(sockets));
    std::string told;
    try {
      const std::chrono::seconds patience(rank == 0 ? 2 : 60);
      const auto all = hub.exchange(message_of(rank), {file.get()}, Deadline::in(patience));
      if (rank != 0 && all.size() == RANKS) return 0;
    } catch (const Timeout& error) {
      told = error.what();
    }
    if (rank == 0) write_available(over.write.get(), "x");
    return told.find("rank 2 did not come") != std::string::npos ? 0 : 2;
  });
  EXPECT_EQ(codes, std::vector<int>(RANKS, 0));
}

}  // namespace
}  // namespace lockstep
