#include "lockstep/comm/process_group.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

const std::string& ProcessGroup::name() const {
  static const std::string none = "none";
  return backend_ ? backend_->group_name() : none;
}

Backend& ProcessGroup::backend() const {
  if (!backend_) {
    std::string members;
    for (const int rank : *ranks_) members += str(members.empty() ? "" : ", ", rank);
    throw InvalidArgument("this process is not in the group of ranks " + members +
                          " and has no backend for it");
  }
  return *backend_;
}

}  // namespace lockstep
