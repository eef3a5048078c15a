// StallWatch: notices names that some ranks have announced and others have not, for too long. Pure.
//
//   StallWatch watch(60s, 0s);
//   const Stalls stalls = watch.look(negotiation.incomplete(), now, /*running_since=*/since);
//   if (!stalls.warning.empty()) log(LogLevel::WARNING, stalls.warning);
//   if (stalls.is_over) ...                                  // a name has waited for the shutdown time
//
// A warning names each tensor, the ranks that wait and the ranks that are missing. It is repeated after the
// same time. The clock of one rank is enough, because all ranks know what is incomplete. Time before the last
// pause of that rank ended does not count (base/running_clock.h): after a pause a name may be late anew.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/named/negotiation.h"

namespace lockstep::named {

struct Stalls {
  std::string warning;
  bool is_over = false;
};

// "allreduce "a" was submitted by ranks 0, 2 and is missing from rank 1; ...". At most ten names.
std::string describe(const std::vector<Incomplete>& incomplete);

class StallWatch {
 public:
  // 0: never.
  StallWatch(std::chrono::milliseconds check, std::chrono::milliseconds shutdown)
      : check_(check), shutdown_(shutdown) {}

  Stalls look(const std::vector<Incomplete>& incomplete, Time now, Time running_since = {});
  // How long until look() may have something new; nothing: it never will.
  std::optional<std::chrono::milliseconds> patience() const;

 private:
  std::chrono::milliseconds check_;
  std::chrono::milliseconds shutdown_;
  Time warned_ = {};
};

}  // namespace lockstep::named
