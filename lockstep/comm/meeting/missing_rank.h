// MissingRank: the Timeout of ranks that wait in vain for another one to come; it says which for programs,
// too.
#pragma once

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

class MissingRank : public Timeout {
 public:
  MissingRank(const std::string& message, int rank) : Timeout(message), rank_(rank) {}
  int rank() const { return rank_; }  // the first that did not come

 private:
  int rank_;
};

}  // namespace lockstep
