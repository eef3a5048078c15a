#include "lockstep/c/work.h"

#include <exception>

#include "lockstep/c/boundary.h"
#include "lockstep/c/work_table.h"

using lockstep::c::guarded;
using lockstep::c::required;
using lockstep::c::works;

int lockstep_work_wait(lockstep_work work, int64_t timeout_ms) {
  return guarded("lockstep_work_wait", [&] {
    lockstep::Work waited = works().get(work);
    const auto timeout = lockstep::c::milliseconds(timeout_ms, "timeout_ms");
    timeout ? waited.wait(*timeout) : waited.wait();
  });
}

int lockstep_work_test(lockstep_work work, int* done) {
  return guarded("lockstep_work_test", [&] {
    required(done, "done") = 0;
    const lockstep::Work tested = works().get(work);
    if (!tested.is_completed()) return;
    *done = 1;
    if (const std::exception_ptr failure = tested.exception()) std::rethrow_exception(failure);
  });
}

int lockstep_work_source(lockstep_work work, int* rank) {
  return guarded("lockstep_work_source", [&] { required(rank, "rank") = works().get(work).source_rank(); });
}

int lockstep_work_free(lockstep_work work) {
  return guarded("lockstep_work_free", [&] { works().take(work); });
}
