#include "lockstep/comm/process_group.h"

#include "lockstep/base/error.h"
#include "lockstep/base/number_list.h"
#include "lockstep/base/str.h"

namespace lockstep {

const std::string& ProcessGroup::name() const {
  static const std::string none = "none";
  return backend_ ? backend_->group_name() : none;
}

Backend& ProcessGroup::backend() const {
  if (!backend_)
    throw InvalidArgument("this process is not in the group of ranks " + number_list(*ranks_) +
                          " and has no backend for it");
  return *backend_;
}

void ProcessGroup::require_member(std::string_view what) const {
  if (backend_) return;
  throw InvalidArgument(str(what, ": this process is not in the group, whose ranks are ",
                            number_list(*ranks_),
                            ": call it on these alone (if (group.is_member()) ...), or give it a group that "
                            "this process is in"));
}

}  // namespace lockstep
