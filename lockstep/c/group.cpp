#include "lockstep/c/group.h"

#include <algorithm>
#include <string>
#include <vector>

#include "lockstep/c/boundary.h"
#include "lockstep/c/group_table.h"
#include "lockstep/c/store_table.h"
#include "lockstep/job/connect.h"
#include "lockstep/job/groups.h"
#include "lockstep/os/secret.h"

using lockstep::c::cleared;
using lockstep::c::Failure;
using lockstep::c::find_group;
using lockstep::c::groups;
using lockstep::c::guarded;
using lockstep::c::milliseconds;
using lockstep::c::required;

namespace {

lockstep::NewGroupOptions options_in_cpp(const lockstep_group_options* options) {
  const lockstep_group_options given =
      lockstep::c::options_of(options, LOCKSTEP_GROUP_OPTIONS, "LOCKSTEP_GROUP_OPTIONS");
  lockstep::NewGroupOptions made;
  if (given.name != nullptr) made.name = given.name;
  if (given.backend != nullptr) made.backend = given.backend;
  made.timeout = milliseconds(given.timeout_ms, "timeout_ms");
  made.use_local_synchronization = given.use_local_synchronization != 0;
  return made;
}

lockstep::ConnectOptions options_in_cpp(const lockstep_connect_options* options) {
  const lockstep_connect_options given =
      lockstep::c::options_of(options, LOCKSTEP_CONNECT_OPTIONS, "LOCKSTEP_CONNECT_OPTIONS");
  lockstep::ConnectOptions made;
  if (given.name != nullptr) made.name = given.name;
  if (given.backend != nullptr) made.backend = given.backend;
  made.timeout = milliseconds(given.timeout_ms, "timeout_ms");
  made.warn_after = milliseconds(given.warn_after_ms, "warn_after_ms");
  if (given.secret != nullptr)
    made.secret.emplace(static_cast<const char*>(given.secret), lockstep::Secret::BYTES);
  if (given.local_address != nullptr) made.local_address = given.local_address;
  return made;
}

}  // namespace

int lockstep_new_group(const int* ranks, size_t count, const lockstep_group_options* options,
                       lockstep_group* group) {
  return guarded("lockstep_new_group", [&] {
    lockstep_group& place = cleared(group, "group");
    const lockstep::ProcessGroup world = find_group(LOCKSTEP_WORLD);
    if (count > static_cast<size_t>(world.size())) {
      throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT,
                    lockstep::str(count, " ranks are more than the ", world.size(), " of the world"));
    }
    const int* const first = count == 0 ? ranks : &required(ranks, "ranks");
    std::vector<int> list(first, first + count);
    place = groups().add({lockstep::new_group(std::move(list), options_in_cpp(options))});
  });
}

int lockstep_split_group(lockstep_group parent, int color, int key, const lockstep_group_options* options,
                         lockstep_group* group) {
  return guarded("lockstep_split_group", [&] {
    lockstep_group& place = cleared(group, "group");
    place = groups().add({lockstep::split_group(find_group(parent), color, key, options_in_cpp(options))});
  });
}

int lockstep_connect(lockstep_store store, int rank, int size, const lockstep_connect_options* options,
                     lockstep_group* group) {
  return guarded("lockstep_connect", [&] {
    lockstep_group& place = cleared(group, "group");
    place = groups().add(
        {lockstep::connect(lockstep::c::find_store(store), rank, size, options_in_cpp(options))});
  });
}

int lockstep_group_free(lockstep_group group) {
  return guarded("lockstep_group_free", [&] {
    if (group == LOCKSTEP_WORLD)
      throw Failure(LOCKSTEP_ERROR_INVALID_ARGUMENT, "LOCKSTEP_WORLD is left by lockstep_shutdown()");
    const lockstep::c::GroupEntry entry = groups().take(group);
    if (!entry.is_lent) lockstep::destroy_process_group(entry.group);
  });
}

int lockstep_group_abort(lockstep_group group, const char* reason) {
  return guarded("lockstep_group_abort", [&] { find_group(group).abort(&required(reason, "reason")); });
}

int lockstep_rank(lockstep_group group, int* rank) {
  return guarded("lockstep_rank", [&] { required(rank, "rank") = find_group(group).rank(); });
}

int lockstep_size(lockstep_group group, int* size) {
  return guarded("lockstep_size", [&] { required(size, "size") = find_group(group).size(); });
}

int lockstep_group_ranks(lockstep_group group, int* ranks) {
  return guarded("lockstep_group_ranks", [&] {
    const lockstep::ProcessGroup found = find_group(group);
    if (found.size() > 0) std::copy(found.ranks().begin(), found.ranks().end(), &required(ranks, "ranks"));
  });
}

int lockstep_group_rank(lockstep_group group, int global_rank, int* group_rank) {
  return guarded("lockstep_group_rank", [&] {
    required(group_rank, "group_rank") = lockstep::get_group_rank(find_group(group), global_rank);
  });
}

int lockstep_global_rank(lockstep_group group, int group_rank, int* global_rank) {
  return guarded("lockstep_global_rank", [&] {
    required(global_rank, "global_rank") = lockstep::get_global_rank(find_group(group), group_rank);
  });
}

int lockstep_group_name(lockstep_group group, const char** name) {
  return guarded("lockstep_group_name", [&] {
    static thread_local std::string text;
    text = find_group(group).name();
    required(name, "name") = text.c_str();
  });
}

int lockstep_group_backend(lockstep_group group, const char** backend) {
  return guarded("lockstep_group_backend", [&] {
    static thread_local std::string text;
    text = find_group(group).backend_name();
    required(backend, "backend") = text.c_str();
  });
}
