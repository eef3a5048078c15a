#include "lockstep/job/before_leaving.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <vector>

#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

namespace lockstep {
namespace {

struct Functions {
  std::mutex mutex;
  std::vector<void (*)()> list;  // guarded by mutex
};

Functions& functions() {
  static auto* const instance = new Functions;  // outlives static destructors
  return *instance;
}

void at_exit() {
  try {
    do_before_leaving();
  } catch (const std::exception& error) {
    log(LogLevel::WARNING, str("while this process ended: ", error.what()));
  }
}

}  // namespace

void before_leaving(void (*function)()) {
  // Exit handlers run in reverse order. This one is registered after the handler that leaves the job, so it
  // runs before that.
  static const int registered = std::atexit(at_exit) + std::at_quick_exit(at_exit);
  (void)registered;
  const std::lock_guard lock(functions().mutex);
  auto& list = functions().list;
  if (std::find(list.begin(), list.end(), function) == list.end()) list.push_back(function);
}

// The list is emptied first, so that a function may register itself again, and no lock is held while it runs.
void do_before_leaving() {
  std::vector<void (*)()> list;
  {
    const std::lock_guard lock(functions().mutex);
    list.swap(functions().list);
  }
  std::exception_ptr failure;
  for (void (*const function)() : list) {
    try {
      function();
    } catch (...) {
      if (!failure) failure = std::current_exception();
    }
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace lockstep
