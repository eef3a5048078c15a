#include "lockstep/c/handle_table.h"

namespace lockstep::c {
namespace {

const char* name_of(HandleKind kind) {
  switch (kind) {
    case HandleKind::GROUP: return "group";
    case HandleKind::WORK: return "work";
    case HandleKind::OBJECTS: return "list of objects";
    case HandleKind::STORE: return "store";
    case HandleKind::NAMED: return "named operation";
  }
  return "thing";
}

bool is_kind(HandleKind kind, std::int64_t handle) {
  return handle >= first_handle(kind) && (handle >> 56U) == static_cast<std::int64_t>(kind);
}

std::string why(HandleKind kind, std::int64_t handle, std::int64_t next) {
  if (handle == 0) return "is null";
  if (handle == LOCKSTEP_WORLD) return "is LOCKSTEP_WORLD, a group";
  if (is_kind(kind, handle) && handle < next) return "was freed";
  for (const HandleKind other :
       {HandleKind::GROUP, HandleKind::WORK, HandleKind::OBJECTS, HandleKind::STORE, HandleKind::NAMED}) {
    if (other != kind && is_kind(other, handle)) return str("is one of a ", name_of(other));
  }
  return "was never given";
}

}  // namespace

void refuse_handle(HandleKind kind, std::int64_t handle, std::int64_t next) {
  throw Failure(LOCKSTEP_ERROR_INVALID_HANDLE,
                str("the handle of a ", name_of(kind), ", ", handle, ", ", why(kind, handle, next)));
}

}  // namespace lockstep::c
