#include "lockstep/comm/backends/nccl/communicator.h"

#include <chrono>
#include <future>
#include <thread>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/naps.h"
#include "lockstep/base/str.h"
#include "lockstep/base/wait_reminder.h"

namespace lockstep::nccl {

std::unique_ptr<Communicator> Communicator::make(const Library& library, const UniqueId& id, int rank,
                                                 int size, const Patience& patience) {
  std::unique_ptr<Communicator> made(new Communicator(library));
  Config config;
  const Result result = library.api.comm_init_rank_config(&made->comm_, size, id, rank, &config);
  if (result != SUCCESS && result != IN_PROGRESS)
    throw DistBackendError(library.describe("ncclCommInitRankConfig", result, nullptr));
  {
    const Awaited awaited([] { return "NCCL to connect all ranks (ncclCommInitRankConfig)"; });
    made->settle("ncclCommInitRankConfig", patience);
  }
  made->expect_place(rank, size);
  return made;
}

// A communicator that counts ranks differently would mix them up, or wait for ranks that do not exist.
void Communicator::expect_place(int rank, int size) {
  int said_size = -1;
  int said_rank = -1;
  call("ncclCommCount", [&] { return library_.api.comm_count(comm_, &said_size); });
  call("ncclCommUserRank", [&] { return library_.api.comm_user_rank(comm_, &said_rank); });
  if (said_size == size && said_rank == rank) return;
  throw DistBackendError(str("NCCL says that this is rank ", said_rank, " of ", said_size,
                             ", and it is rank ", rank, " of ", size, "; is ", printable(library_.path),
                             " NCCL ", version_text(library_.version), "?"));
}

void Communicator::call(const char* function, const std::function<Result()>& call) {
  call_named(function, call);
}

void Communicator::call_named(const char* const& function, const std::function<Result()>& call) {
  const std::lock_guard lock(mutex_);
  if (comm_ == nullptr) throw Aborted("the communicator of NCCL was aborted");
  const Result result = call();
  if (result != SUCCESS && result != IN_PROGRESS)
    throw DistBackendError(library_.describe(function, result, comm_));
}

Result Communicator::state() {
  Result state = SUCCESS;
  call("ncclCommGetAsyncError", [&] { return library_.api.comm_get_async_error(comm_, &state); });
  return state;
}

void Communicator::check(const char* function) {
  const Result result = state();
  if (result == SUCCESS || result == IN_PROGRESS) return;
  const std::lock_guard lock(mutex_);
  throw DistBackendError(library_.describe(function, result, comm_));
}

// Polls, because NCCL offers no other way to wait for a communicator.
void Communicator::settle(const char* function, const Patience& patience) {
  constexpr int TURNS = 200;
  constexpr std::chrono::microseconds PAUSE{200};
  Naps naps;
  for (int turn = 0; state() == IN_PROGRESS; ++turn) {
    naps.now();
    if (patience.deadline.expired())
      throw Timeout(str(function, " has not ended before the timeout: have all ranks called it?"));
    if (turn < TURNS) {
      std::this_thread::yield();
      continue;
    }
    patience.meanwhile();
    naps.sleep(PAUSE);
  }
  check(function);
}

void Communicator::launch(const std::vector<Step>& steps, CudaStream stream, const Patience& patience) {
  if (steps.empty()) return;
  const char* function = "ncclGroupEnd";
  const auto launch_step = [&](const Step& step) {
    const Launched launched = nccl::launch(library_.api, step, comm_, stream);
    function = launched.function;
    return launched.result;
  };
  if (steps.size() == 1) {
    call_named(function, [&] { return launch_step(steps.front()); });
    return settle(function, patience);
  }
  call("ncclGroupStart", [&] { return library_.api.group_start(); });
  std::exception_ptr failure;
  try {
    for (const Step& step : steps) call_named(function, [&] { return launch_step(step); });
  } catch (const Error&) {
    failure = std::current_exception();
  }
  // The group of calls must be ended even if a call in it was refused.
  const Result ended = library_.api.group_end();
  if (failure) std::rethrow_exception(failure);
  call(function, [&] { return ended; });
  settle(function, patience);
}

namespace {

void finish_one(const Api& api, Comm comm) {
  constexpr std::chrono::microseconds PAUSE{200};
  Result state = api.comm_finalize(comm);
  while (state == IN_PROGRESS) {
    std::this_thread::sleep_for(PAUSE);
    if (api.comm_get_async_error(comm, &state) != SUCCESS) break;
  }
  state == SUCCESS ? api.comm_destroy(comm) : api.comm_abort(comm);
}

}  // namespace

// In a thread of its own, because NCCL cannot be told to give that up: it synchronises ranks of a machine,
// and for a rank that is stopped or gone it may wait for ever.
bool Communicator::end(void (*how)(const Api&, Comm)) {
  Comm comm = nullptr;
  {
    const std::lock_guard lock(mutex_);
    comm = std::exchange(comm_, nullptr);
  }
  if (comm == nullptr) return true;
  std::promise<void> ended;
  const std::future<void> has_ended = ended.get_future();
  std::thread([&api = library_.api, how, comm, ended = std::move(ended)]() mutable {
    how(api, comm);
    ended.set_value();
  }).detach();
  return has_ended.wait_for(LIMIT) == std::future_status::ready;
}

bool Communicator::finish() { return end(&finish_one); }

bool Communicator::abort() {
  return end([](const Api& api, Comm comm) { api.comm_abort(comm); });
}

}  // namespace lockstep::nccl
