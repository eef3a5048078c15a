// WideCopy: the copy in float32 of a request for a sum of float16 or bfloat16. Partial sums then travel
// between nodes without being rounded on their way. The result is rounded once, as on one machine.
//
//   const auto wide = std::make_shared<WideCopy>(request, memory);   // WideCopy::bytes(request) of it
//   ... the same verb with wide->request() ...
//   wide->narrow_into(request);
#pragma once

#include <cstddef>
#include <memory>

#include "lockstep/comm/backend.h"

namespace lockstep::messages {

class WideCopy {
 public:
  static std::size_t bytes(const Request& request);
  // `request` is an ALL_REDUCE or REDUCE_SCATTER. `memory` is 64-byte aligned, and kept until the copy ends.
  WideCopy(const Request& request, std::shared_ptr<void> memory);

  const Request& request() const { return wide_; }
  void narrow_into(const Request& request) const;

 private:
  const std::shared_ptr<void> memory_;
  Request wide_;
};

}  // namespace lockstep::messages
