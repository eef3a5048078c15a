// Waitable: an event that a rank of a group over shared memory waits for.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::shared {

// All functions are called with the lock of the group's operations held.
class Waitable {
 public:
  virtual ~Waitable() = default;
  virtual bool ready() = 0;  // makes possible progress; returns true when there is nothing to wait for
  virtual std::uint64_t progress() const = 0;    // changes with every progress
  virtual std::vector<int> awaited() const = 0;  // ranks that have not done their part yet
  virtual std::string describe() const = 0;      // "all_reduce #118"
  // The usual reason why other ranks do not come (purpose.h), as the end of a sentence.
  virtual std::string usual_cause() const { return {}; }
};

}  // namespace lockstep::shared
