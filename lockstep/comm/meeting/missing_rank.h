// MissingRank: the Timeout of a rank that waited for another rank to come. It also carries the number of the
// missing rank, for programs.
#pragma once

#include <string>

#include "lockstep/base/error.h"

namespace lockstep {

class MissingRank : public Timeout {
 public:
  MissingRank(const std::string& message, int rank) : Timeout(message), rank_(rank) {}
  int rank() const { return rank_; }  // the first rank that did not come

 private:
  int rank_;
};

}  // namespace lockstep
