// Exchange chooses the path of private memory in all_gather, all_to_all and reduce_scatter, where every rank
// has data for every other rank. It does the same for broadcast, where only the root has data.
//
//   UNDECIDED --all ranks have posted--> WINDOW, LENT or BLOCKS
//
//   WINDOW  all ranks wait, with data in private memory: the data pass through windows (shared/passage.h)
//   LENT    all ranks wait, and the verb only copies: very large data are read where they are
//   BLOCKS  otherwise. Data that were posted as WINDOWED or PRIVATE are copied into blocks late
//
// Data in the group's memory are lent with all three.
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
  // Whether `bytes` bytes for other ranks should stay out of blocks if possible.
  bool is_worth_it(const Request& request, std::size_t bytes) const;
  // Returns true if `given` is offered to the window, or lent. `given` is by rank; with `is_same`, every rank
  // gets the same.
  bool offer(const Request& request, const Parts& given, bool is_same, Contribution& contribution);

  // ---- after the post
  // Decides once all ranks have posted. Puts this rank's data into a block then, if they must come late.
  Method method(const Request& request, Agreement& agreement, Contribution& contribution, Sources& sources);
  Passage& passage() { return *passage_; }  // on Method::WINDOW
  // Whether it is known where to read `rank`'s data.
  bool is_settled(const Sources& sources, int rank) const;
  bool owes(const Sources& sources, int rank) const;

 private:
  bool lends(Verb verb, std::size_t bytes) const;
  bool begin_passage(const Request& request, Agreement& agreement, const Sources& sources);

  Context* context_;
  std::uint64_t sequence_;
  Method method_ = Method::UNDECIDED;
  Parts given_;  // the data that were offered
  PassagePlan plan_;
  std::optional<Passage> passage_;
};

}  // namespace lockstep::shared
