// HandleTable: the things behind the handles of one kind. No number is given twice, so a freed handle is
// known.
//
//   static auto& table = *new HandleTable<Work>(HandleKind::WORK);   // lives as long as the process
//   const std::int64_t handle = table.add(work);
//   table.get(handle).wait();
//   table.take(handle);                                               // frees it
//
// Values are cheap to copy: get() copies, so that another thread may free the handle meanwhile.
// Threads: own lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "lockstep/c/boundary.h"

namespace lockstep::c {

enum class HandleKind : std::int64_t { GROUP = 1, WORK, OBJECTS, STORE, NAMED };

// Throws Failure with INVALID_HANDLE, which says why the handle names nothing of that kind. Of a kind's
// handles, those below `next` have been given.
[[noreturn]] void refuse_handle(HandleKind kind, std::int64_t handle, std::int64_t next);

// The kind is in the upper byte, so that a handle of one kind is never taken for another.
constexpr std::int64_t first_handle(HandleKind kind) { return (static_cast<std::int64_t>(kind) << 56U) + 1; }

template <typename Value> class HandleTable {
 public:
  explicit HandleTable(HandleKind kind) : kind_(kind), next_(first_handle(kind)) {}

  std::int64_t add(Value value) {
    const std::lock_guard lock(mutex_);
    values_.emplace(next_, std::move(value));
    return next_++;
  }
  Value get(std::int64_t handle) {
    const std::lock_guard lock(mutex_);
    return find(handle)->second;
  }
  // The handle is not valid any more.
  Value take(std::int64_t handle) {
    const std::lock_guard lock(mutex_);
    const auto found = find(handle);
    Value value = std::move(found->second);
    values_.erase(found);
    return value;
  }
  std::size_t size() {
    const std::lock_guard lock(mutex_);
    return values_.size();
  }

 private:
  auto find(std::int64_t handle) {
    const auto found = values_.find(handle);
    if (found == values_.end()) refuse_handle(kind_, handle, next_);
    return found;
  }

  const HandleKind kind_;
  std::mutex mutex_;
  // guarded by mutex_
  std::int64_t next_;
  std::unordered_map<std::int64_t, Value> values_;
};

}  // namespace lockstep::c
