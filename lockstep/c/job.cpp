#include "lockstep/c/job.h"

#include "lockstep/c/boundary.h"
#include "lockstep/c/store_table.h"
#include "lockstep/job/job.h"

using lockstep::c::Failure;
using lockstep::c::guarded;
using lockstep::c::required;

namespace {

// A function about the job, which there must be.
template <typename Body> int of_job(const char* function, const Body& body) noexcept {
  return guarded(function, [&] {
    if (!lockstep::is_initialized())
      throw Failure(LOCKSTEP_ERROR_NOT_INITIALIZED, "there is no job; call lockstep_init() first");
    body();
  });
}

lockstep::InitOptions options_in_cpp(const lockstep_init_options& given) {
  lockstep::InitOptions options;
  if (given.init_method != nullptr) options.init_method = given.init_method;
  if (given.rank != -1) options.rank = given.rank;
  if (given.world_size != -1) options.world_size = given.world_size;
  if (given.store != 0) options.store = lockstep::c::find_store(given.store);
  options.timeout = lockstep::c::milliseconds(given.timeout_ms, "timeout_ms");
  options.warn_after = lockstep::c::milliseconds(given.warn_after_ms, "warn_after_ms");
  if (given.virtual_ranks != 0) options.virtual_ranks = given.virtual_ranks;
  return options;
}

}  // namespace

int lockstep_init(const lockstep_init_options* options) {
  return guarded("lockstep_init", [&] {
    const lockstep_init_options given =
        lockstep::c::options_of(options, LOCKSTEP_INIT_OPTIONS, "LOCKSTEP_INIT_OPTIONS");
    if (lockstep::is_initialized())
      throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT, "already initialised; call lockstep_shutdown() first");
    lockstep::init_process_group(given.backend == nullptr ? "auto" : given.backend, options_in_cpp(given));
  });
}

int lockstep_shutdown(void) {
  return of_job("lockstep_shutdown", [] { lockstep::destroy_process_group(); });
}

int lockstep_is_initialized(void) { return lockstep::is_initialized() ? 1 : 0; }

int lockstep_local_rank(int* rank) {
  return of_job("lockstep_local_rank", [&] { required(rank, "rank") = lockstep::get_local_rank(); });
}

int lockstep_local_size(int* size) {
  return of_job("lockstep_local_size", [&] { required(size, "size") = lockstep::get_local_world_size(); });
}

int lockstep_node_rank(int* rank) {
  return of_job("lockstep_node_rank", [&] { required(rank, "rank") = lockstep::get_node_rank(); });
}

int lockstep_node_count(int* count) {
  return of_job("lockstep_node_count", [&] { required(count, "count") = lockstep::get_node_count(); });
}
