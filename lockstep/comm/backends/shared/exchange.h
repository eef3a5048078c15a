// Exchange: what all_gather, all_to_all and reduce_scatter have in common, in which every rank has something for every other, and
// broadcast, in which one has: the way that private memory takes.
//
//   WINDOW  every rank waits and its memory is private: all of it passes through small windows (shared/passage.h)
//   LENT    the same, so large that the time of the kernel does not matter, and only copied: it is read where it is
//   BLOCKS  anything else. What was posted as WINDOWED or PRIVATE is put into blocks after all
//
// What lies in memory of the group is lent on all three.
#pragma once

#include <optional>
#include <vector>

#include "lockstep/comm/backends/shared/collective.h"
#include "lockstep/comm/backends/shared/passage.h"

namespace lockstep::shared {

class Exchange : public CollectiveOperation {
 public:
  using CollectiveOperation::CollectiveOperation;

 protected:
  enum class ExchangeMethod { UNDECIDED, WINDOW, LENT, BLOCKS };

  // While contributing. Whether so many bytes for others are not put into blocks if that can be.
  bool is_worth_it(std::size_t bytes) const;
  // True when `given` (by rank; every rank gets the same where `is_same`) is offered to the window, or lent.
  bool offer(const Parts& given, bool is_same);
  // Undecided until all ranks have posted.
  ExchangeMethod method();
  Passage& passage();  // on ExchangeMethod::WINDOW
  // Whether it is known where `rank`'s data are to be read.
  bool is_settled(int rank) const;
  bool owes(int rank) const override;

  // How many bytes `rank` has for this one.
  virtual std::size_t expected_from(int rank) const = 0;
  // What was offered is put into a block.
  virtual void contribute_late() = 0;

 private:
  bool lends(std::size_t bytes) const;
  void decide();
  bool sizes_agree();

  ExchangeMethod method_ = ExchangeMethod::UNDECIDED;
  std::optional<PassagePlan> plan_;  // of what was offered
  Parts given_;
  std::optional<Passage> passage_;
};

}  // namespace lockstep::shared
