// See stand_in_ranks.h.
#include "tests/nccl/stand_in_ranks.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::nccl::stand_in {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::chrono::seconds LIMIT{30};
constexpr milliseconds LOOK{1};
constexpr int MOST_IDS = 8;

template <class Function> void look_up(void* library, const char* symbol, Function*& function) {
  function = reinterpret_cast<Function*>(dlsym(library, symbol));
  if (function == nullptr) std::fprintf(stderr, "the stand-in has no %s\n", symbol);
  if (function == nullptr) std::abort();
}

// How a child ended; "" if well.
std::string ending(pid_t child, steady_clock::time_point deadline) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (steady_clock::now() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return "did not end in time";
    }
    std::this_thread::sleep_for(LOOK);
  }
  if (WIFSIGNALED(status)) return std::string("died: ") + strsignal(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "failed";
}

}  // namespace

// Memory that the ranks of a test share.
struct Rank::Board {
  std::atomic<int> ids;
  UniqueId id[MOST_IDS];
  std::atomic<int> arrivals;
};

Library open_library() {
  void* const opened = dlopen(LOCKSTEP_NCCL_STAND_IN, RTLD_NOW | RTLD_LOCAL);
  if (opened == nullptr) std::fprintf(stderr, "%s\n", dlerror());
  if (opened == nullptr) std::abort();
  Library library;
#define LOCKSTEP_LOOK_UP(member, symbol, parameters) look_up(opened, symbol, library.member);
  LOCKSTEP_NCCL_FUNCTIONS(LOCKSTEP_LOOK_UP)
#undef LOCKSTEP_LOOK_UP
  look_up(opened, "ncclGetErrorString", library.get_error_string);
  look_up(opened, "ncclGetLastError", library.get_last_error);
  DeviceStreams* (*streams)() = nullptr;
  look_up(opened, "lockstep_device_streams_1", streams);
  library.streams = streams();
  return library;
}

bool comes_true(const std::function<bool()>& condition) {
  const auto deadline = steady_clock::now() + std::chrono::seconds(10);
  while (!condition()) {
    if (steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(LOOK);
  }
  return true;
}

Rank::Rank(int rank_, int size_, void* board)
    : rank(rank_),
      size(size_),
      nccl(open_library()),
      board_(*static_cast<Board*>(board)),
      queue_(nccl.streams->make_stream(0)) {}

UniqueId Rank::shared_id() {
  const int number = ids_++;
  if (rank == 0) {
    EXPECT_EQ(nccl.get_unique_id(&board_.id[number]), SUCCESS);
    board_.ids = number + 1;
  }
  EXPECT_TRUE(comes_true([&] { return board_.ids > number; }));
  return board_.id[number];
}

Result Rank::init(int blocking) {
  Config config;
  config.blocking = blocking;
  const Result result = nccl.comm_init_rank_config(&comm, size, shared_id(), rank, &config);
  return result == IN_PROGRESS ? settled() : result;
}

Result Rank::async_error() const {
  Result error = SUCCESS;
  EXPECT_EQ(nccl.comm_get_async_error(comm, &error), SUCCESS);
  return error;
}

Result Rank::settled() const {
  EXPECT_TRUE(comes_true([this] { return async_error() != IN_PROGRESS; }));
  return async_error();
}

bool Rank::is_done_within(milliseconds time) const {
  const DeviceStreams::Event event = nccl.streams->record(queue_);
  const auto deadline = steady_clock::now() + time;
  while (!nccl.streams->is_done(event) && steady_clock::now() < deadline) std::this_thread::sleep_for(LOOK);
  return nccl.streams->is_done(event);
}

void Rank::finish() const { nccl.streams->wait(nullptr, nccl.streams->record(queue_)); }

void Rank::all_ranks_here() {
  const int wanted = ++barriers_ * size;
  ++board_.arrivals;
  EXPECT_TRUE(comes_true([&] { return board_.arrivals >= wanted; }));
}

void without_comm(int size, const Body& body, const std::string& orders) {
  void* const board = mmap(nullptr, 1 << 16, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(board, MAP_FAILED);
  std::fflush(nullptr);
  std::vector<pid_t> children;
  for (int r = 0; r < size; ++r) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      if (!orders.empty()) setenv("NCCL_STAND_IN", orders.c_str(), 1);
      // Never freed: a rank leaves by exit(), as programs do that still have an operation under way.
      static Rank* const rank = new Rank(r, size, board);
      body(*rank);
      std::exit(::testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  const auto deadline = steady_clock::now() + LIMIT;
  for (int r = 0; r < size; ++r) {
    EXPECT_EQ(ending(children[static_cast<std::size_t>(r)], deadline), "") << "rank " << r;
  }
  munmap(board, 1 << 16);
}

void in_ranks(int size, const Body& body, const std::string& orders) {
  without_comm(
      size,
      [&](Rank& rank) {
        ASSERT_EQ(rank.init(), SUCCESS);
        body(rank);
      },
      orders);
}

}  // namespace lockstep::nccl::stand_in
