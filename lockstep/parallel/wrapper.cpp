#include "lockstep/parallel/wrapper.h"

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"

namespace lockstep {

std::string Wrapper::on(const ProcessGroup& group) const {
  return str(name, " on group \"", group.name(), "\", rank ", group.rank(), " of ", group.size());
}

void Wrapper::refuse(const std::string& reason) const { throw InvalidArgument(str(name, ": ", reason)); }

void Wrapper::refuse(const ProcessGroup& group, const std::string& reason) const {
  throw InvalidArgument(str(on(group), ": ", reason));
}

}  // namespace lockstep
