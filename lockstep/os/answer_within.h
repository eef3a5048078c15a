// answer_within: waits for a call of the system that may block for as long as it likes, but no longer than
// until a deadline. A name server that does not answer is such a call: nothing ends getaddrinfo() early.
//
//   const std::optional<int> lines =
//       answer_within<int>(Deadline::in(5s), [path] { return count_lines(path); });
//   if (!lines) throw Timeout(...);
//
// The call runs on a thread of its own. When the deadline passes first, nobody waits for that thread any
// more: it goes on until its call returns, and what it brings is dropped. So the call holds what it works
// with by value.
//
// Throws      what the call throws; SystemError where no thread can be started.
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
