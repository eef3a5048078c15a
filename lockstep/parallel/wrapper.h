// Wrapper: the class or function by whose name an error begins. gradients/ and replicas/ serve any wrapper.
//
//   constexpr Wrapper WRAPPER{"DistributedDataParallel"};
//   WRAPPER.refuse("bucket_cap_mb is 0");     // InvalidArgument: DistributedDataParallel: bucket_cap_mb is 0
//   WRAPPER.refuse(group, "...");             // DistributedDataParallel on group "world", rank 0 of 2: ...
#pragma once

#include <string>
#include <string_view>

#include "lockstep/comm/process_group.h"

namespace lockstep {

struct Wrapper {
  std::string_view name;  // refers to a string that lives as long as the program

  std::string on(const ProcessGroup& group) const;
  // Both throw InvalidArgument.
  [[noreturn]] void refuse(const std::string& reason) const;
  [[noreturn]] void refuse(const ProcessGroup& group, const std::string& reason) const;
};

}  // namespace lockstep
