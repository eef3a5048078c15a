// answer_within: runs a system call that may block without limit, and waits for it until a deadline. The
// look-up of a host name is such a call: no option ends getaddrinfo() early.
//
//   const std::optional<int> lines =
//       answer_within<int>(Deadline::in(5s), [path] { return count_lines(path); });
//   if (!lines) throw Timeout(...);
//
// The call runs on a thread of its own. If the deadline passes first, the caller goes on. The thread
// continues until its call returns, and its result is dropped. So the call must hold its arguments by value.
//
// Throws      the exceptions of the call; SystemError if no thread can be started.
#pragma once

#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "lockstep/base/deadline.h"
#include "lockstep/base/error.h"
#include "lockstep/os/signal_mask.h"

namespace lockstep {

template <typename Answer>
std::optional<Answer> answer_within(Deadline deadline, std::function<Answer()> call) {
  struct Shared {
    std::mutex mutex;
    std::condition_variable changed;
    // guarded by mutex
    std::optional<Answer> answer;
    std::exception_ptr error;
  };
  const auto shared = std::make_shared<Shared>();
  try {
    const AllSignalsBlocked quiet;
    std::thread([shared, call = std::move(call)] {
      std::optional<Answer> answer;
      std::exception_ptr error;
      try {
        answer = call();
      } catch (...) {
        error = std::current_exception();
      }
      const std::lock_guard lock(shared->mutex);
      shared->answer = std::move(answer);
      shared->error = error;
      shared->changed.notify_all();
    }).detach();
  } catch (const std::system_error& error) {
    throw SystemError("cannot start a thread", error.code().value());
  }
  std::unique_lock lock(shared->mutex);
  wait_until(shared->changed, lock, deadline, [&] { return shared->answer || shared->error; });
  if (shared->error) std::rethrow_exception(shared->error);
  return std::exchange(shared->answer, std::nullopt);
}

}  // namespace lockstep
