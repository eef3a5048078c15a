// Exchange chooses the path of private memory in all_gather, all_to_all and reduce_scatter, where every rank
// has data for every other rank. It does the same for broadcast, where only the root has data.
//
//   UNDECIDED --all ranks have posted--> WINDOW, LENT or BLOCKS
//
//   WINDOW  every rank waits and its memory is private: it passes through windows (shared/passage.h)
//   LENT    the same, only copied, and so large that the kernel's time does not matter: read where it is
//   BLOCKS  anything else. Data that were posted as WINDOWED or PRIVATE are put into blocks after all
//
// Data in the group's memory are lent on all three.
#pragma once

#include <optional>

#include "lockstep/comm/backends/shared/agreement.h"
#include "lockstep/comm/backends/shared/contribution.h"
#include "lockstep/comm/backends/shared/passage.h"
#include "lockstep/comm/backends/shared/sources.h"

namespace lockstep::shared {

class Exchange {
 public:
  enum class Method { UNDECIDED, WINDOW, LENT, BLOCKS };

  Exchange(Context& context, std::uint64_t sequence) : context_(&context), sequence_(sequence) {}

  // ---- before the post
  // Whether `bytes` bytes for other ranks are kept out of blocks if possible.
  bool is_worth_it(const Request& request, std::size_t bytes) const;
  // True when `given` (by rank; every rank gets the same where `is_same`) is offered to the window, or lent.
  bool offer(const Request& request, const Parts& given, bool is_same, Contribution& contribution);

  // ---- behind it
  // Decides once all ranks have posted, and then puts this rank's data into a block if they are to come late.
  Method method(const Request& request, Agreement& agreement, Contribution& contribution, Sources& sources);
  Passage& passage() { return *passage_; }  // on Method::WINDOW
  // Whether it is known where `rank`'s data are to be read.
  bool is_settled(const Sources& sources, int rank) const;
  bool owes(const Sources& sources, int rank) const;

 private:
  bool lends(Verb verb, std::size_t bytes) const;
  bool begin_passage(const Request& request, Agreement& agreement, const Sources& sources);

  Context* context_;
  std::uint64_t sequence_;
  Method method_ = Method::UNDECIDED;
  Parts given_;  // as offered
  PassagePlan plan_;
  std::optional<Passage> passage_;
};

}  // namespace lockstep::shared
